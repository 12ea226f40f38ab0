"""The way of a run to its board: looked at, prepared for, claimed once."""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import agent_builds
import pytest
from wrapped_transport import WrappedTransport

from labctl import file_hashes
from labctl.config.lab import Board, LabFile, find_lab
from labctl.config.recipe import Recipe
from labctl.errors import BoardBusy, BoardNoSpace
from labctl.runs.board.claim import board_state, lock_board, note_of_use
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.observer import Observer
from labctl.runs.run import RunRequest, run_recipe
from labctl.runs.runner import Outcome
from labctl.state.events import this_user
from labctl.state.state import lab_state
from labctl.transport.base import CommandResult, Transport
from labctl.transport.built_in import TRANSPORTS

METRIC = {"metric": "tokens_per_second", "unit": "tokens_per_s"}


class Link(WrappedTransport):
    """A link whose commands are kept; ``before`` is called before each of them."""

    def __init__(self, inner: Transport, kept: list[str], before: Callable[[str], None]):
        super().__init__(inner)
        self._kept, self._before = kept, before

    def run(self, command: str, *, timeout: float, separate_stderr: bool = False) -> CommandResult:
        self._before(command)
        self._kept.append(command)
        return super().run(command, timeout=timeout, separate_stderr=separate_stderr)


class Asked:
    """A recipe for a board of this host, and what is asked over links to the board."""

    def __init__(self, root: Path):
        self.root = root
        agent_builds.native_agent()
        (root / "program").write_text("#!/bin/sh\necho 'speed 10.0'\n")
        (root / "program").chmod(0o755)
        (root / "any.bin").write_bytes(os.urandom(16))  # in nobody's cache of hashes
        host = agent_builds.HOST
        board = f"{{target: {host}, workdir: {root}/board, transport: {{kind: local}}}}"
        (root / "devices.yaml").write_text(f"lab: lab\nboards:\n  b: {board}\n")
        self.lab: LabFile = find_lab(root, TRANSPORTS)
        engine = {
            "name": "command",
            "program": {"file": "program"},
            "arguments": [],
            "output": [{"pattern": "^speed (?P<t>[0-9.]+)$", "values": {"t": METRIC}}],
        }
        self.recipe = Recipe.model_validate(
            {
                "name": "r",
                "target": host,
                "engine": engine,
                "models": {"none": {"file": "any.bin"}},
                "max_time": "5m",
            }
        )
        #: Of each link: its commands.
        self.links: list[list[str]] = []
        self.before: Callable[[str], None] = lambda _command: None

    @property
    def board(self) -> Board:
        return self.lab.board("b")

    @property
    def stored(self) -> list[Path]:
        """All of the board's store but the agent."""
        store = self.root / "board" / "store"
        (agent,) = [path for path in store.glob("*.name") if path.read_text().strip() == "agent"]
        return [path for path in store.iterdir() if path.name.split(".")[0] != agent.stem]

    def connect(self, board: Board) -> Transport:
        self.links.append([])
        return Link(board.transport.open(), self.links[-1], self._asked)

    def _asked(self, command: str) -> None:
        self.before(command)

    def run(self, observer: Observer | None = None) -> Outcome:
        self.links.clear()
        request = RunRequest(self.recipe, self.board, self.lab)
        return run_recipe(request, self.connect, observer or Observer())


