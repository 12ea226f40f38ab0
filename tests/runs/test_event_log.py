"""``events.jsonl``: complete where it must be, small, and readable whatever happened to it."""

import os
from pathlib import Path

import pytest
from small_disk import fill, small_disk

from labctl.errors import ConfigError, DeviceLost
from labctl.records.board import Execution
from labctl.records.events import AnyEvent, Contact, Deploy, End, Fetch, Loss, Note, Progress
from labctl.records.trial import Failure
from labctl.runs.record.event_log import EventLog, EventReader


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def refuse(reason: str) -> None:
    raise AssertionError(reason)


def events_in(path: Path) -> list[AnyEvent]:
    return list(EventReader(path).read())


def test_events_are_read_back_as_they_were_written(path: Path) -> None:
    written: list[AnyEvent] = [
        Note(text="a note"),
        Fetch(step="fetch q8", done=10, total=20, remaining_s=3.5),
        Progress(number=1, phase="generating", done=17, total=32, unit="tokens"),
        Loss(text="the link was lost"),
        End(state="finished", exit_status=0),
    ]
    with EventLog(path, refuse) as log:
        for event in written:
            log.write(event)
    assert events_in(path) == written


def test_progress_comes_at_most_once_a_second_and_all_else_at_once(path: Path) -> None:
    clock = Clock()
    with EventLog(path, refuse, clock=clock) as log:
        for tenth in range(100):
            clock.now = tenth / 10
            log.write(Progress(number=1, phase="generating", done=tenth))
            log.write(Loss(text=str(tenth)))
    found = events_in(path)
    assert [e.done for e in found if isinstance(e, Progress)] == list(range(0, 100, 10))
    assert [e.text for e in found if isinstance(e, Loss)] == [str(tenth) for tenth in range(100)]


def test_the_start_and_the_end_of_each_step_are_written(path: Path) -> None:
    with EventLog(path, refuse, clock=Clock()) as log:
        for name in ("agent", "model"):
            for done in range(5):
                log.write(Deploy(step=name, done=done, total=4))
    told = [(e.step, e.done) for e in events_in(path) if isinstance(e, Deploy)]
    assert told == [("agent", 0), ("agent", 1), ("agent", 4), ("model", 0), ("model", 4)]


def test_a_long_run_thins_progress_and_never_losses_notes_or_ends(path: Path) -> None:
    clock, most = Clock(), 60_000
    with EventLog(path, refuse, max_bytes=most, clock=clock) as log:
        for second in range(20_000):
            clock.now = second
            log.write(Progress(number=1, phase="generating", done=second, unit="tokens"))
            if second % 500 == 0:
                log.write(Note(text=str(second)))
                log.write(Loss(text=str(second)))
        log.write(End(state="finished", exit_status=0))
    assert path.stat().st_size <= most
    found = events_in(path)
    every = [str(second) for second in range(0, 20_000, 500)]
    assert [event.text for event in found if isinstance(event, Note)] == every
    assert [event.text for event in found if isinstance(event, Loss)] == every
    assert isinstance(found[-1], End)
    seconds = [event.done or 0 for event in found if isinstance(event, Progress)]
    assert seconds[:3] == [0, 1, 2]
    assert seconds[-1] > 5_000  # thinner and thinner, but not cut off at the first half


def test_what_is_never_left_out_is_written_also_beyond_the_limit(path: Path) -> None:
    with EventLog(path, refuse, max_bytes=1000, clock=Clock()) as log:
        for number in range(50):
            log.write(Note(text=str(number)))
        assert path.stat().st_size > 1000
        log.write(Progress(number=1, phase="generating"))
        log.write(Loss(text="the link was lost"))
        log.write(End(state="finished", exit_status=0))
    found = events_in(path)
    assert [event.event for event in found] == ["note"] * 50 + ["loss", "end"]


