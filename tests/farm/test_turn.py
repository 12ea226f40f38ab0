"""The wait of ``labctl run`` for its board."""

import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from labctl import process
from labctl.config.lab import Lab, LabFile
from labctl.errors import (
    BoardBusy,
    BoardOutOfService,
    ConfigError,
    ExitStatus,
    HostError,
    LabctlError,
    LeaseLost,
)
from labctl.farm.turn import Place, Turn
from labctl.retry import wait_until
from labctl.state.health import NOT_LOOKED_THROUGH, UNTRUSTED, Health
from labctl.state.job import Job, NewJob
from labctl.state.state import LabState, lab_state

#: Times (s) of a wait that looks often.
OFTEN = {"look_seconds": 0.01, "again_seconds": 0.01}


@pytest.fixture
def state(tmp_path: Path) -> LabState:
    return lab_state(LabFile(tmp_path, Lab(boards={})))


def test_a_board_that_refuses_again_and_again_is_told_once(state: LabState, tmp_path: Path) -> None:
    places, notes, tries = list[Place](), list[str](), iter(range(5))
    job = NewJob("q8", {}, ("rk1",), runner="process")

    def use(claimed: Job) -> int:
        if (seconds := next(tries)) < 4:
            raise BoardBusy(f"board {claimed.board} is in use: a sign of life {seconds} s ago")
        return 0

    turn = Turn(state, tmp_path, job, places.append, notes.append, **OFTEN)
    assert turn.take(use, BoardBusy) == 0
    assert [place.number for place in places] == [1]
    assert notes == ["board rk1 is in use: a sign of life 0 s ago"]


def test_a_run_that_was_broken_off_is_not_made_again(state: LabState, tmp_path: Path) -> None:
    job, tries = NewJob("q8", {}, ("rk1",), runner="process"), list[str]()

    def use(claimed: Job) -> int:
        tries.append(str(claimed.board))
        error = BoardBusy(f"board {claimed.board} is reserved for ann")
        error.run = "20260101T000000Z-q8-abcdef"
        raise error

    with pytest.raises(BoardBusy, match="reserved for ann"):
        Turn(state, tmp_path, job, print, print, **OFTEN).take(use, BoardBusy)
    assert tries == ["rk1"]
    ended = state.jobs.get(job.id)
    assert ended is not None
    assert (ended.state, ended.exit_status) == ("done", 3)


def test_others_have_the_board_while_the_inputs_of_a_run_are_fetched(
    state: LabState, tmp_path: Path
) -> None:
    job, attempts = NewJob("q8", {}, ("rk1",), runner="process"), list[tuple[str, int]]()
    turn = Turn(state, tmp_path, job, lambda _: None, print, **OFTEN)
    state.jobs.submit(job)
    state.jobs.submit(NewJob("later", {}, ("rk1",), id="later"))

    def use(claimed: Job) -> int:
        with turn.aside():
            # It keeps its place, and the board is not kept for it.
            first, second = state.jobs.list()
            assert (first.id, first.state, second.id) == (job.id, "waiting", "later")
            (later,) = state.jobs.claim(["rk1"], "worker")
            state.jobs.renew(turn._worker)
            state.jobs.finish(later, 0)
            state.jobs.submit(NewJob("last", {}, ("rk1",)))
        now = state.jobs.find(job.id)
        attempts.extend((now.state, one.attempts) for one in (claimed, now))
        return 0

    assert turn.take(use, BoardBusy) == 0
    assert attempts == [("running", 1)] * 2
    assert (state.jobs.find("later").state, state.jobs.find(job.id).state) == ("done", "done")


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (HostError("no such host"), (3, "infra", "no such host")),
        (ConfigError("no such model"), (2, "config", "no such model")),
    ],
)
def test_a_run_whose_inputs_cannot_be_fetched_is_over(
    state: LabState, tmp_path: Path, error: LabctlError, end: tuple[int, str, str]
) -> None:
    job = NewJob("q8", {}, ("rk1",), runner="process")
    turn = Turn(state, tmp_path, job, lambda _: None, print, **OFTEN)

    def use(_claimed: Job) -> int:
        with turn.aside():
            raise error

    with pytest.raises(type(error), match="no such"):
        turn.take(use, BoardBusy)
    ended = state.jobs.find(job.id)
    assert ended.state == "done"
    assert (ended.exit_status, ended.blame, ended.reason) == end


