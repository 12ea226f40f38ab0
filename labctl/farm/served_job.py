"""Runs of evaluations and load tests as jobs of a board on which their server starts."""

from collections.abc import Callable

from labctl.config.lab import Board, LabFile
from labctl.errors import Blame, ExitStatus
from labctl.evaluation.directory import EvaluationDirectory
from labctl.evaluation.recipe import EvaluationRecipe
from labctl.evaluation.run import (
    EvaluationRequest,
    resume_evaluation,
    run_evaluation,
    status_of,
)
from labctl.evaluation.serving.recipe import LoadTestRecipe
from labctl.evaluation.serving.run import run_load_test
from labctl.farm.job import JobResult
from labctl.records.evaluation import EvaluationEnd
from labctl.records.run import RunEnd
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.observer import Observer
from labctl.runs.record.directory import RunDirectory
from labctl.transport.base import Transport
from labctl.units import counted


def run_served(
    recipe: EvaluationRecipe | LoadTestRecipe,
    board: Board,
    lab: LabFile,
    connect: Callable[[Board], Transport],
    observer: Observer,
    *,
    use: BoardUse,
) -> JobResult:
    """Run a recipe with its server on a board.

    Raises the errors of both kinds of runs, and KeyboardInterrupt for an interrupted run. A load
    test that lost its server is not raised: the job has its run.
    """
    placed = recipe.on_board(board.name)
    if isinstance(placed, EvaluationRecipe):
        request = EvaluationRequest(placed, lab, connect, use)
        return _evaluated(run_evaluation(request, observer).directory)
    outcome = run_load_test(placed, lab, observer, connect, use=use)
    if outcome.error is not None:
        return JobResult.of(outcome.error, outcome.directory.path.name)
    if outcome.state == "interrupted":
        raise KeyboardInterrupt
    end = outcome.directory.end()
    return _ended(outcome.directory, end, outcome.exit_status)


def resume_served(
    run: RunDirectory,
    lab: LabFile,
    connect: Callable[[Board], Transport],
    observer: Observer,
    use: BoardUse,
) -> JobResult:
    """Resume an evaluation. Raises as :func:`resume_evaluation` does."""
    return _evaluated(resume_evaluation(run, lab, connect, observer, use).directory)


def is_on(run: RunDirectory, board: Board) -> bool:
    """Return True for an evaluation whose servers ran on this board: it can be resumed there."""
    return run.is_evaluation and board.name in {one.board for one in run.evaluation().endpoints}


def finished(run: RunDirectory) -> JobResult | None:
    """Return the end of a finished evaluation or load test; None if it is not finished."""
    end = _end(run)
    if end is None or end.state != "finished":
        return None
    if isinstance(end, EvaluationEnd):
        return _ended(run, end, status_of(end))
    return _ended(run, end, ExitStatus.JOB if _missed(end) else ExitStatus.OK)


def unjudged(run: RunDirectory) -> str | None:
    """Return why the first of a run's gates that stayed open was not judged; None: none did."""
    gates = end.gates if (end := _end(run)) else ()
    return next((f"{one.metric} {one.detail}" for one in gates if one.passed is None), None)


def execution_of(run: RunDirectory) -> str:
    """Return the kind of machine that a server on a board was on; empty if unknown."""
    endpoints = run.evaluation().endpoints if run.is_evaluation else (run.serving().endpoint,)
    return next((str(one.execution) for one in endpoints if one.board and one.execution), "")


def _end(run: RunDirectory) -> RunEnd | None:
    return EvaluationDirectory(run).end() if run.is_evaluation else run.end()


def _evaluated(directory: EvaluationDirectory) -> JobResult:
    end = directory.end()
    return _ended(directory.run, end, ExitStatus.JOB if end is None else status_of(end))


def _ended(run: RunDirectory, end: RunEnd | None, status: int) -> JobResult:
    if end is not None and end.failure is not None:
        return JobResult(status, run.path.name, end.failure.blame, end.failure.message)
    missed = _missed(end)
    reason = f"{counted(missed, 'gate')} missed" if missed else "some requests have no answer"
    if status == ExitStatus.OK:
        return JobResult(status, run.path.name)
    return JobResult(status, run.path.name, Blame.JOB, reason)


def _missed(end: RunEnd | None) -> int:
    return 0 if end is None else sum(gate.passed is False for gate in end.gates)