def test_a_torn_last_line_is_left_out_and_what_follows_is_read(path: Path) -> None:
    with EventLog(path, refuse) as log:
        log.write(Note(text="first"))
        log.write(Note(text="torn"))
    path.write_bytes(path.read_bytes()[:-9])
    reader = EventReader(path)
    assert [e.text for e in reader.read() if isinstance(e, Note)] == ["first"]
    with EventLog(path, refuse) as log:  # the run is resumed
        log.write(Note(text="second"))
    assert [e.text for e in reader.read() if isinstance(e, Note)] == ["second"]
    assert reader.damaged == 1


def test_a_reader_waits_for_the_end_of_a_line(path: Path) -> None:
    line = Note(text="whole").model_dump_json().encode() + b"\n"
    reader = EventReader(path)
    assert list(reader.read()) == []  # there is no file yet
    path.write_bytes(line[:20])
    assert list(reader.read()) == []
    path.write_bytes(line)
    assert len(list(reader.read())) == 1
    assert reader.damaged == 0


def test_events_of_a_newer_labctl_are_refused_by_name(path: Path) -> None:
    path.write_text('{"schema_version": 3, "event": "pause"}\n')
    with pytest.raises(ConfigError, match=r"newer labctl, schema_version 3; this one reads"):
        events_in(path)


def test_a_line_without_a_time_zone_is_damaged(path: Path) -> None:
    note = Note(text="whole")
    naive = note.model_copy(update={"utc": note.utc.replace(tzinfo=None)})
    path.write_text(f"{naive.model_dump_json()}\n{note.model_dump_json()}\n")
    reader = EventReader(path)
    assert list(reader.read()) == [note]
    assert reader.damaged == 1


def test_any_text_can_be_written(path: Path) -> None:
    name = os.fsdecode(b"\xff.gguf")
    with EventLog(path, refuse) as log:
        log.write(Note(text=f"{name}\x1b[31m\n" + "x" * 10_000))
    (note,) = events_in(path)
    assert isinstance(note, Note)
    assert note.text.startswith("?.gguf\x1b[31m\n")
    assert path.stat().st_size < 4096


def test_an_end_holds_any_failure_in_a_short_line(path: Path) -> None:
    name = os.fsdecode(b"\xff.gguf")
    why = DeviceLost(name, hint=name, details=f"{name} {'x' * 5_000_000}")
    failure = Failure.of(why).model_copy(update={"message": name})
    with EventLog(path, refuse) as log:
        log.write(Contact(run="r", recipe=name, board="b", target="t", execution=Execution.BOARD))
        log.write(End(state="failed", exit_status=3, failure=failure))
    contact, end = events_in(path)
    assert isinstance(contact, Contact)
    assert contact.recipe == "?.gguf"
    assert isinstance(end, End)
    assert end.failure
    assert end.failure.message == "?.gguf"
    assert (end.failure.details or "").startswith("?.gguf xxx")
    assert path.stat().st_size < 4096


def test_an_event_that_cannot_be_written_is_left_out_and_told(path: Path) -> None:
    reasons: list[str] = []
    with EventLog(path, reasons.append) as log:
        log.write(Note(text="").model_copy(update={"text": "\udcff"}))
        log.write(Note(text="the next"))
    assert [event.text for event in events_in(path) if isinstance(event, Note)] == ["the next"]
    (reason,) = reasons
    assert "a note event is left out" in reason


def test_a_full_disk_ends_events_and_nothing_else(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 256) as disk:
        path, reasons = disk / "events.jsonl", list[str]()
        with EventLog(path, reasons.append) as log:
            log.write(Note(text="before"))
            fill(disk)
            for number in range(200):
                log.write(Note(text=f"{number} " + "x" * 1000))
            (disk / "filling").unlink()
            log.write(Note(text="after"))
        assert len(reasons) == 1
        assert "no more events are written" in reasons[0]
        assert "No space left" in reasons[0]
        found = [event.text for event in events_in(path) if isinstance(event, Note)]
        assert found[0] == "before"
        assert "after" not in found
        assert path.read_bytes().endswith(b"\n")


def test_a_directory_that_is_not_there_ends_events_and_nothing_else(tmp_path: Path) -> None:
    reasons: list[str] = []
    with EventLog(tmp_path / "none" / "events.jsonl", reasons.append) as log:
        log.write(Note(text="a note"))
    assert "No such file or directory" in reasons[0]
