"""The lab's state decides who has a board, between hosts that share it."""

import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import agent_builds
import pytest

from labctl import process
from labctl.config.lab import LabFile, lab_model
from labctl.config.target import load_target
from labctl.errors import BoardBusy, ConfigError, HostError, LeaseLost
from labctl.records.board import BoardFacts, Execution
from labctl.retry import wait_until
from labctl.runs.board.claim import BoardClaim
from labctl.runs.board.lab_lease import BoardUse, LabLease, LeaseRenewer, lab_lease, lease_renewer
from labctl.runs.board.session import BoardSession
from labctl.state.lease import StateLease
from labctl.state.leases import BoardLeases
from labctl.state.state import LabState, lab_state
from labctl.transport.base import TransferOptions
from labctl.transport.built_in import TRANSPORTS
from labctl.transport.local import LocalConfig

FACTS = BoardFacts(execution=Execution.NATIVE_HOST, machine="m", kernel="k", boot_id="b")


BOARD = {"target": "host-x86_64", "transport": {"kind": "local"}, "workdir": "/w"}


@pytest.fixture
def lab(tmp_path: Path, private_state: Path) -> LabFile:
    board = {**BOARD, "workdir": str(tmp_path / "board")}
    lab = lab_model(TRANSPORTS).model_validate({"lab": "lab", "boards": {"b": board}})
    (tmp_path / "devices.yaml").write_text("lab: lab\n")
    return LabFile(tmp_path, lab)


@pytest.fixture
def state(lab: LabFile) -> LabState:
    return lab_state(lab)


def renewed_often(lab: LabFile, renewals: int) -> LabLease:
    state = lab_state(lab)
    renewer = LeaseRenewer(state.leases, renewals=renewals)
    return LabLease(state, renewer, lab.board("b"), BoardUse("run q2"), "")


@pytest.fixture
def hold(lab: LabFile, tmp_path: Path) -> Iterator[Callable[..., BoardSession]]:
    """Meet the board in a process of this host."""
    with ExitStack() as ending:

        def held(
            use: BoardUse | None = None, *, lease_seconds: float = 60.0, renewals: int = 0
        ) -> BoardSession:
            here, board = replace(lab, lease_seconds=lease_seconds), lab.board("b")
            link = ending.enter_context(LocalConfig().open())
            claim = BoardClaim(board, here, link, tmp_path / "state" / "board")
            ending.enter_context(claim)
            met = BoardSession(claim, here, load_target("host-x86_64"), FACTS, tmp_path / "rate")
            met.fence.agent = str(agent_builds.native_agent())
            claim.in_lab = lab_lease(here, board, use or BoardUse("run q2"))
            if renewals:
                claim.in_lab = renewed_often(here, renewals)
            return met

        yield held


@pytest.fixture
def on_another_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], None]:
    """From then on this is another host, which does not know the leases of the first."""

    def move() -> None:
        monkeypatch.setenv("LABCTL_STATE", str(tmp_path / "other"))

    return move


def test_a_board_is_taken_in_the_lab_and_on_itself_with_one_epoch(
    hold: Callable[..., BoardSession], state: LabState
) -> None:
    held = hold()
    held.claim.refuse_if_taken()
    taken = held.take_lease()
    lease = state.leases.get("b")
    assert lease is not None
    assert (lease.epoch, lease.purpose) == (taken.epoch, "run q2")
    again = held.take_lease()  # after a restart of the board
    assert again.epoch == taken.epoch + 1
    assert (state.leases.get("b") or taken).epoch == again.epoch
    held.claim.give_up()
    assert state.leases.list() == []
    assert [one.value for one in state.health.history("b")] == ["leased", "idle"]


def test_epochs_come_from_the_board_when_the_state_is_an_older_one(
    hold: Callable[..., BoardSession], state: LabState, lab: LabFile
) -> None:
    held = hold()
    held.take_lease()
    held.claim.give_up()
    backup = state.backup(lab.root / "old.sqlite")
    held = hold()
    for _ in range(8):
        last = held.take_lease()
    (lab.root / "labctl.sqlite").unlink()  # a disk failed
    state.restore(backup)
    assert state.leases.list() == []
    now = hold().take_lease()
    assert now.epoch == last.epoch + 1 == 10
    assert (state.leases.get("b") or last).epoch == 10
    with pytest.raises(LeaseLost, match=r"took the board .*epoch 10, this run has 9"):
        held.claim.check()


def test_a_restore_takes_no_epoch_back(
    hold: Callable[..., BoardSession], state: LabState, lab: LabFile
) -> None:
    first = state.leases.acquire("b", purpose="a")
    backup = state.backup(lab.root / "old.sqlite")
    state.leases.release(first)
    now = state.leases.acquire("b", purpose="b", minimum_epoch=7, holder="ann@desk")
    with pytest.raises(ConfigError, match=r"board b is in use by ann@desk: b \(process \d+ on"):
        state.restore(backup)
    state.restore(backup, force=True)
    with pytest.raises(LeaseLost):
        state.leases.renew(first)
    assert state.leases.renew(now).epoch == 7  # its holder is there still