def test_a_run_that_died_while_it_fetched_its_inputs_is_over(state: LabState) -> None:
    state.lease_seconds = 0.05
    state.jobs.submit(job := NewJob("q8", {}, ("rk1",), runner="process"))
    claimed = state.jobs.claim_own(job.id, ["rk1"], "here")
    assert claimed is not None
    state.jobs.step_aside(claimed, "its inputs are fetched")
    state.jobs.renew("here")
    assert state.jobs.find(job.id).state == "waiting"
    state.jobs.submit(NewJob("later", {}, ("rk1",)))
    assert wait_until(lambda: state.jobs.claim(["rk1"], "worker"), timeout=30, interval=0.05)
    assert wait_until(
        lambda: (state.jobs.free_lost(), state.jobs.find(job.id).state)[1] == "cancelled",
        timeout=30,
        interval=0.05,
    )


def test_a_run_that_is_cancelled_while_it_fetched_its_inputs_is_over(
    state: LabState, tmp_path: Path
) -> None:
    job = NewJob("q8", {}, ("rk1",), runner="process")
    turn = Turn(state, tmp_path, job, lambda _: None, print, **OFTEN)

    def use(_claimed: Job) -> int:
        with turn.aside():
            state.jobs.cancel(job.id, "wrong model")
            threading.Event().wait(10)  # it is interrupted, and fetches nothing more
        return 0

    with pytest.raises(KeyboardInterrupt):
        turn.take(use, BoardBusy)
    assert state.jobs.find(job.id).reason == "wrong model"


def test_a_run_that_somebody_cancels_ends_at_once(state: LabState, tmp_path: Path) -> None:
    job = NewJob("q8", {}, ("rk1",), runner="process")

    def use(_job: Job) -> int:
        state.jobs.cancel(job.id, "wrong model")
        threading.Event().wait(10)  # it is interrupted, and imports nothing then
        return 0

    with pytest.raises(KeyboardInterrupt):
        Turn(state, tmp_path, job, lambda _: None, print, **OFTEN).take(use, BoardBusy)
    ended = state.jobs.get(job.id)
    assert ended is not None
    assert (ended.state, ended.exit_status, ended.reason) == ("cancelled", 130, "wrong model")


def test_a_wait_for_a_board_that_refuses_is_over_once_somebody_cancels_it(
    state: LabState, tmp_path: Path
) -> None:
    job, tries = NewJob("q8", {}, ("rk1",), runner="process"), list[float]()

    def use(claimed: Job) -> int:
        tries.append(time.monotonic())
        raise BoardBusy(f"board {claimed.board} is in use")

    def note(_line: str) -> None:
        state.jobs.cancel(job.id, "wrong model")

    turn = Turn(state, tmp_path, job, print, note, look_seconds=0.01, again_seconds=20.0)
    with pytest.raises(LeaseLost, match="wrong model"):
        turn.take(use, BoardBusy)
    assert time.monotonic() - tries[-1] < 10


@pytest.mark.parametrize("untrusted", [True, False])
def test_a_board_that_nobody_looked_through_is_for_an_untrusted_recipe(
    state: LabState, tmp_path: Path, *, untrusted: bool
) -> None:
    evidence = {UNTRUSTED: NOT_LOOKED_THROUGH}
    state.health.set("rk1", Health.BAD, reason="killed", by="test", evidence=evidence)
    job = NewJob("q8", {}, ("rk1",), "untrusted" if untrusted else "run", runner="process")
    turn = Turn(state, tmp_path, job, lambda _: None, print)
    if untrusted:
        assert turn.take(lambda _board: 7, BoardBusy) == 7
    else:
        with pytest.raises(BoardOutOfService, match="killed"):
            turn.take(lambda _board: 7, BoardBusy)


_PRESSED_TWICE = """
    import signal, sys
    from pathlib import Path
    from labctl import interrupts
    from labctl.config.lab import Lab, LabFile
    from labctl.errors import BoardBusy
    from labctl.farm.turn import Turn
    from labctl.state.job import NewJob
    from labctl.state.state import lab_state

    def press(_job):
        signal.raise_signal(signal.SIGINT)
        try:
            interrupts.check()
        finally:
            signal.raise_signal(signal.SIGINT)

    interrupts.install()
    interrupts.begin()
    root = Path(sys.argv[1])
    state = lab_state(LabFile(root, Lab(boards={})))
    job = NewJob("q8", {}, ("rk1",), runner="process")
    try:
        Turn(state, root, job, print, print).take(press, BoardBusy)
    except KeyboardInterrupt:
        interrupts.finish()
        print("interrupted")
"""


def test_a_second_ctrl_c_leaves_no_job_before_the_next_run(state: LabState, tmp_path: Path) -> None:
    """A job left behind would keep the board from others for a minute."""
    script = textwrap.dedent(_PRESSED_TWICE)
    done = process.run([sys.executable, "-c", script, tmp_path], timeout=60)
    assert (done.stdout, done.stderr) == (b"interrupted\n", b"")
    (job,) = state.jobs.list(ended=1)
    assert (job.state, job.exit_status) == ("done", ExitStatus.INTERRUPTED)
