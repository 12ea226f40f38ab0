"""The chain of migrations: pure functions from one version of a document to the next."""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest
from records_made import run, trial

from labctl import records
from labctl.errors import ConfigError
from labctl.records.base import SCHEMA_VERSION, STEPS, FileRecord, read_record, written_version
from labctl.records.run import RunRecord
from labctl.records.trial import TrialRecord

FILE = Path("record.json")


def test_every_kind_has_a_step_from_each_version_to_the_next() -> None:
    for module in iter_modules(records.__path__):  # a kind is known once it is imported
        import_module(f"labctl.records.{module.name}")
    assert set(STEPS) == {kind.__name__ for kind in FileRecord.__subclasses__()}
    assert {len(steps) for steps in STEPS.values()} == {SCHEMA_VERSION - 1}


def test_steps_leave_their_argument_as_it_is() -> None:
    old = {"conditions": {"threads": 4}, "surroundings": [{"name": "governor"}], "number": 1}
    before = {**old}
    (step,) = STEPS["TrialRecord"]
    new = {"comparability": {"threads": 4}, "conditions": [{"name": "governor"}], "number": 1}
    assert step(old) == new
    assert old == before


def test_what_is_written_today_is_read_back_without_a_step() -> None:
    made = trial(1, comparability={"threads": 4})
    text = made.model_dump_json().encode()
    assert read_record(TrialRecord, text, FILE) == made
    assert written_version(TrialRecord, text, FILE) == SCHEMA_VERSION


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", "{}", '{"schema_version": 0}', '{"schema_version": true}', "\xff"]
)
def test_what_is_no_record_is_no_record_of_an_old_version(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - pydantic's and our own
        read_record(RunRecord, text.encode("latin-1"), FILE)


def test_a_newer_version_is_named() -> None:
    text = run("x").model_dump_json().replace('"schema_version":2', '"schema_version":3')
    newer = "record.json was written by a newer labctl, schema_version 3; this one reads up to 2"
    with pytest.raises(ConfigError, match=newer):
        read_record(RunRecord, text.encode(), FILE)