def test_another_host_is_told_who_has_the_board(
    hold: Callable[..., BoardSession], on_another_host: Callable[[], None]
) -> None:
    held = hold()
    held.take_lease()
    on_another_host()
    for take in (hold().claim.refuse_if_taken, hold().take_lease):
        with pytest.raises(BoardBusy, match=r"board b is in use by .*@.* since .*: run q2"):
            take()
    held.claim.check()


def test_a_controller_of_another_host_that_died_is_not_waited_for(
    hold: Callable[..., BoardSession],
    on_another_host: Callable[[], None],
    state: LabState,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its last sign of life on the board is young, and its lease in the lab is over."""
    dead = hold(lease_seconds=5.0)  # the board is taken within it
    with monkeypatch.context() as patch:
        patch.setattr("labctl.runs.board.lab_lease.LabLease._keep", lambda _self: None)
        first = dead.take_lease()
    on_another_host()
    assert wait_until(lambda: state.leases.get("b") is None, timeout=30, interval=0.05)
    after = hold()
    after.claim.refuse_if_taken()
    assert after.take_lease().epoch == first.epoch + 1
    for use in (dead.claim.check, dead.claim.require, dead.take_lease):
        with pytest.raises(LeaseLost, match="was not renewed in time"):
            use()


def test_a_dead_controller_of_this_host_is_followed_at_once(
    hold: Callable[..., BoardSession], state: LabState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labctl.runs.board.lab_lease.LabLease._keep", lambda _self: None)
    first = hold().take_lease()
    after = hold()
    after.claim.refuse_if_taken()
    assert after.take_lease().epoch == first.epoch + 1
    assert [one.reason for one in state.health.history("b")][1] == "its holder died"


def test_a_run_that_is_taken_up_keeps_the_epoch_of_its_job(
    hold: Callable[..., BoardSession], state: LabState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labctl.runs.board.lab_lease.LabLease._keep", lambda _self: None)
    first = hold().take_lease()
    after = hold()
    after.claim.keep(first)
    lease = state.leases.get("b")
    assert lease is not None
    assert lease.epoch == after.claim.epoch == first.epoch
    assert after.take_lease().epoch == first.epoch + 1


def test_a_lease_is_renewed_while_its_holder_lives(
    hold: Callable[..., BoardSession], state: LabState
) -> None:
    held = hold(lease_seconds=30.0, renewals=300)
    held.take_lease()
    first = state.leases.get("b")
    assert first is not None

    def is_renewed() -> bool:
        now = state.leases.get("b")
        return now is not None and now.expires > first.expires

    assert wait_until(is_renewed, timeout=60, interval=0.05)
    held.claim.check()


def test_who_cannot_renew_sends_and_records_nothing_more(
    hold: Callable[..., BoardSession], lab: LabFile
) -> None:
    """The database is down; the holder stops before the lease is over."""
    held = hold(lease_seconds=6.0)  # the board is taken within it
    held.take_lease()
    database = lab.root / "labctl.sqlite"
    content = database.read_bytes()
    database.write_bytes(b"x" * len(content))

    def is_over() -> bool:
        try:
            held.claim.require()
        except LeaseLost:
            return True
        return False

    assert wait_until(is_over, timeout=60, interval=0.05)
    for use in (
        held.claim.check,
        lambda: held.transport.run("touch board/late", timeout=5),
        lambda: held.transport.push(database, str(lab.root / "late"), TransferOptions(timeout=5)),
    ):
        with pytest.raises(LeaseLost, match="was not renewed in time: cannot use the lab's state"):
            use()
    assert list(lab.root.rglob("late")) == []
    alive = lab.root / "board" / "lease.alive"
    held.claim.give_up()
    assert alive.exists()  # nothing was sent at the end either
    assert held.transport.run("echo a", timeout=60).text == "a\n"  # under no lease


STALLS = """
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from labctl.config.lab import find_lab
from labctl.errors import LabctlError
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.board.lab_lease import lab_lease
from labctl.transport.built_in import TRANSPORTS
lab = replace(find_lab(Path(sys.argv[1]), TRANSPORTS), lease_seconds=3.0)
lease = lab_lease(lab, lab.board("b"), BoardUse("run q2"))
lease.take("t" * 16)
print("held", flush=True)
sys.stdin.readline()
try:
    lease.check()
    print("mine", flush=True)
except LabctlError as error:
    print(error.kind, flush=True)
"""


def test_a_holder_that_was_stopped_and_comes_back_is_refused(lab: LabFile, state: LabState) -> None:
    (lab.root / "devices.yaml").write_text(
        "lab: lab\nboards:\n  b: {target: host-x86_64, workdir: /w, transport: {kind: local}}\n"
    )
    words = [sys.executable, "-c", STALLS, str(lab.root)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as stalled:
        assert stalled.stdout is not None
        assert stalled.stdin is not None
        assert stalled.stdout.readline() == "held\n"
        stalled.send_signal(19)  # SIGSTOP
        assert wait_until(lambda: state.leases.get("b") is None, timeout=60, interval=0.05)
        after = state.leases.acquire("b", purpose="next", holder="bob@desk")
        stalled.stdin.write("go\n")
        stalled.stdin.flush()
        stalled.send_signal(18)  # SIGCONT
        assert stalled.stdout.readline() == "LeaseLost\n"
    assert state.leases.renew(after).epoch == 2


def test_a_reservation_that_begins_is_told_to_the_holder(
    hold: Callable[..., BoardSession], state: LabState
) -> None:
    held = hold(renewals=600)
    held.take_lease()
    held.claim.refuse_if_kept_for_another()
    now = (state.leases.get("b") or pytest.fail("no lease")).since
    state.reservations.add("b", now, now + 3600, holder="ann", by="ann@desk", reason="demo")

    def is_told() -> bool:
        try:
            held.claim.refuse_if_kept_for_another()
        except BoardBusy as error:
            return "is reserved for ann" in error.message
        return False

    assert wait_until(is_told, timeout=60, interval=0.05)
    held.claim.check()  # what is under way comes to its end


def test_a_run_that_would_reach_into_a_reservation_is_not_begun(
    hold: Callable[..., BoardSession], state: LabState
) -> None:
    held = hold()
    held.take_lease()
    now = (state.leases.get("b") or pytest.fail("no lease")).since
    held.claim.give_up()
    state.reservations.add("b", now + 1800, now + 3600, holder="ann", by="ann@desk")
    with pytest.raises(BoardBusy, match="is reserved for ann from"):
        hold(BoardUse("long", 3600)).claim.refuse_if_taken()
    hold(BoardUse("short", 600)).claim.refuse_if_taken()


def test_a_board_that_is_in_no_lab_has_its_own_lease_alone(
    hold: Callable[..., BoardSession], lab: LabFile
) -> None:
    lab.path.unlink()
    held = hold()
    assert held.claim.in_lab is None
    held.take_lease()
    held.claim.require()
    assert not (lab.root / "labctl.sqlite").exists()


def test_a_database_that_is_gone_gives_no_board(
    hold: Callable[..., BoardSession], lab: LabFile
) -> None:
    (lab.root / "labctl.sqlite").mkdir()
    with pytest.raises(HostError, match="cannot use the lab's state"):
        hold().take_lease()
    assert not (lab.root / "board").exists()


def test_all_leases_of_a_process_are_renewed_in_one_transaction(
    lab: LabFile, state: LabState, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[set[str]] = []
    renew_all = BoardLeases.renew_all

    def counted(
        self: BoardLeases, leases: Sequence[StateLease], seconds: float | None = None
    ) -> Sequence[StateLease | LeaseLost]:
        rounds.append({one.board for one in leases})
        return renew_all(self, leases, seconds)

    monkeypatch.setattr(BoardLeases, "renew_all", counted)
    names = [f"b-{number}" for number in range(20)]
    boards = lab_model(TRANSPORTS).model_validate(
        {"lab": "lab", "boards": dict.fromkeys(names, BOARD)}
    )
    many = LabFile(lab.root, boards, lease_seconds=600.0)
    renewer = lease_renewer(many, renewals=600)  # the one that all of them use
    held = {name: lab_lease(many, many.board(name), BoardUse("run q2")) for name in names}
    for name, lease in held.items():
        assert lease is not None
        lease.take(name)
    assert lease_renewer(many) is renewer
    assert [one.name for one in threading.enumerate()].count("leases") == 1
    first = {lease.board: lease.expires for lease in state.leases.list()}

    def are_renewed() -> bool:
        now = {lease.board: lease.expires for lease in state.leases.list()}
        return all(now[name] > first[name] for name in names)

    assert wait_until(are_renewed, timeout=60, interval=0.05)
    assert set(names) in rounds
    for lease in held.values():
        assert lease is not None
        lease.check()
        lease.release()
    assert state.leases.list() == []


_PRESSED = """
    import signal, sys
    from pathlib import Path
    from labctl import interrupts
    from labctl.config.lab import LabFile, lab_model
    from labctl.runs.board.lab_lease import BoardUse, lab_lease
    from labctl.runs.board.own_tokens import new_own_token
    from labctl.transport.built_in import TRANSPORTS

    interrupts.install()
    interrupts.begin()
    board = {"target": "host-x86_64", "transport": {"kind": "local"}, "workdir": "/w"}
    model = lab_model(TRANSPORTS).model_validate({"lab": "lab", "boards": {"b": board}})
    lab = LabFile(Path(sys.argv[1]), model)
    lease = lab_lease(lab, lab.board("b"), BoardUse("run q2"))
    lease.take(new_own_token())
    try:
        signal.raise_signal(signal.SIGINT)
        lease.release()
    except KeyboardInterrupt:
        interrupts.finish()
        print("interrupted")
"""


def test_ctrl_c_leaves_no_lease_behind(lab: LabFile, state: LabState) -> None:
    """A lease left behind would keep the board from the next run for a minute."""
    done = process.run([sys.executable, "-c", textwrap.dedent(_PRESSED), lab.root], timeout=60)
    assert (done.stdout, done.stderr) == (b"interrupted\n", b"")
    assert not state.leases.list()
