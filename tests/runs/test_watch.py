"""A run that another process drives, seen from its events alone."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from records_made import plan, run, trial
from small_disk import fill, small_disk

from labctl.cli.root import run_cli
from labctl.errors import BoardBusy, BoardNoSpace, ConfigError, DeviceLost, LabctlError
from labctl.records.board import Execution
from labctl.records.events import AnyEvent, Contact, End, Fetch, Note, Progress, Trial
from labctl.records.run import RunEnd
from labctl.records.trial import Failure, TrialState
from labctl.runs.observer import Observer, RunSession
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.event_log import EVENTS, EventLog, EventReader
from labctl.runs.record.lookup import find_run
from labctl.runs.record.repository import RunRepository
from labctl.runs.watch import Watch, find_watched

RUN = "20261120T223000Z-q2-abcdef"
CONTACT = Contact(run=RUN, recipe="q2", board="rk1", target="rk3568", execution=Execution.BOARD)
START = Trial(number=1, trials=2, slug="q2-r1", variant="q2", state="started")
HALF = Progress(
    number=1, phase="generating", elapsed_s=5, done=17, total=32, unit="tokens", per_second=3.2
)
GOOD = START.model_copy(update={"state": "ok", "token_ns": 9e6})

CONTROLLER = """
import sys
from pathlib import Path
from labctl.records.board import Execution
from labctl.records.events import Contact, Progress, Trial
from labctl.runs.observer import Observer
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.event_log import EventReader
from labctl.runs.observer import RunSession

directory = RunDirectory(Path(sys.argv[1]))
observer = Observer()
with RunSession(observer) as session:
    session.begin(directory)
    observer.tell(Trial(number=1, trials=2, slug="q2-r1", variant="q2", state="started"))
    observer.tell(Progress(number=1, phase="generating", elapsed_s=5, done=17, total=32,
                           unit="tokens"))
    print("under way", flush=True)
    sys.stdin.read()
