"""Rows of the probes of a lab's boards, made from their files."""

from pathlib import Path

from labctl.board.probe_files import all_probe_files, probe_moment
from labctl.index import ProbeRow
from labctl.index.rows import moment
from labctl.records import BoardProbe, read_record


def probe_files(lab_root: Path) -> dict[str, Path]:
    """Return ``BOARD/FILE`` -> path of all probes; a file is written once and never changed."""
    return {f"{path.parent.name}/{path.name}": path for path in all_probe_files(lab_root)}


def probe_row(path: Path) -> ProbeRow:
    """Return the row of a probe. One that cannot be read has the moment of its name, and why."""
    board, file = path.parent.name, f"{path.parent.name}/{path.name}"
    try:
        probe = read_record(BoardProbe, path.read_bytes(), path)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        return ProbeRow(file, board, moment(probe_moment(path)), damage=reason)
    facts = probe.facts
    return ProbeRow(
        file=file,
        board=board,
        taken=moment(probe.taken),
        execution=probe.execution,
        machine=facts.machine,
        kernel=facts.kernel,
        os_version=facts.os_version,
        agent_version=probe.agent_version,
        memory_bytes_per_second=probe.memory_bytes_per_second(),
        mapping_bytes_per_second=probe.storage_bytes_per_second(),
        sequential_bytes_per_second=probe.storage_bytes_per_second("sequential"),
        random_bytes_per_second=probe.storage_bytes_per_second("random"),
        slower="; ".join(one.what for one in probe.slower),
    )