@pytest.fixture
def asked(tmp_path: Path, private_state: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    monkeypatch.setattr(file_hashes, "_SETTLED_NS", 0)
    monkeypatch.chdir(tmp_path)
    return Asked(tmp_path)


def locked_by(asked: Asked, holder: str) -> AbstractContextManager[None]:
    """Lock the board, as another process of this host does."""
    note = note_of_use(asked.lab, asked.board, BoardUse("run q2", 0, holder))
    with asked.board.transport.open() as link:
        lock = board_state(link.label, asked.board).with_suffix(".lock")
    return lock_board(asked.board, lock, note)


def kinds(commands: list[str]) -> list[str]:
    """Name the commands of a link that tell what happens to the board."""
    known = {"section system": "look", " take --lease ": "claim", " run --dir ": "trial"}
    return [kind for one in commands for word, kind in known.items() if word in one]


def test_look_and_claim_are_one_contact_if_all_is_here(asked: Asked) -> None:
    asked.run()
    asked.run()
    (commands,) = asked.links
    assert kinds(commands) == ["look", "claim", "trial"]
    # The facts, the store with the agent's facts, the claim with the store again; the job's start,
    # its end, its files, and the end of the claim.
    assert len(commands) == 7


def test_the_board_is_looked_at_for_what_is_missing_here_and_claimed_once(asked: Asked) -> None:
    seen: list[str] = []

    class Steps(Observer):
        def step(self, step: str, done: float, total: float | None) -> None:
            with locked_by(asked, "ann@desk"):
                seen.append(step)

    asked.run(Steps())
    first, second = asked.links
    assert seen
    assert kinds(first) == ["look"]
    assert kinds(second) == ["look", "claim", "trial"]


@pytest.mark.parametrize("taken", ["in the lab", "on this host"])
def test_a_board_that_somebody_has_is_not_contacted(asked: Asked, taken: str) -> None:
    if taken == "in the lab":
        lab_state(asked.lab).leases.acquire("b", purpose="run q2", holder="ann@desk")
        with pytest.raises(BoardBusy, match=r"board b is in use by ann@desk since .*: run q2"):
            asked.run()
    else:
        with (
            locked_by(asked, "ann@desk"),
            pytest.raises(BoardBusy, match=r"board b is in use by ann@desk since .*: run q2$"),
        ):
            asked.run()
    assert asked.links == [[]]
    assert list(asked.root.glob("runs/2*")) == []


def test_what_vanished_from_the_store_before_the_claim_is_sent(asked: Asked) -> None:
    """Another host may have pruned the board since it was looked at."""
    asked.run()

    def prune(command: str) -> None:
        if " take --lease " in command:
            for file in asked.stored:
                file.unlink()

    asked.before = prune
    outcome = asked.run()
    assert outcome.exit_status == 0
    assert [trial.state for trial in outcome.trials] == ["ok"]


def test_a_board_that_filled_up_before_the_claim_is_refused_before_the_first_byte(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked.run()
    for file in asked.stored:
        file.unlink()
    full = asked.root / "bin"
    full.mkdir()
    (full / "df").write_text(
        "#!/bin/sh\necho 'Filesystem 1024-blocks Used Available Capacity'\n"
        "echo '/dev/x 10000000 9999990 10 100% /'\n"
    )
    (full / "df").chmod(0o755)

    def fill(command: str) -> None:
        if " take --lease " in command:
            monkeypatch.setenv("PATH", f"{full}:{os.environ['PATH']}")

    asked.before = fill
    with pytest.raises(BoardNoSpace, match="not enough space on the board"):
        asked.run()
    assert asked.stored == []


def test_who_has_the_board_is_told_by_run_user_and_trial(asked: Asked) -> None:
    said: list[str] = []

    def interrupt(command: str) -> None:
        if " run --dir " not in command:
            return
        asked.before = lambda _command: None
        links = list(asked.links)
        with pytest.raises(BoardBusy) as refused:
            asked.run()
        said.append(refused.value.message)
        asked.links[:] = links

    asked.recipe = asked.recipe.model_copy(update={"repeats": 3})
    asked.before = interrupt
    outcome = asked.run()
    (message,) = said
    assert message.startswith(f"board b is in use by {this_user()} since {time.strftime('%Y')}-")
    assert message.endswith(f": run r ({outcome.run.id}, trial 1 of 3)")
    for word in (str(os.getpid()), ".lock", str(asked.root)):
        assert word not in message
