"""Versions of records: this labctl's are read, a newer one's are refused by name."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError
from records_made import run, trial

from labctl.cli.root import run_cli
from labctl.errors import ConfigError
from labctl.records.base import Record, read_record
from labctl.records.run import RunRecord
from labctl.records.trial import JobStatus, TrialRecord
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.journal import Journal
from labctl.runs.record.lookup import find_run

FILE = Path("record.json")
LAB = Path(__file__).parent.parent / "fixtures" / "recorded_lab"
RUN = "20261122T013932Z-q8-q2-latency-16fc2f"


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    return Path(shutil.copytree(LAB, tmp_path / "lab"))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", "{}", '{"schema_version": 0}', '{"schema_version": true}', "\xff"]
)
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - pydantic's and our own
        read_record(RunRecord, text.encode("latin-1"), FILE)


def test_a_field_that_only_another_labctl_knows_is_left_out() -> None:
    """Also of a part of the record."""
    made = trial(1)
    document = json.loads(made.model_dump_json())
    document["colour"] = document["model"]["colour"] = "red"
    assert read_record(TrialRecord, json.dumps(document).encode(), FILE) == made


@pytest.mark.parametrize("kind", [TrialRecord, JobStatus])
def test_nobody_makes_a_record_with_an_unknown_field(kind: type[Record]) -> None:
    with pytest.raises(ValidationError, match=r"colour\n  Extra inputs are not permitted"):
        kind(colour="red")


def test_a_newer_version_is_named() -> None:
    text = run("x").model_dump_json().replace('"schema_version":1', '"schema_version":3')
    newer = "record.json was written by a newer labctl, schema_version 3; this one reads 1"
    with pytest.raises(ConfigError, match=newer) as refused:
        read_record(RunRecord, text.encode(), FILE)
    assert refused.value.hint == "update labctl on this host"


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("run.json", RunDirectory.run),
        ("end.json", RunDirectory.end),
        ("plan.json", RunDirectory.plan),
        ("trials/002-q2_k-r1/record.json", RunDirectory.trials),
        ("journal.jsonl", lambda run: Journal(run.path, run.path.name).leases),
    ],
)
def test_a_file_of_a_newer_labctl_is_refused_by_name(
    lab: Path, name: str, read: Callable[[RunDirectory], object]
) -> None:
    run = find_run(lab / "runs", RUN)
    read(run)
    file = run.path / name
    file.write_text(re.sub(r'"schema_version": ?1,', '"schema_version": 3,', file.read_text()))
    told = f"{name} was written by a newer labctl, schema_version 3; this one reads 1"
    with pytest.raises(ConfigError, match=told):
        read(run)


def test_a_newer_trial_is_refused_by_name_and_not_left_out(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = lab / "runs" / RUN / "trials/002-q2_k-r1/record.json"
    file.write_text(re.sub(r'"schema_version": ?1', '"schema_version": 3', file.read_text()))
    assert run_cli(["--lab", str(lab), "report", str(lab / "runs" / RUN)]) == 2
    said = capsys.readouterr()
    assert f"{file} was written by a newer labctl, schema_version 3" in said.err
    assert said.out == ""
