"""``labctl boards probe``: measure a board's speed, and compare it with earlier probes."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from labctl.board.measuring import FULL, QUICK, AgentFacts, Measuring, MemoryBench
from labctl.board.probe_files import compare_probes, last_probes, save_probe
from labctl.config.lab import Board, LabFile
from labctl.distribution import labctl_version
from labctl.errors import ConfigError, JobError, LabctlError
from labctl.performance.prediction import NEAR, memory_clock_doubt, rates_of
from labctl.records.board import Execution
from labctl.records.probe import BoardProbe
from labctl.records.telemetry import named_zones
from labctl.results.telemetry import LOUD
from labctl.runs.board.compute_benchmark import benchmark_files, compute_rate
from labctl.runs.board.deploy_preview import take_and_send
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.board.opening import ReadyBoard, WayToBoard
from labctl.runs.board.state_changes import BoardChanges
from labctl.runs.observer import Observer
from labctl.transport.base import Transport
from labctl.units import size

#: A buffer smaller than this multiple of the caches is partly read from the caches.
_CACHES = 4
PROBE = BoardUse("probe", kind="probe")


def probe_board(
    lab: LabFile,
    board: Board,
    connect: Callable[[], Transport],
    observer: Observer,
    *,
    full: bool = False,
    models: Sequence[Path] = (),
    use: BoardUse = PROBE,
) -> tuple[BoardProbe, Path]:
    """Probe a board under its lease; return the probe and its file.

    ``models`` are small GGUF files of this host: each runs once, for the rate of the board's
    arithmetic with its quantization. The probe is compared with the last probes of the same
    execution. A measurement that the board refuses becomes a note. Raises ConfigError (a model or
    its program is missing, an earlier probe is of a newer labctl), what :class:`WayToBoard` raises,
    LinkError, LeaseLost, HostError.
    """
    files = [benchmark_files(path, board, lab) for path in models]
    with WayToBoard(board, files, connect, observer, lab, use) as way:
        ready = way.prepare(way.look())
        # Before measuring for minutes: a probe of a newer labctl is refused.
        earlier = last_probes(lab.root, board.name, ready.held.facts.execution)
        probe = _measured(ready, observer, full=full)
    probe = compare_probes(probe, earlier)
    return probe, save_probe(lab.root, probe)


def _measured(ready: ReadyBoard, observer: Observer, *, full: bool) -> BoardProbe:
    held = ready.held
    effort = FULL if full else QUICK
    _, paths = take_and_send(held, ready.missing, observer)
    measuring = Measuring(
        held.transport,
        held.agent,
        held.board.workdir,
        epoch=held.claim.epoch,
        lease_path=held.claim.leases.path,
        check_lease=held.claim.check,
    )
    notes: list[str] = []
    held_down: list[float | None] = []
    # A killed run may have left a fixed frequency.
    if left := BoardChanges(held.fence).restore():
        notes.append(f"cannot restore the settings that a run changed: {left}")
    taken = datetime.now(UTC)
    before = measuring.facts()
    clocks, device = measuring.clocks_and_device()
    found: dict[str, object] = {}
    observer.measuring("measure memory")
    try:
        memory = measuring.memory(effort)
        held_down.append(memory.held_down_share)
        found |= {
            "memory": memory.results,
            "memory_instructions": memory.instructions,
            "memory_buffer_bytes": memory.buffer_bytes,
            "memory_others_share": memory.others_share,
            "last_cache_bytes": memory.last_cache_bytes,
        }
        notes += _cache_notes(memory)
    except JobError as error:
        notes.append(f"memory: {_not_measured(error)}")
    observer.measuring("measure storage")
    try:
        storage = measuring.storage(effort)
        held_down.append(storage.held_down_share)
        found |= {
            "storage": storage.results,
            "storage_file_bytes": storage.file_bytes,
            "storage_others_share": storage.others_share,
        }
        if not storage.direct_accepted:
            notes.append("storage: this file system does not take O_DIRECT")
        if not any(rate.uncached and rate.pattern != "random" for rate in storage.results):
            notes.append("storage: no read provably came from storage: no bound")
    except JobError as error:
        notes.append(f"storage: {_not_measured(error)}")
    rates = []
    for prepared in ready.prepared:
        (model,) = prepared.models.values()
        observer.measuring(f"measure arithmetic, {model.path.name}")
        try:
            rates.append(compute_rate(held, prepared, measuring, paths))
        except (ConfigError, JobError) as error:
            notes.append(f"arithmetic, {model.path.name}: {_not_measured(error)}")
    found["compute"] = tuple(rates)
    if not ready.prepared:
        notes.append("arithmetic: no model was named (--model)")
    if not clocks:
        notes.append("frequencies and governors: the board does not report them")
    notes += _heat_notes(before)
    if held.facts.execution is not Execution.BOARD:
        notes.append(
            f"{held.facts.execution.upper()}: these are rates of the host, never bounds of a board"
        )
    probe = BoardProbe.model_validate(
        {
            "board": held.board.name,
            "taken": taken,
            "agent_version": before.agent_version,
            "labctl_version": labctl_version(),
            "facts": held.facts,
            "page_size_bytes": before.page_size_bytes,
            "clocks": clocks,
            "storage_device": device,
            "temperatures_before_mc": before.temps_mc,
            "held_down_share": max((s for s in held_down if s is not None), default=None),
            "temperatures_after_mc": measuring.facts().temps_mc,
            **found,
        }
    )
    if doubt := memory_clock_doubt(held.facts, rates_of([probe], held.target.expectations)):
        notes.append(doubt)
    return probe.model_copy(update={"notes": (*notes, *_disturbed(probe), *_unbounded(probe))})


def _disturbed(probe: BoardProbe) -> Iterator[str]:
    """Yield the measurements during which the board did something else."""
    shares = {"memory": probe.memory_others_share, "storage": probe.storage_others_share}
    shares |= {f"arithmetic, {rate.model_file}": rate.others_share for rate in probe.compute}
    for what, others in shares.items():
        if others is not None and others > LOUD:
            load = f"everything else used {others:.0%} of a CPU meanwhile"
            yield f"{what}: {load}: rates may be far too low"


def _unbounded(probe: BoardProbe) -> Iterator[str]:
    """Yield models whose rate is not a bound."""
    for rate in probe.compute:
        dram = probe.memory_bytes_per_second(rate.threads)
        if dram and rate.bytes_per_second and rate.bytes_per_second >= NEAR * dram:
            yield (
                f"arithmetic, {rate.model_file}: decodes nearly as fast as memory is read, which"
                " does not show the compute rate"
            )


def _heat_notes(facts: AgentFacts) -> Iterator[str]:
    """Yield notes on unknown temperatures of the board."""
    if facts.temps_untrusted:
        yield f"temperatures: not trusted: {named_zones(facts.temps_untrusted)}"
    elif not facts.temps_mc:
        yield "temperatures: the board has no thermal zones"


def _cache_notes(memory: MemoryBench) -> Iterator[str]:
    """Yield notes on rates that a cache may have caused."""
    cache, buffer = memory.last_cache_bytes, memory.buffer_bytes
    if cache is None:
        yield f"memory: the board does not report its caches; the buffer was {size(buffer)}"
    elif buffer < _CACHES * cache:
        yield (
            f"memory: the buffer of {size(buffer)} is less than {_CACHES} times the cache of"
            f" {size(cache)}: rates may be too high"
        )


def _not_measured(error: LabctlError) -> str:
    return f"not measured: {error.message}"
