"""``labctl boards probe``: measure what a board can do, and hold it against the last time."""

from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from labctl.board.measuring import FULL, QUICK, Measuring
from labctl.board.probes import compare_probes, latest_probe, save_probe
from labctl.config.lab import Board, LabFile
from labctl.errors import JobError, LabctlError
from labctl.records import BoardProbe, Execution
from labctl.runs.deploying import sending
from labctl.runs.observer import Observer
from labctl.runs.session import BoardSession, hold_board
from labctl.transport import Transport


def probe_board(
    lab: LabFile, board: Board, transport: Transport, observer: Observer, *, full: bool = False
) -> tuple[BoardProbe, Path]:
    """Probe a board under its lease; the probe and the file it is kept in.

    It is compared with the last one of the same execution. What the board refuses to have measured
    is a note of the probe. Raises what :func:`hold_board` raises, LinkError, LeaseLost, HostError.
    """
    with hold_board(board, transport, lab_root=lab.root, on_sent=sending(observer)) as session:
        probe = _measured(session, lab.name, observer, full=full)
    before = latest_probe(lab.root, board.name, probe.execution)
    if before is not None:
        probe = compare_probes(probe, before)
    return probe, save_probe(lab.root, probe)


def _measured(
    session: BoardSession, lab_name: str, observer: Observer, *, full: bool
) -> BoardProbe:
    effort = FULL if full else QUICK
    measuring = Measuring(
        session.transport,
        session.agent,
        session.board.workdir,
        epoch=session.take_lease(lab_name).epoch,
        lease_path=session.leases.path,
    )
    taken = datetime.now(UTC)
    before = measuring.facts()
    clocks, device = measuring.clocks_and_device()
    found: dict[str, object] = {}
    notes = []
    observer.step("measure memory", 0, None)
    try:
        memory = measuring.memory(effort)
        found |= {
            "memory": memory.results,
            "memory_instructions": memory.instructions,
            "memory_buffer_bytes": memory.buffer_bytes,
            "last_cache_bytes": memory.last_cache_bytes,
        }
    except JobError as error:
        notes.append(f"memory: {_told(error)}")
    observer.step("measure storage", 0, None)
    try:
        storage = measuring.storage(effort)
        found |= {"storage": storage.results, "storage_file_bytes": storage.file_bytes}
        if not storage.direct_accepted:
            notes.append("storage: this file system does not take O_DIRECT")
        if not any(rate.uncached for rate in storage.results):
            notes.append("storage: no read can be shown to come from storage: there is no bound")
    except JobError as error:
        notes.append(f"storage: {_told(error)}")
    if not clocks:
        notes.append("frequencies and governors: the board does not tell them")
    if not before.temps_mc:
        notes.append("temperatures: the board has no thermal zones")
    if session.facts.execution is not Execution.BOARD:
        notes.append(
            f"{session.facts.execution.upper()}: these are rates of the host, never bounds of a"
            " board"
        )
    return BoardProbe.model_validate(
        {
            "board": session.board.name,
            "taken": taken,
            "agent_version": before.agent_version,
            "labctl_version": version("labctl"),
            "facts": session.facts,
            "page_size_bytes": before.page_size_bytes,
            "clocks": clocks,
            "storage_device": device,
            "temperatures_before_mc": before.temps_mc,
            "temperatures_after_mc": measuring.facts().temps_mc,
            "notes": tuple(notes),
            **found,
        }
    )


def _told(error: LabctlError) -> str:
    return f"not measured: {error.message}"
