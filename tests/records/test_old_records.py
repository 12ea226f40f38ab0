"""Files of schema version 1, as commit 84c8d72 wrote them: readable with every value, unchanged."""

import hashlib
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from labctl.board.probe_files import last_probes
from labctl.cli.root import run_cli
from labctl.errors import ConfigError
from labctl.records.base import SCHEMA_VERSION, read_record
from labctl.records.board import Execution
from labctl.records.events import End
from labctl.records.run import JournalEntry, PlanRecord, RunEnd, RunRecord
from labctl.records.trial import TrialRecord
from labctl.report.tables import print_experiment, print_timing_table
from labctl.results.summary import summarise
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.event_log import EVENTS, EventLog
from labctl.runs.record.journal import Journal
from labctl.runs.record.lookup import find_run
from labctl.runs.record.repository import RunRepository

LAB = Path(__file__).parent.parent / "fixtures" / "records_v1"
FILES = sorted(path for path in LAB.glob("runs/**/*.json*"))
MODELS: dict[str, Any] = {
    "run.json": RunRecord,
    "plan.json": PlanRecord,
    "end.json": RunEnd,
    "record.json": TrialRecord,
    "records.jsonl": TrialRecord,
    "journal.jsonl": JournalEntry,
}


OLD = "20261122T013932Z-q8-q2-latency-16fc2f"
#: Old names of a trial's keys, and those that they have today.
RENAMED = {"conditions": "comparability", "surroundings": "conditions"}
DEVICES = """\
lab: old
boards:
  demo: {target: rk3568, transport: {kind: hdc, link: tcp, address: "127.0.0.1:9"}}
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    return Path(shutil.copytree(LAB, tmp_path / "lab"))


def contains(read: Any, written: Any) -> bool:
    """Every value of the file is in what was read; new fields may have come."""
    if isinstance(written, dict):
        return isinstance(read, dict) and all(
            key in read and contains(read[key], value) for key, value in written.items()
        )
    if isinstance(written, list):
        return len(read) == len(written) and all(map(contains, read, written))
    return bool(read == written)


def as_named_today(written: dict[str, Any], model: type) -> dict[str, Any]:
    written.pop("schema_version", None)
    if model is not TrialRecord:
        return written
    return {RENAMED.get(name, name): value for name, value in written.items()}


@pytest.mark.parametrize("file", FILES, ids=lambda path: str(path.relative_to(LAB / "runs")))
def test_every_value_of_an_old_file_is_read(file: Path) -> None:
    text = file.read_text()
    for part in text.splitlines() if file.suffix == ".jsonl" else [text]:
        record = read_record(MODELS[file.name], part.encode(), file)
        assert record.schema_version == SCHEMA_VERSION
        written = as_named_today(json.loads(part), MODELS[file.name])
        assert contains(json.loads(record.model_dump_json(exclude_unset=True)), written)


def test_old_probes_are_read() -> None:
    probes = last_probes(LAB, "demo", Execution.EMULATED)
    assert [probe.taken.isoformat() for probe in probes] == [
        "2026-11-22T01:45:15.761480+00:00",
        "2026-11-22T01:44:55.913802+00:00",
    ]
    files = sorted(LAB.glob("boards/demo/*.json"), reverse=True)
    for probe, file in zip(probes, files, strict=True):
        written = as_named_today(json.loads(file.read_text()), type(probe))
        assert contains(json.loads(probe.model_dump_json()), written)


def test_a_lab_of_old_runs_is_listed(lab: Path) -> None:
    rows = [one.run for one in RunRepository(lab / "runs").query()]
    assert not any(row.damage for row in rows)
    assert [(row.recipe, row.trials_ok, row.trials_failed) for row in rows] == [
        ("smollm2-perplexity", 1, 0),
        ("fails", 0, 1),
        ("q8-q2-latency", 0, 0),
        ("command-json-lines", 1, 0),
        ("smollm2-throughput", 1, 0),
        ("q8-q2-latency", 4, 0),
    ]


def test_the_tables_of_an_old_run_are_made_again(lab: Path) -> None:
    run = find_run(lab / "runs", "16fc2f")
    record, trials = run.run(), run.trials()
    rows = summarise(trials, record.variants)
    assert [(row.variant, row.trials_ok) for row in rows] == [("q8_0", 2), ("q2_k", 2)]
    printed = io.StringIO()
    console = Console(file=printed, width=200)
    print_timing_table(console, record, trials, ())
    print_experiment(console, record, trials)
    assert "EMULATED" in printed.getvalue()


def test_an_old_run_that_was_killed_tells_where_it_stood(lab: Path) -> None:
    run = find_run(lab / "runs", "540f13")
    assert run.end() is None
    assert run.trials() == []
    assert [trial.variant for trial in run.plan().trials] == ["q8_0", "q2_k"]


def hashes(lab: Path) -> dict[str, str]:
    """Of every file but the index, which is made again from the others."""
    files = (path for path in lab.rglob("*") if path.is_file() and path.name != "index.sqlite")
    return {str(f.relative_to(lab)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


@pytest.mark.parametrize("run", sorted(path.name for path in LAB.glob("runs/*")))
def test_reading_an_old_run_changes_none_of_its_files(
    lab: Path, run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (lab / "devices.yaml").write_text(DEVICES)
    with EventLog(lab / "runs" / run / EVENTS, print) as log:  # what `watch` reads
        log.write(End(state="finished", exit_status=0))
    before = hashes(lab)
    has_trials = bool(find_run(lab / "runs", run).records())
    for words in ([run], [run, "--form", "experiment"], [run, "--json"]):
        status = run_cli(["--lab", str(lab), "report", *words])
        assert status == 0 or not has_trials
    for words in (["runs"], ["runs", "--json"], ["show", run], ["export", run], ["watch", run]):
        assert run_cli(["--lab", str(lab), *words]) == 0
    for words in (["compare", run], ["compare", run, OLD]):  # refused where nothing is alike
        assert run_cli(["--lab", str(lab), *words]) in (0, 2)
    assert run_cli(["--lab", str(lab), "resume", run]) == 2
    assert "bug" not in capsys.readouterr().err
    assert hashes(lab) == before


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
    run = find_run(lab / "runs", OLD)
    read(run)
    file = run.path / name
    newer = re.sub(r'^{(\s*"schema_version": 1,)?', '{"schema_version": 3,', file.read_text())
    file.write_text(newer)
    told = f"{name} was written by a newer labctl, schema_version 3; this one reads up to 2"
    with pytest.raises(ConfigError, match=told):
        read(run)


def test_a_newer_trial_is_refused_by_name_and_not_left_out(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = lab / "runs" / OLD / "trials/002-q2_k-r1/record.json"
    file.write_text(file.read_text().replace('"schema_version": 1', '"schema_version": 3'))
    assert run_cli(["--lab", str(lab), "report", str(lab / "runs" / OLD)]) == 2
    said = capsys.readouterr()
    assert f"{file} was written by a newer labctl, schema_version 3" in said.err
    assert said.out == ""


def test_resuming_an_old_run_is_refused_with_the_reason(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (lab / "devices.yaml").write_text(DEVICES)
    assert run_cli(["--lab", str(lab), "resume", "540f13"]) == 2
    told = capsys.readouterr().err
    assert "labctl 0.1.0 began it with records of schema_version 1, this one writes 2" in told
    assert "`labctl report 20261122T014257Z-q8-q2-latency-540f13`" in told


def test_the_json_of_an_old_run_has_the_names_of_today(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["--lab", str(lab), "report", str(lab / "runs" / OLD), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["run"]["schema_version"] == SCHEMA_VERSION
    for trial in document["trials"]:
        assert trial["comparability"]["engine"] == "llama_cpp"
        assert trial["conditions"] == []
        assert "surroundings" not in trial
