"""Many workers on several boards, many operations: none wrong.

``LABCTL_SOAK_OPERATIONS`` is how many (10,000).
"""

import os
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from leaks import nothing_left

from labctl.transport.base import TransferOptions, Transport
from labctl.transport.hdc import HdcTcpConfig
from labctl.virtual.board import Served, VirtualBoard, serving

pytestmark = [pytest.mark.e2e, pytest.mark.soak]

OPERATIONS = int(os.environ.get("LABCTL_SOAK_OPERATIONS", "10000"))
BOARDS, WORKERS = 8, 64
PATIENCE = 120.0


def shell(link: Transport, board: Served, local: Path, chance: random.Random) -> None:
    nonce, status, lines = secrets.token_hex(8), chance.randrange(256), chance.randrange(2000)
    said = link.run(f"echo {nonce}; seq 1 {lines}; exit {status}", timeout=PATIENCE)
    wanted = "".join(f"{line}\n" for line in [nonce, *range(1, lines + 1)])
    assert (said.exit_status, said.text) == (status, wanted)


def push(link: Transport, board: Served, local: Path, chance: random.Random) -> None:
    content, name = some_bytes(chance), secrets.token_hex(8)
    (local / name).write_bytes(content)
    link.push(local / name, f"{board.workdir}/{name}", TransferOptions(timeout=PATIENCE))
    assert (board.workdir / name).read_bytes() == content
    (board.workdir / name).unlink()
    (local / name).unlink()


def pull(link: Transport, board: Served, local: Path, chance: random.Random) -> None:
    content, name = some_bytes(chance), secrets.token_hex(8)
    (board.workdir / name).write_bytes(content)
    link.pull(f"{board.workdir}/{name}", local / name, TransferOptions(timeout=PATIENCE))
    assert (local / name).read_bytes() == content
    (board.workdir / name).unlink()
    (local / name).unlink()


def some_bytes(chance: random.Random) -> bytes:
    """From nothing to a few chunks."""
    return chance.randbytes(chance.choice((0, 1, 5000, 418_611, chance.randrange(1_000_000))))


KINDS: tuple[Callable[[Transport, Served, Path, random.Random], None], ...] = (shell, push, pull)


@pytest.mark.timeout(3600)
def test_many_workers_on_several_boards_do_nothing_wrong(tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.mkdir()
    counts: Counter[str] = Counter()
    plans = [VirtualBoard(f"b{n}", tmp_path / f"b{n}") for n in range(BOARDS)]
    with nothing_left(tmp_path), ExitStack() as stack:
        boards = stack.enter_context(serving(*plans))
        links = [stack.enter_context(HdcTcpConfig(address=b.address).open()) for b in boards]

        def work(number: int) -> str:
            chance = random.Random(number)
            kind = KINDS[number % len(KINDS)]
            kind(links[number % BOARDS], boards[number % BOARDS], local, chance)
            return kind.__name__

        began = time.monotonic()
        with ThreadPoolExecutor(WORKERS) as pool:
            counts.update(pool.map(work, range(OPERATIONS)))
        took = time.monotonic() - began
    print(f"{counts} in {took:.0f} s, {OPERATIONS / took:.0f} a second")
    assert counts.total() == OPERATIONS
    assert set(counts) == {"shell", "push", "pull"}
