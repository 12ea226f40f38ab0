"""The probes of a lab's boards: ``<lab>/boards/<name>/probe-<UTC>.json``, one file each."""

import re
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path

from pydantic import ValidationError

from labctl.files import write_atomic
from labctl.records import BoardProbe, Execution, Slowdown

FOLDER = "boards"
#: A rate lower than this share of the one before is called slower. Repeated probes of an idle
#: machine differ by a few per cent.
SLOWER_BELOW = 0.85
_NAME = re.compile(r"probe-\d{8}T\d{6}\.\d{6}Z\.json")


def probe_folder(lab_root: Path, board: str) -> Path:
    """Where the probes of a board lie; it need not exist."""
    return lab_root / FOLDER / board


def save_probe(lab_root: Path, probe: BoardProbe) -> Path:
    """Keep a probe for good; its file. Raises HostError."""
    taken = probe.taken.astimezone(UTC)
    path = probe_folder(lab_root, probe.board) / f"probe-{taken:%Y%m%dT%H%M%S.%fZ}.json"
    write_atomic(path, probe.model_dump_json(indent=2) + "\n")
    return path


def latest_probe(
    lab_root: Path, board: str, execution: Execution | None = None
) -> BoardProbe | None:
    """The last probe of a board, taken in this execution (None: in any).

    Whoever bounds a real board asks for ``Execution.BOARD``: a virtual one may have had its name.
    A file that cannot be read, or is of another schema, counts as absent.
    """
    for path in _newest_first(probe_folder(lab_root, board)):
        try:
            probe = BoardProbe.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            continue
        if execution is None or probe.execution is execution:
            return probe
    return None


def compare_probes(now: BoardProbe, before: BoardProbe) -> BoardProbe:
    """The new probe with what got slower than ``SLOWER_BELOW`` of what was measured before.

    Only like is compared with like: the same pattern, method, block and number of threads.
    """
    earlier = dict(_rates(before))
    slower = tuple(
        Slowdown(what=what, before=earlier[what], now=rate)
        for what, rate in _rates(now)
        if what in earlier and rate < earlier[what] * SLOWER_BELOW
    )
    return now.model_copy(update={"slower": slower, "compared_with": before.taken})


def _newest_first(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted((p for p in folder.iterdir() if _NAME.fullmatch(p.name)), reverse=True)


def _rates(probe: BoardProbe) -> Iterator[tuple[str, int]]:
    for memory in probe.memory:
        yield f"memory read, {_threads(memory.threads)}", memory.bytes_per_second
    for rate in probe.storage:
        if rate.uncached:
            what = f"storage read, {rate.pattern} ({rate.method}, {rate.block_bytes} bytes)"
            yield f"{what}, {_threads(rate.threads)}", rate.bytes_per_second


def _threads(count: int) -> str:
    return f"{count} thread" + ("s" if count > 1 else "")
