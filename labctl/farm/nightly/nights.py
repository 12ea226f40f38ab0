"""Folders of a lab's nights, ``nights/<UTC time>-<plan>-<id>/``, and results of past nights."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TypeVar

from labctl.errors import ConfigError, HostError
from labctl.farm.nightly.executor import GOOD, HEAD
from labctl.farm.nightly.state import JOURNAL, NightState, RowState
from labctl.files import write_atomic
from labctl.records.base import FileRecord, read_record
from labctl.records.night import NightRecord, NightResult, NightVerdict, SamePrograms, Stage
from labctl.stats.log_ratio import paired
from labctl.stats.scatter import Scatter, pooled_scatter

R = TypeVar("R", bound=FileRecord)

NIGHTS = "nights"
RECORD, RESULT = "night.json", "result.json"
#: Format of the UTC time at the start of a night's id.
NIGHT_TIME = "%Y%m%dT%H%M%SZ"
#: A night dated further in the future (s) began with a wrong clock.
CLOCK_SECONDS = 3600.0
#: Number of nights to read: older nights say little about a board today.
_RECENT = 30
#: Number of nights for the noise of a row: older nights may be from before a repair.
_NOISE_NIGHTS = 10
#: Fewer degrees of freedom say too little about the noise.
_LEAST_DEGREES = 8


def night_lock(root: Path, plan: str) -> Path:
    """Return the file that the running night of a plan locks."""
    return root / NIGHTS / f".{plan}.lock"


def nights_of(root: Path, plan: str | None = None, now: float | None = None) -> list[Path]:
    """Return the folders of the nights of a plan, or of all plans, newest first.

    Nights dated after ``now`` (s since 1970) come last: they began with a wrong clock, at an
    unknown time.
    """
    now = time.time() if now is None else now
    found = (path.parent for path in (root / NIGHTS).glob(f"*-*-*/{RECORD}"))
    own = (one for one in found if plan in (None, one.name.split("-", 1)[1][:-7]))
    return sorted(own, key=lambda one: (not _is_ahead(one, now), one.name), reverse=True)


def _is_ahead(folder: Path, now: float) -> bool:
    """Return True if the time in the name of a night's folder is in the future."""
    latest = datetime.fromtimestamp(now + CLOCK_SECONDS, UTC)
    return folder.name.partition("-")[0] > f"{latest:{NIGHT_TIME}}"


def begin_night(root: Path, record: NightRecord) -> Path:
    """Create the folder of a night. Raises HostError."""
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
    """Return the findings of a past night; None if the file is missing or damaged."""
    try:
        return read_result(folder)
    except ConfigError:
        return None


def unfinished_night(root: Path, plan: str) -> tuple[Path, NightRecord] | None:
    """Return the last night of a plan if it was interrupted; None if it finished.

    A night dated in the future may also be the last one, begun with a wrong clock.
    """
    now, nights = time.time(), nights_of(root, plan)
    for folder in nights[:1]:
        if not (folder / RESULT).exists():
            return folder, read_night(folder)
    for folder in nights[1:]:
        if _is_ahead(folder, now) and not (folder / RESULT).exists():
            with suppress(ConfigError):  # damaged: it cannot be finished
                return folder, read_night(folder)
    return None


def past_findings(root: Path, plan: str) -> Sequence[Mapping[str, Sequence[NightVerdict]]]:
    """Return each night's verdicts on each row's variants, newest night first."""
    found = []
    for result in past_results(root, plan):
        verdicts: dict[str, list[NightVerdict]] = {}
        for one in result.findings:
            verdicts.setdefault(one.row, []).append(one.verdict)
        found.append(verdicts)
    return found


def past_results(root: Path, plan: str, before: str | None = None) -> list[NightResult]:
    """Return the results of the last nights (``before`` a night's id), newest first."""
    folders = [one for one in nights_of(root, plan) if before is None or one.name < before]
    return [found for one in folders[:_RECENT] if (found := past_result(one)) is not None]


@dataclass(frozen=True)
class PastRow:
    """Measurements of a row by the last nights, on its own board.

    ``noise`` is the scatter of one run's logarithm, from ten nights, with one outlier bounded.
    ``seconds`` is the time of a run since the end of the run before it in its pair. None: too few
    pairs.
    """

    noise: Scatter | None
    seconds: float | None


def past_rows(root: Path, plan: str) -> dict[str, PastRow]:
    """Return the measurements of the last nights, by row."""
    changes: dict[str, list[list[list[float]]]] = {}
    took: dict[str, list[float]] = {}
    for folder in nights_of(root, plan)[:_RECENT]:
        if not (folder / JOURNAL).exists():
            continue
        try:
            states = NightState(folder, read_night(folder).rows).rows
        except ConfigError:
            continue  # damaged: nothing to read
        for name, state in states.items():
            if state.board != state.row.board:
                continue  # measured on another board
            if found := list(_changes(state)):
                changes.setdefault(name, []).append(found)
            took.setdefault(name, []).extend(_between(state))
    return {
        name: PastRow(
            _noise([one for night in changes.get(name, [])[:_NOISE_NIGHTS] for one in night]),
            median(seconds) if seconds else None,
        )
        for name, seconds in took.items()
    }


def _noise(groups: Sequence[Sequence[float]]) -> Scatter | None:
    found = pooled_scatter(groups)
    if found is None or sum(len(one) - 1 for one in groups) < _LEAST_DEGREES:
        return None
    return Scatter(found.sigma / math.sqrt(2), found.degrees)


def _changes(state: RowState) -> Iterator[list[float]]:
    """Yield the log ratios of pairs, one group for each variant and stage."""
    for variant in state.row.variants:
        for stage in (Stage.SCREEN, Stage.CONFIRM, Stage.SAME):
            good, head = state.pairs(stage, variant)
            if len(good) > 1:
                yield [math.log(b / a) for a, b in zip(good, head, strict=True)]


def _between(state: RowState) -> Iterator[float]:
    """Yield for each pair the time (s) from the end of its first run to the end of its second."""
    for (stage, number, side), entry in state.done.items():
        other = state.done.get((stage, number, HEAD if side == GOOD else GOOD))
        if entry.turn == 2 and other is not None:
            yield max(0.0, entry.at - other.at)


def same_programs(root: Path, plan: str, find: float) -> SamePrograms | None:
    """Return the differences in pairs of equal programs in the last nights; None: too few pairs."""
    logs: list[float] = []
    nights = 0
    for folder in nights_of(root, plan)[:_RECENT]:
        try:
            rows = NightState(folder, read_night(folder).rows).rows.values()
        except (ConfigError, HostError):
            continue
        found = [
            math.log(b / a)
            for state in rows
            for variant in state.row.variants
            for a, b in zip(*state.pairs(Stage.SAME, variant), strict=True)
        ]
        logs += found
        nights += bool(found)
    if len(logs) < 2:
        return None
    ratio = paired([math.exp(one) for one in logs], [1.0] * len(logs))
    interval = ratio.interval(0.99)
    return SamePrograms(
        nights=nights,
        pairs=len(logs),
        beyond=sum(abs(one) >= math.log1p(find) for one in logs),
        ratio=ratio.ratio,
        low=interval.low,
        high=interval.high,
    )
