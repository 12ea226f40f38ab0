"""One load test, from its recipe to its results."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from labctl.config.lab import Board, LabFile
from labctl.errors import ExitStatus, LabctlError
from labctl.evaluation.datasets.load import load_dataset
from labctl.evaluation.event_loop import run_async
from labctl.evaluation.serving.directory import LoadTestDirectory
from labctl.evaluation.serving.load_test import LoadTest
from labctl.evaluation.serving.recipe import LoadTestRecipe
from labctl.evaluation.serving.results import LoadTestResults, judge, results_of
from labctl.evaluation.serving.served import serving
from labctl.records.run import GateRecord, RunEnd
from labctl.records.trial import Failure
from labctl.runs.board.lab_lease import SERVE, BoardUse
from labctl.runs.observer import Observer, RunSession
from labctl.runs.record.directory import new_run_id
from labctl.runs.record.repository import note_in_index
from labctl.transport.base import Transport

#: Folder in a run directory for the output of a started server.
SERVER = "server"


@dataclass(frozen=True)
class LoadTestOutcome:
    """End of a load test; ``error``: reason for an early end."""

    directory: LoadTestDirectory
    results: LoadTestResults
    state: Literal["finished", "failed", "interrupted"]
    gates: tuple[GateRecord, ...] = ()
    error: LabctlError | None = None

    @property
    def exit_status(self) -> int:
        """1 if a gate is missed (also the gate of failures); 130 after an interrupt."""
        if self.state == "interrupted":
            return ExitStatus.INTERRUPTED
        if self.error is not None:
            return self.error.exit_status
        missed = any(gate.passed is False for gate in self.gates)
        return ExitStatus.JOB if missed else ExitStatus.OK


def run_load_test(
    recipe: LoadTestRecipe,
    lab: LabFile,
    observer: Observer,
    connect: Callable[[Board], Transport] | None = None,
    *,
    use: BoardUse = SERVE,
) -> LoadTestOutcome:
    """Load the server of a recipe; write the measurements to a new run directory.

    An interrupt ends it, and keeps the measurements so far. ``connect`` opens the link of a board
    if labctl starts the server there, and ``use`` says for whom. Raises, before the first load,
    ConfigError, TryAgain for a server that is out of reach, and the errors of starting one.
    """
    source = recipe.workload.dataset
    dataset = None if source is None else load_dataset(source, lab.root)
    directory = LoadTestDirectory(lab.root / "runs" / new_run_id(recipe.name))
    with RunSession(observer) as session, ExitStack() as stack:
        logs = directory.path / SERVER
        try:
            served = stack.enter_context(serving(recipe, lab, logs, observer, connect, use=use))
        except LabctlError as refused:
            directory.forget_if_refused(refused)
            raise
        test = LoadTest(
            recipe,
            lab,
            directory,
            dataset=dataset,
            served=served,
            observer=observer,
            session=session,
            job=use.job,
        )
        error: LabctlError | None = None
        state: Literal["finished", "failed", "interrupted"] = "finished"
        try:
            run_async(test.run())
        except KeyboardInterrupt:
            if not directory.is_planned:
                raise
            state = "interrupted"
        except LabctlError as failure:
            if not directory.is_planned:
                directory.forget_if_refused(failure)
                raise
            state, error = "failed", failure
        results = results_of(directory)
        gates = judge(results) if state == "finished" else ()
        why = None if error is None else Failure.of(error)
        directory.finish(RunEnd(state=state, failure=why, gates=gates, finished=datetime.now(UTC)))
        outcome = LoadTestOutcome(directory, results, state, gates, error)
        session.finished(outcome.exit_status, state, why)
    note_in_index(directory, observer.note)
    return outcome
