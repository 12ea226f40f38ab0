"""A lab host's worker, put together from the lab's files."""

from collections.abc import Callable, Sequence

from labctl.config.lab import LabFile
from labctl.errors import LabctlError
from labctl.farm.health import check_if_due
from labctl.farm.queue_engine import QueueEngine
from labctl.farm.queue_ledger import QueueLedger
from labctl.farm.run_executor import Connect, RunExecutor
from labctl.farm.store import lab_store
from labctl.farm.worker import HostWorker
from labctl.records.events import AnyEvent, Note
from labctl.results.gates import CompareGates
from labctl.runs import Observer
from labctl.state import lab_state


def host_worker(
    lab: LabFile,
    host: str,
    boards: Sequence[str],
    *,
    connect: Connect,
    compare: CompareGates,
    note: Callable[[str], None],
) -> HostWorker:
    """Return the worker of a lab host, and store what its last one could not.

    Raises ConfigError for a lab without a PostgreSQL, HostError, ToolMissing.
    """
    engine, state = QueueEngine(lab), lab_state(lab)
    ledger = QueueLedger(lab, state, lab_store(lab), note)
    ledger.share_missing()
    executor = RunExecutor(lab, ledger, connect, compare=compare)
    return HostWorker(
        engine,
        state,
        host,
        boards,
        executor,
        understands=ledger.understands,
        note=note,
        on_begin=ledger.took,
        on_run=ledger.share,
        stop_job=executor.stop_job,
        look_after=_look_after(lab, boards, connect, note),
    )


def _look_after(
    lab: LabFile, boards: Sequence[str], connect: Connect, note: Callable[[str], None]
) -> Callable[[str], None]:
    """Return what checks a board's health where that is due, in a lab that asks for checks."""
    hosted = [lab.board(name) for name in boards]

    def show(event: AnyEvent) -> None:
        if isinstance(event, Note):
            note(event.text)

    def look(board: str) -> None:
        try:
            check_if_due(lab, lab.board(board), connect, Observer(show), hosted=hosted)
        except LabctlError as error:  # it says nothing about the board: its jobs go on
            note(f"the health of {board} cannot be checked: {error.message}")

    return look if "health" in lab.lab.model_fields_set else lambda _board: None
