"""Files of schema version 1, as commit 84c8d72 wrote them, stay readable with every value."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from labctl.board.probes import last_probes
from labctl.records import Execution, JournalEntry, PlanRecord, RunEnd, RunRecord, TrialRecord
from labctl.report import print_experiment, print_timing_table
from labctl.results.summary import summarise
from labctl.runs.record.directory import find_run, list_runs

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


@pytest.mark.parametrize("file", FILES, ids=lambda path: str(path.relative_to(LAB / "runs")))
def test_every_value_of_an_old_file_is_read(file: Path) -> None:
    text = file.read_text()
    for part in text.splitlines() if file.suffix == ".jsonl" else [text]:
        record = MODELS[file.name].model_validate_json(part)
        assert contains(json.loads(record.model_dump_json(exclude_unset=True)), json.loads(part))


def test_old_probes_are_read() -> None:
    probes = last_probes(LAB, "demo", Execution.EMULATED)
    assert [probe.taken.isoformat() for probe in probes] == [
        "2026-11-22T01:45:15.761480+00:00",
        "2026-11-22T01:44:55.913802+00:00",
    ]
    files = sorted(LAB.glob("boards/demo/*.json"), reverse=True)
    for probe, file in zip(probes, files, strict=True):
        assert contains(json.loads(probe.model_dump_json()), json.loads(file.read_text()))


def test_a_lab_of_old_runs_is_listed(lab: Path) -> None:
    damaged: list[object] = []
    rows = list_runs(lab / "runs", on_damage=damaged.append)
    assert damaged == []
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
