"""The probes of a lab's boards, one file each: ``<lab>/boards/<name>/probe-<UTC>.json``."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from labctl.files import host_reads, write_atomic
from labctl.index.rows import ProbeRow, moment
from labctl.records.base import NewerRecord, read_record
from labctl.records.board import Execution
from labctl.records.probe import BoardProbe, Slowdown
from labctl.stats.describe import mad, median

FOLDER = "boards"
#: A rate that is lower by more than this share is reported as slower. Repeated probes of an idle
#: machine differ by a few per cent; some boards differ by more, as their own probes show.
LEAST_MARGIN, MOST_MARGIN = 0.15, 0.5
#: B. Iglewicz and D. Hoaglin (1993): more than 3.5 robust standard deviations from the median.
_DEVIATIONS = 3.5
#: Number of probes that count, and minimum number to compute their spread.
_KEPT_IN_MIND, _TELLING = 5, 3
#: The storage itself caches a larger file less: files of different sizes are not compared.
_LIKE_FILE = 2
_NAME = re.compile(r"probe-\d{8}T\d{6}\.\d{6}Z\.json")


def probe_folder(lab_root: Path, board: str) -> Path:
    """Return the folder of a board's probes; it need not exist."""
    return lab_root / FOLDER / board


def probe_path(lab_root: Path, probe: BoardProbe) -> Path:
    """Return the file of a probe; it need not exist."""
    taken = probe.taken.astimezone(UTC)
    return probe_folder(lab_root, probe.board) / f"probe-{taken:%Y%m%dT%H%M%S.%fZ}.json"


def save_probe(lab_root: Path, probe: BoardProbe) -> Path:
    """Store a probe durably; return its file. Raises HostError."""
    path = probe_path(lab_root, probe)
    write_atomic(path, probe.model_dump_json(indent=2) + "\n")
    return path


def latest_probe(
    lab_root: Path, board: str, execution: Execution | None = None
) -> BoardProbe | None:
    """Return the last probe of a board, taken in this execution (None: in any).

    For bounds of a real board use ``Execution.BOARD``: a virtual board may have had the same name.
    A file that cannot be read counts as absent. Raises NewerRecord for a newer labctl's file.
    """
    return next(_probes(lab_root, board, execution), None)


def last_probes(lab_root: Path, board: str, execution: Execution) -> list[BoardProbe]:
    """Return the last few probes of a board in an execution, newest first. Raises NewerRecord."""
    return list(islice(_probes(lab_root, board, execution), _KEPT_IN_MIND))


def all_probes(lab_root: Path, board: str, execution: Execution) -> list[BoardProbe]:
    """Return all probes of a board in an execution, newest first. Raises NewerRecord."""
    return list(_probes(lab_root, board, execution))


def compare_probes(now: BoardProbe, earlier: Sequence[BoardProbe]) -> BoardProbe:
    """Add to the new probe the rates that are slower than the median of ``earlier``, newest first.

    Only equal conditions are compared: the same agent, pattern, method, block, number of threads
    and model, with a file of similar size. A noisier rate must differ by more.
    """
    earlier = [probe for probe in earlier if probe.agent_version == now.agent_version]
    if not earlier:
        return now
    slower = []
    for what, rate in probe_rates(now).items():
        known = [
            rates[what] for probe in earlier if what in (rates := probe_rates(probe, like=now))
        ]
        if known and rate < median(known) * (1 - _margin(known)):
            slower.append(Slowdown(what=what, before=round(median(known)), now=rate))
    update = {"slower": tuple(slower), "compared_with": earlier[0].taken}
    return now.model_copy(update=update)


def _margin(known: Sequence[int]) -> float:
    if len(known) < _TELLING:
        return LEAST_MARGIN
    return min(MOST_MARGIN, max(LEAST_MARGIN, _DEVIATIONS * mad(known) / median(known)))


def _probes(lab_root: Path, board: str, execution: Execution | None) -> Iterator[BoardProbe]:
    """Return the probes of a board, newest first."""
    for path in _newest_first(probe_folder(lab_root, board)):
        try:
            probe = read_record(BoardProbe, path.read_bytes(), path)
        except (OSError, ValueError):
            continue
        if execution is None or probe.execution is execution:
            yield probe


def all_probe_files(lab_root: Path) -> list[Path]:
    """Return the files of all probes of all boards."""
    folder = lab_root / FOLDER
    with host_reads(folder):
        boards = sorted(folder.iterdir()) if folder.is_dir() else []
        return [path for board in boards for path in _newest_first(board)]


def probe_moment(path: Path) -> datetime:
    """Return the time of a probe from its file's name."""
    return datetime.strptime(path.name, "probe-%Y%m%dT%H%M%S.%fZ.json").replace(tzinfo=UTC)


def _newest_first(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted((p for p in folder.iterdir() if _NAME.fullmatch(p.name)), reverse=True)


def probe_rates(probe: BoardProbe, like: BoardProbe | None = None) -> dict[str, int]:
    """Return every rate by its description, in bytes per second.

    Storage rates are left out if their file size differs from the probe ``like``.
    """
    found = {
        f"memory read, {_threads(memory.threads)}": memory.bytes_per_second
        for memory in probe.memory
    }
    for rate in probe.storage if like is None or _same_file(probe, like) else ():
        if rate.uncached:
            what = f"storage read, {rate.pattern} ({rate.method}, {rate.block_bytes} bytes)"
            found[f"{what}, {_threads(rate.threads)}"] = rate.bytes_per_second
    for compute in probe.compute:
        what = f"{compute.quantization} weights of {compute.model_file}"
        if compute.bytes_per_second:
            found[f"decode, {what}, {_threads(compute.threads)}"] = compute.bytes_per_second
        if compute.prompt_bytes_per_second:
            found[f"prompt, {what}, {_threads(compute.threads)}"] = compute.prompt_bytes_per_second
    return found


def _same_file(one: BoardProbe, other: BoardProbe) -> bool:
    sizes = (one.storage_file_bytes, other.storage_file_bytes)
    if None in sizes:
        return True
    small, large = sorted(size or 0 for size in sizes)
    return large <= _LIKE_FILE * small


def _threads(count: int | None) -> str:
    if count is None:
        return "its own number of threads"
    return f"{count} thread" + ("s" if count > 1 else "")


def probe_files(lab_root: Path) -> dict[str, Path]:
    """Return ``BOARD/FILE`` -> path of all probes; a file is written once and never changed."""
    return {f"{path.parent.name}/{path.name}": path for path in all_probe_files(lab_root)}


def probe_row(path: Path) -> ProbeRow:
    """Return the row of a probe. If unreadable, the row has its file's time, and the reason."""
    board, file = path.parent.name, f"{path.parent.name}/{path.name}"
    try:
        probe = read_record(BoardProbe, path.read_bytes(), path)
    except (OSError, ValueError, NewerRecord) as error:
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
