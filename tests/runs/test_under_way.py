"""The run that a process has on a board, whatever its kind, and how far it is."""

import os
from collections.abc import Sequence
from pathlib import Path

from evaluations_made import made_evaluation, write_evaluation
from load_tests_made import made_load_test
from records_made import recorded_run

from labctl.records.events import Answers, AnyEvent, Evaluation, Load
from labctl.records.serving import ServingRecord
from labctl.runs.record.directory import SERVING, RunDirectory
from labctl.runs.record.event_log import EVENTS
from labctl.runs.record.under_way import run_under_way

PID = os.getpid()


def on_board(made: RunDirectory, events: Sequence[AnyEvent]) -> str | None:
    """What is told of a run that this process drives on rk1, after these events."""
    lines = (f"{event.model_dump_json(by_alias=True)}\n" for event in events)
    (made.path / EVENTS).write_text("".join(lines))
    with made.held():
        assert run_under_way(made.path.parent, "rk2", PID) is None
        assert run_under_way(made.path.parent, "rk1", PID + 1) is None
        return run_under_way(made.path.parent, "rk1", PID)


def test_an_evaluation_tells_its_answers(tmp_path: Path) -> None:
    made = made_evaluation(
        tmp_path / "runs" / "20261122T093000Z-sums-abc123", right={"a/p": [1.0]}, budgets=(None,)
    )
    (endpoint,) = made.record.endpoints
    record = made.record.model_copy(
        update={"endpoints": (endpoint.model_copy(update={"board": "rk1"}),), "planned": 60}
    )
    write_evaluation(made)
    (made.path / "evaluation.json").write_text(record.model_dump_json())
    run = RunDirectory(made.path)
    begun = Evaluation(run=record.id, recipe="sums", planned=60, done=7)
    assert on_board(run, []) == f"{record.id}, 0 of 60 answers"
    assert on_board(run, [begun]) == f"{record.id}, 7 of 60 answers"
    asked = Answers(done=12, planned=60)
    assert on_board(run, [begun, asked]) == f"{record.id}, 12 of 60 answers"


def test_a_load_test_tells_its_load(tmp_path: Path) -> None:
    run = RunDirectory(made_load_test(tmp_path / "runs", "loads", [], None))
    record: ServingRecord = run.serving()
    endpoint = record.endpoint.model_copy(update={"board": "rk1"})
    text = record.model_copy(update={"endpoint": endpoint}).model_dump_json()
    (run.path / SERVING).write_text(text)
    assert on_board(run, []) == f"{record.id}, before the first load"
    loads = [Load(load=f"rate {rate}", done=1, elapsed_s=1.0) for rate in (1, 2)]
    assert on_board(run, loads) == f"{record.id}, load rate 2"


def test_a_run_tells_its_trial(tmp_path: Path) -> None:
    run = recorded_run(tmp_path / "runs", "20261121T223000Z-q2-abcdef")
    assert on_board(run, []) == "20261121T223000Z-q2-abcdef, trial 1 of 3"