"""


def new_run(lab: Path, run_id: str) -> RunDirectory:
    made = RunDirectory(lab / "runs" / run_id)
    made.begin()
    return made


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return new_run(tmp_path, RUN)


@contextmanager
def controller(directory: RunDirectory) -> Iterator[subprocess.Popen[str]]:
    """A process that drives the run and is in the middle of its first trial."""
    words = [sys.executable, "-c", CONTROLLER, str(directory.path)]
    with subprocess.Popen(words, stdin=-1, stdout=-1, text=True) as made:
        try:
            assert made.stdout is not None
            assert made.stdout.readline() == "under way\n"
            yield made
        finally:
            made.kill()


def watch(directory: RunDirectory) -> int:
    return run_cli(["watch", str(directory.path)])


def record(directory: RunDirectory, *events: AnyEvent, error: BaseException | None = None) -> None:
    """A run in which this was reported, with its end."""
    observer = Observer()
    with RunSession(observer) as session:
        session.begin(directory)
        for event in events:
            observer.tell(event)
        if error:
            raise error


def test_a_watcher_sees_each_event_until_the_end(directory: RunDirectory) -> None:
    observer, seen = Observer(), list[AnyEvent | None]()
    with RunSession(observer) as session:
        session.begin(directory)
        steps = iter((CONTACT, START, HALF, GOOD))

        def wait(_seconds: float) -> None:
            event = next(steps, None)
            if event is not None:
                observer.tell(event)
            else:
                session.__exit__(None, None, None)

        seen += Watch(directory, wait=wait).events()
    events = [event for event in seen if event is not None]
    assert events[:4] == [CONTACT, START, HALF, GOOD]
    assert isinstance(events[4], End)
    assert events[4].state == "finished"


def test_an_event_that_cannot_be_shown_is_kept(directory: RunDirectory) -> None:
    def broken(_event: AnyEvent) -> None:
        raise RuntimeError("the display broke")

    observer = Observer(broken)
    path = directory.path / EVENTS
    with (
        EventLog(path, pytest.fail) as log,
        observer.also(log.write),
        pytest.raises(RuntimeError),
    ):
        observer.note("a note")
    assert [type(event) for event in EventReader(path).read()] == [Note]


def test_a_watcher_that_comes_late_tells_what_was_before(
    directory: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory.start(run(RUN), plan())
    fetch = Fetch(step="fetch q2", done=9, total=9)
    record(directory, CONTACT, fetch, Note(text="a note"), START, HALF, GOOD)
    assert watch(directory) == 0
    told = capsys.readouterr().err
    assert "fetch q2: done" in told
    assert "a note" in told
    assert "trial 1/2 q2-r1: 9.00 ms per token" in told
    assert f"labctl report {RUN}" in told


def test_a_controller_that_was_killed_is_gone(
    directory: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory.start(run(RUN), plan())
    with controller(directory) as driving:
        watched = Watch(directory, wait=lambda _seconds: None)
        for event in watched.events():
            if event is None:  # nothing new: it lives, and waits
                driving.kill()
                driving.wait(60)
        assert driving.returncode == -9
        assert watched.end() is None
    assert watch(directory) == 3
    told = capsys.readouterr().err
    assert f"the controller of run {RUN} is gone since " in told
    assert "(trial 1/2 q2-r1: generating, 17/32 tokens)" in told
    assert f"labctl resume {RUN}" in told


def test_a_controller_that_was_killed_before_its_first_trial_left_nothing_to_resume(
    directory: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    with controller(directory) as driving:
        driving.kill()
        driving.wait(60)
    assert watch(directory) == 3
    assert "labctl run (no trial was started)" in capsys.readouterr().err


def test_a_full_disk_ends_the_events_of_a_run_and_not_the_run(tmp_path: Path) -> None:
    seen: list[AnyEvent] = []
    observer = Observer(seen.append)
    with small_disk(tmp_path / "runs", 256), RunSession(observer) as session:
        directory = new_run(tmp_path, RUN)
        session.begin(directory)
        observer.note("before")
        fill(directory.path)
        for number in range(200):
            observer.note(f"{number} " + "x" * 500)
        assert len(seen) == 203  # the directory, 201 notes, the end of the events
        (told,) = [e.text for e in seen if isinstance(e, Note) and "no more events" in e.text]
        assert "No space left" in told
        assert directory.is_held()


def test_looking_on_keeps_nobody_out_of_the_run(directory: RunDirectory) -> None:
    with controller(directory) as driving:
        assert directory.is_held()
        driving.kill()
        driving.wait(60)
        assert not directory.is_held()
        with directory.held():
            assert directory.is_held()


def test_a_torn_last_line_is_left_out_and_told(
    directory: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory.start(run(RUN), plan())
    record(directory, CONTACT, START, Note(text="the last whole line"))
    path = directory.path / "events.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rindex(b"{") + 20])  # the power was cut in the end's line
    assert watch(directory) == 3
    told = capsys.readouterr().err
    assert "the last whole line" in told
    assert "is gone" in told
    record(directory, Note(text="resumed"))
    assert watch(directory) == 0
    told = capsys.readouterr().err
    assert "resumed" in told
    assert "1 torn line" in told


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (DeviceLost("the link broke"), 3, "failed (infra): the link broke"),
        (ConfigError("a model changed"), 2, "failed (config): a model changed"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (RuntimeError("a bug"), 3, "failed (infra): bug in labctl: a bug"),
    ],
)
def test_a_watcher_ends_as_the_run_does(
    directory: RunDirectory,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    status: int,
    words: str,
) -> None:
    directory.start(run(RUN), plan())
    with pytest.raises(type(error)):
        record(directory, CONTACT, error=error)
    assert watch(directory) == status
    told = capsys.readouterr().err
    assert f"run {RUN} {words}" in told
    assert f"to continue: labctl resume {RUN}" in told


def test_events_that_a_full_disk_ended_leave_the_end_to_the_record(
    directory: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory.start(run(RUN), plan())
    record(directory, CONTACT, START)
    path = directory.path / "events.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    failed = trial(1, state=TrialState.FAILED)
    directory.add(failed)
    directory.finish(RunEnd(state="finished", finished=datetime.now(UTC)))
    assert watch(directory) == 1
    assert "is finished" in capsys.readouterr().err


def test_the_end_of_an_earlier_controller_is_not_that_of_a_later_one(
    directory: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory.start(run(RUN), plan())
    with pytest.raises(KeyboardInterrupt):
        record(directory, CONTACT, error=KeyboardInterrupt())
    directory.finish(RunEnd(state="interrupted", finished=datetime.now(UTC)))
    with EventLog(directory.path / EVENTS, pytest.fail) as log:  # and then it is killed
        log.write(Contact(**CONTACT.model_dump(exclude={"utc", "mono_ns"}) | {"resumed": 1}))
        log.write(Note(text="resumed"))
    assert watch(directory) == 3
    assert f"the controller of run {RUN} is gone" in capsys.readouterr().err


def test_the_later_of_two_ends_is_the_runs(
    directory: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory.start(run(RUN), plan())
    with pytest.raises(KeyboardInterrupt):
        record(directory, CONTACT, error=KeyboardInterrupt())
    failure = Failure.of(DeviceLost("the link broke"))
    directory.finish(RunEnd(state="failed", failure=failure, finished=datetime.now(UTC)))
    assert watch(directory) == 3
    assert "failed (infra): the link broke" in capsys.readouterr().err


def test_a_refused_run_leaves_nothing(directory: RunDirectory) -> None:
    with pytest.raises(ConfigError):
        record(directory, CONTACT, error=ConfigError("does not fit"))
    assert not directory.path.exists()


@pytest.mark.parametrize(
    ("error", "status", "blame"),
    [
        (ConfigError("does not fit"), 2, "config"),
        (BoardNoSpace("does not fit"), 3, "infra"),
        (BoardBusy("does not fit"), 3, "infra"),
    ],
)
def test_a_watcher_tells_why_a_run_was_refused(
    directory: RunDirectory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    error: LabctlError,
    status: int,
    blame: str,
) -> None:
    observer = Observer()
    with RunSession(observer) as session:
        session.begin(directory)

        def refuse(_seconds: float) -> None:
            session.__exit__(type(error), error, None)

        monkeypatch.setattr("labctl.cli.watch.Watch", partial(Watch, wait=refuse))
        assert watch(directory) == status
        assert not directory.path.exists()
        told = capsys.readouterr().err
        assert f"run {RUN} was refused ({blame}): does not fit\n" in told
        assert "to continue" not in told


def test_a_run_that_ended_before_its_first_trial_is_watched_but_not_listed(
    directory: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = directory.path.parent
    with pytest.raises(DeviceLost):
        record(directory, CONTACT, error=DeviceLost("lost"))
    assert RunRepository(runs).query() == []
    with pytest.raises(ConfigError, match="has no trial"):
        find_run(runs, RUN)
    assert watch(directory) == 3
    assert "to continue: labctl run" in capsys.readouterr().err


def test_the_run_that_is_driven_now_is_the_one_to_watch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "devices.yaml").write_text(
        "lab: x\nboards:\n  rk1: {target: rk3568, transport: {kind: hdc, link: tcp,"
        " address: '127.0.0.1:9'}}\n"
    )
    old, newer = new_run(tmp_path, RUN), new_run(tmp_path, RUN.replace("20T", "21T"))
    for one in (old, newer):
        record(one, Note(text=f"this is {one.path.name}"))
    observer = Observer()
    with RunSession(observer) as session:
        session.begin(old)
        assert find_watched(tmp_path / "runs", None).path == old.path
    assert run_cli(["--lab", str(tmp_path), "watch"]) == 0
    assert f"this is {newer.path.name}" in capsys.readouterr().err


def test_a_run_without_events_is_refused_with_the_reason(directory: RunDirectory) -> None:
    runs = directory.path.parent

    def told() -> str:
        with pytest.raises(ConfigError, match=r"has no events\.jsonl") as refused:
            find_watched(runs, RUN)
        return refused.value.hint or ""

    assert "it ended before the first one" in told()
    with directory.held():
        assert "it is just starting" in told()
    directory.start(run(RUN), plan())
    assert "`labctl report" in told()
    with directory.held():
        assert "it is just starting" not in told()
