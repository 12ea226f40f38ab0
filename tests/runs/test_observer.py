"""What is reported into a run's directory."""

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from records_made import plan, planned_run, run

from labctl.errors import BoardBusy, ConfigError
from labctl.records.events import AnyEvent, End, Note
from labctl.records.run import RunEnd
from labctl.runs.observer import Observer, RunSession
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.event_log import EVENTS


def test_who_comes_after_the_end_of_a_run_writes_nothing_into_it(tmp_path: Path) -> None:
    directory, told = planned_run(tmp_path, run(), plan()), list[AnyEvent]()
    observer = Observer(told.append)
    with RunSession(observer) as session:
        session.begin(directory)
        assert [one.text for one in told if isinstance(one, Note)] == [
            f"run directory: {directory.path}"  # not an event: `labctl watch` names it itself
        ]
        directory.finish(RunEnd(state="finished", finished=datetime.now(UTC)))
    written = (directory.path / EVENTS).read_text()
    assert "run directory" not in written
    assert End.model_validate_json(written.splitlines()[-1]).state == "finished"

    with (
        pytest.raises(ConfigError, match="is finished; nothing to resume"),
        RunSession(observer) as session,
    ):
        session.begin(directory)
    assert (directory.path / EVENTS).read_text() == written
    assert not directory.is_held()


def test_an_error_names_the_run_that_it_broke_off(tmp_path: Path) -> None:
    planned, refused = planned_run(tmp_path, run(), plan()), RunDirectory(tmp_path / "other")
    refused.begin()
    untrusted = planned_run(tmp_path / "untrusted", run(untrusted_recipe=True), plan())
    runs = ((planned, planned.path.name), (refused, None), (untrusted, None))  # it begins anew
    for directory, expected in runs:
        error = BoardBusy("board b is reserved for ann")
        with suppress(BoardBusy), RunSession(Observer()) as session:
            session.begin(directory)
            raise error
        assert error.run == expected
