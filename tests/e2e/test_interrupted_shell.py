"""Ctrl-C, pressed more than once, while ``labctl hdc shell`` runs a command.

``LABCTL_SOAK_PRESSES`` is the number of commands in the soak (200 on each link).
"""

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import forked
import pytest
from hdc_server import Board, stand_in_server
from virtual_process import BoardProcess, virtual_board_process

from labctl import process
from labctl.retry import wait_until

pytestmark = pytest.mark.e2e

KEY = "7001005458323933328a01ce1"
PRESSES = int(os.environ.get("LABCTL_SOAK_PRESSES", "200"))
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: What the documents promise for the end of a command that was interrupted (s).
LIMIT = 15


@dataclass(frozen=True)
class Bench:
    """A board, and the words of labctl that lead to it."""

    board: BoardProcess
    words: tuple[str, ...]
    folder: Path

    def runs(self, what: str) -> bool:
        for pid in self.board.marked():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if what.encode() in words:
                return True
        return False


@pytest.fixture(scope="module", params=["tcp", "server"])
def bench(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    with reached_by(request.param, tmp_path_factory.mktemp("interrupted")) as bench:
        yield bench


@contextmanager
def reached_by(link: str, folder: Path) -> Iterator[Bench]:
    with ExitStack() as stack:
        board = stack.enter_context(virtual_board_process(folder / "board"))
        words: tuple[str, ...] = ("hdc", "-t", board.address)
        if link == "server":
            server = stack.enter_context(stand_in_server({KEY: Board(board.address)}))
            words = ("hdc", "-s", f"127.0.0.1:{server.port}", "-t", KEY)
        yield Bench(board, words, folder)


def press(bench: Bench, chance: random.Random, number: int, *, early: bool) -> str:
    """Start a command with two processes, press twice or more; return what is wrong."""
    mine = f"{701 + chance.randrange(10**6)}.{number:06}"
    command = f"sleep {mine} & sleep {mine}"
    running = forked.start([*bench.words, "shell", command], cwd=bench.folder)
    try:
        if early:
            time.sleep(chance.uniform(0.0, 0.4))
        else:
            assert wait_until(lambda: bench.runs(mine), timeout=120, interval=0.01)
        pauses = [0.0] + [chance.uniform(0.0, 0.15) for _ in range(chance.choice((1, 1, 2, 5)))]
        pressed = []
        for pause in pauses:
            time.sleep(pause)
            pressed.append(chance.choice(SIGNALS))
            running.send_signal(pressed[-1])
        began = time.monotonic()
        _, said = running.communicate(timeout=120)
        took = time.monotonic() - began
    finally:
        process.stop(running)
    # The kernel ends what was killed a moment after `kill` has returned.
    left = not wait_until(lambda: not bench.runs(mine), timeout=1, interval=0.05)
    wrong = (
        left
        or took > LIMIT
        # Python dies of a signal in its first or last moments, when nothing runs on the board.
        or running.returncode not in (130, *(-number for number in pressed))
        or b"may still run" in said
    )
    return f"{pressed} {pauses}: left {left}, {running.returncode}, {took:.1f} s {said!r}" * wrong


@pytest.mark.parametrize("early", [False, True])
def test_a_second_ctrl_c_leaves_nothing_on_the_board(bench: Bench, early: bool) -> None:
    chance = random.Random(7)
    wrong = [press(bench, chance, number, early=early) for number in range(6)]
    assert not any(wrong), "\n".join(filter(None, wrong))


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("early", [False, True])
def test_soak_of_second_presses(bench: Bench, early: bool) -> None:
    seed = int(os.environ.get("LABCTL_SOAK_SEED", str(time.time_ns())))
    chance = random.Random(seed)
    wrong = [press(bench, chance, number, early=early) for number in range(PRESSES)]
    assert not any(wrong), "\n".join([f"seed {seed}", *filter(None, wrong)])
