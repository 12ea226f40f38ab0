"""A lab host's worker, put together from the lab's files."""

from collections.abc import Callable, Sequence

from labctl.config.lab import LabFile
from labctl.farm.health import checks_before_jobs
from labctl.farm.queue_engine import QueueEngine
from labctl.farm.queue_ledger import QueueLedger
from labctl.farm.run_executor import Connect, RunExecutor
from labctl.farm.store import lab_store
from labctl.farm.worker import HostWorker
from labctl.results.gates import CompareGates
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
        look_after=checks_before_jobs(
            lab, connect, note, hosted=[lab.board(name) for name in boards]
        ),
    )
