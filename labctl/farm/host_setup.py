"""A lab host's worker, put together from the lab's files."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from labctl.build.artifact import builds_stamp
from labctl.build.plan import BuildRequest
from labctl.config.lab import LabFile
from labctl.config.target import load_target
from labctl.deploy.plan import agent_artifact
from labctl.errors import ConfigError, LabctlError, lack_of_host
from labctl.farm.health.checking import require_health
from labctl.farm.queue_engine import QueueEngine
from labctl.farm.queue_ledger import QueueLedger
from labctl.farm.reach import host_reach
from labctl.farm.run_executor import Connect, RunExecutor
from labctl.farm.store import lab_store
from labctl.farm.worker import Worker
from labctl.models.quantizer import find_quantizer
from labctl.results.gates import CompareGates
from labctl.state.state import lab_state


def host_worker(
    lab: LabFile,
    host: str,
    boards: Sequence[str],
    *,
    connect: Connect,
    compare: CompareGates,
    note: Callable[[str], None],
    group: str | None = None,
    is_over: Callable[[], bool] = lambda: False,
    build: Callable[[BuildRequest], object] | None = None,
) -> Worker:
    """Return the worker of a lab host, and upload runs that its last worker could not.

    With a ``group`` it runs only the group's jobs, until it ``is_over``. ``build`` makes agents
    that are missing here; None: make no agent. Raises HostError, ToolMissing.
    """
    state, hosted = lab_state(lab), [lab.board(name) for name in boards]
    ledger = QueueLedger(lab, state, lab_store(lab), note)
    ledger.share_missing()
    ready = require_health(lab, connect, note, hosted=hosted)
    executor = RunExecutor(lab, ledger, connect, compare=compare, before_job=ready, build=build)
    return Worker(
        state,
        host,
        boards,
        executor,
        None if lab.database is None or group is not None else QueueEngine(lab),
        understands=ledger.understands,
        lacks=ledger.lacks,
        inputs=ledger.inputs,
        prepare=ledger.prepare,
        builds=builds_stamp,
        note=note,
        log=note if group is None else lambda _line: None,
        group=group,
        is_over=is_over,
        on_begin=ledger.took,
        on_run=ledger.share,
        stop_job=executor.stop_job,
        reaches=host_reach(lab, boards, connect).reaches,
    )


def missing_tools(lab: LabFile, boards: Sequence[str]) -> Iterator[str]:
    """Yield each thing that jobs on these boards lack on this host, with the remedy.

    The agent is found by the boards' targets; no board is contacted. An unreadable target does not
    affect jobs on boards of other targets.
    """
    for name in dict.fromkeys(lab.board(board).target for board in boards):
        try:
            target = load_target(name, lab.root)
        except ConfigError as error:
            yield f"{error.message}; jobs on boards of target {name} fail"
            continue
        for find in (
            partial(agent_artifact, target.machine, target, lab.root),
            partial(find_quantizer, name, lab.root),
        ):
            try:
                find()
            except LabctlError as error:
                lack = lack_of_host(error)
                if lack is None:
                    raise
                yield f"{lack}; jobs that need it wait until then, or for another host"
