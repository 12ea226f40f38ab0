"""Folders of a lab's nights, ``nights/<UTC time>-<plan>-<id>/``, and results of past nights."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from labctl.errors import ConfigError
from labctl.farm.nightly.executor import GOOD, HEAD
from labctl.farm.nightly.state import JOURNAL, NightState, RowState
from labctl.files import write_atomic
from labctl.records import FileRecord, read_record
from labctl.records.night import NightRecord, NightResult, Stage

R = TypeVar("R", bound=FileRecord)

NIGHTS = "nights"
RECORD, RESULT = "night.json", "result.json"
#: Form of the time, in UTC, with which a night's id begins.
NIGHT_TIME = "%Y%m%dT%H%M%SZ"
#: A night that is dated further ahead (s) was begun with a wrong clock.
CLOCK_SECONDS = 3600.0
#: Older nights say little about a board today.
_RECENT = 30
#: Fewer degrees of freedom say too little about the noise.
_LEAST_DEGREES = 8


def nights_of(root: Path, plan: str, now: float | None = None) -> list[Path]:
    """Return the folders of a plan's nights, newest first.

    Nights dated after ``now``, in seconds since 1970, come last: a clock was wrong when they began,
    and nobody knows when that was.
    """
    now = time.time() if now is None else now
    found = (root / NIGHTS).glob(f"*-{plan}-*/{RECORD}")
    own = (path.parent for path in found if path.parent.name.split("-", 1)[1][:-7] == plan)
    return sorted(own, key=lambda one: (not _is_ahead(one, now), one.name), reverse=True)


def _is_ahead(folder: Path, now: float) -> bool:
    """Return True if the time in the name of a night's folder has not come yet."""
    latest = datetime.fromtimestamp(now + CLOCK_SECONDS, UTC)
    return folder.name.partition("-")[0] > f"{latest:{NIGHT_TIME}}"


def begin_night(root: Path, record: NightRecord) -> Path:
    """Make the folder of a night. Raises HostError."""
    folder = root / NIGHTS / record.id
    write_atomic(folder / RECORD, record.model_dump_json(indent=2) + "\n")
    return folder


def read_night(folder: Path) -> NightRecord:
    """Return the plan of a night. Raises ConfigError."""
    return _read(NightRecord, folder / RECORD)


def read_result(folder: Path) -> NightResult:
    """Return the findings of a finished night. Raises ConfigError."""
    return _read(NightResult, folder / RESULT)


def _read(kind: type[R], path: Path) -> R:
    try:
        return read_record(kind, path.read_bytes(), path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        hint = "the file is damaged; `labctl nightly PLAN --new` begins another night"
        raise ConfigError(f"{path} is not a file of a night", hint=hint) from error


def past_result(folder: Path) -> NightResult | None:
    """Return the findings of a past night; None where it has none, or their file is damaged."""
    try:
        return read_result(folder)
    except ConfigError:
        return None


def unfinished_night(root: Path, plan: str) -> tuple[Path, NightRecord] | None:
    """Return the last night of a plan if it was cut off; None: it came to its end.

    One that is dated ahead may be the last one too, with a clock that was wrong.
    """
    now, nights = time.time(), nights_of(root, plan)
    for folder in nights[:1]:
        if not (folder / RESULT).exists():
            return folder, read_night(folder)
    for folder in nights[1:]:
        if _is_ahead(folder, now) and not (folder / RESULT).exists():
            with suppress(ConfigError):  # damaged: nothing of it can be ended
                return folder, read_night(folder)
    return None


def past_findings(root: Path, plan: str) -> Sequence[Mapping[str, str]]:
    """Return the verdict of each row, of each night; the newest night first."""
    return [
        {one.row: str(one.verdict) for one in result.findings}
        for folder in nights_of(root, plan)[:_RECENT]
        if (result := past_result(folder)) is not None
    ]


def past_noise(root: Path, plan: str) -> dict[str, float]:
    """Return the noise of one run by row, from the pairs of past nights; none from few pairs.

    It is the pooled standard deviation of the logarithms of pairs, divided by the square root of 2.
    """
    squares: dict[str, float] = {}
    degrees: dict[str, int] = {}
    for folder in nights_of(root, plan)[:_RECENT]:
        if not (folder / JOURNAL).exists():
            continue
        try:
            states = NightState(folder, read_night(folder).rows).rows
        except ConfigError:
            continue  # damaged: nothing to read
        for name, state in states.items():
            for logs in _pairs(state):
                mean = fmean(logs)
                squares[name] = squares.get(name, 0.0) + sum((x - mean) ** 2 for x in logs)
                degrees[name] = degrees.get(name, 0) + len(logs) - 1
    return {
        name: math.sqrt(squares[name] / count / 2)
        for name, count in degrees.items()
        if count >= _LEAST_DEGREES
    }


def _pairs(state: RowState) -> Iterator[list[float]]:
    if state.board != state.row.board:
        return  # of another board
    for variant in state.row.variants:
        for stage in (Stage.SCREEN, Stage.CONFIRM):
            good, head = state.pairs(stage, variant, (GOOD, HEAD))
            if len(good) > 1:
                yield [math.log(b / a) for a, b in zip(good, head, strict=True)]
