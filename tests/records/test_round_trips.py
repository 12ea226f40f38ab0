"""What is written of a record is what is read: in files, in the index, in an export."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from any_record import TEXT, records
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from records_made import plan, planned_run, run

from labctl.index.entry import entry_of
from labctl.index.rows import in_columns
from labctl.records.base import FileRecord, read_record
from labctl.records.probe import BoardProbe
from labctl.records.run import Annotations, JournalEntry, Origin, PlanRecord, RunEnd, RunRecord
from labctl.records.trial import TrialRecord
from labctl.report.trial_export import trials_jsonl
from labctl.runs.record.repository import RunRepository

KINDS = (Annotations, BoardProbe, JournalEntry, Origin, PlanRecord, RunEnd, RunRecord, TrialRecord)
WORDS = TEXT.filter(lambda text: text.strip() and "\0" not in text)
#: Records are large: to make a failure smaller takes minutes.
FIND = (Phase.explicit, Phase.reuse, Phase.generate)
#: A trial that a run directory can hold: its slug is the name of a folder.
TRIALS = records(
    TrialRecord, number=st.integers(1, 999), slug=st.from_regex(r"[a-z0-9]{1,9}", fullmatch=True)
)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20, phases=FIND)
@given(data=st.data())
def test_a_record_read_is_the_record_written(kind: type[FileRecord], data: st.DataObject) -> None:
    record = data.draw(records(kind))
    for text in (record.model_dump_json(indent=2), record.model_dump_json()):
        assert read_record(kind, text.encode(), Path("x")) == record


@settings(max_examples=8, phases=FIND)
@given(st.lists(TRIALS, max_size=3, unique_by=lambda trial: trial.number))
def test_trials_come_back_from_their_folders_plain_and_compressed(
    trials: list[TrialRecord],
) -> None:
    with TemporaryDirectory() as folder:
        directory = planned_run(Path(folder), run(), plan())
        for trial in trials:
            directory.add(trial)
        expected = sorted(trials, key=lambda trial: trial.number)
        assert directory.trials() == expected
        lines = (directory.path / "records.jsonl").read_text().split("\n")[:-1] if trials else []
        assert [TrialRecord.model_validate_json(line) for line in lines] == trials
        if trials:
            directory.compress()
        assert directory.trials() == expected


@settings(max_examples=10, phases=FIND)
@given(TRIALS, st.lists(WORDS, max_size=2, unique=True))
def test_every_value_of_a_row_comes_back_from_the_index_and_from_json_lines(
    trial: TrialRecord, tags: list[str]
) -> None:
    assume("\\u0000" not in trial.model_dump_json())  # databases have none: the index replaces it
    record = run()
    annotations = Annotations(tags=tuple(tags))
    entry = entry_of(record.id, record, [trial], None, annotations=annotations, stamp="s")
    assume(entry.is_storable)
    with TemporaryDirectory() as folder:
        directory = planned_run(Path(folder), record, plan())
        directory.add(trial)
        (directory.path / "annotations.json").write_text(annotations.model_dump_json())
        (found,) = RunRepository(Path(folder)).trials()
    (expected,) = entry.trials
    assert found.trial == expected
    assert sorted(found.tags) == sorted(tags)
    written = json.loads(trials_jsonl([found]))
    for name, value in in_columns(expected).items():
        assert written[name] == value, name
