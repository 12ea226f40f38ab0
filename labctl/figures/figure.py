"""The declaration of a figure: its names and unit, its way from a record, and where it is used."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Literal, TypeVar

from labctl.stats.describe import geometric_mean, median
from labctl.units import shown

RecordT = TypeVar("RecordT")
#: ``mC``: thousandths of a degree Celsius. ``share``: of 1. ``number``: without a unit.
Unit = Literal["ns", "bytes", "1/s", "J", "W", "mC", "count", "share", "number"]
#: Units whose values are integers.
_WHOLE = ("ns", "bytes", "mC", "count")
#: Unit -> what the name of a gate ends with instead of the figure's end; its size in the unit.
_OF_GATES = {"ns": ("_ns", "_ms", 1e6)}


class Place(StrEnum):
    """Tables of a report that have a column for a figure."""

    RESULTS = "Experiment"
    PHASES = "Phases"
    INSIDE = "Single tokens inside a trial"
    ENERGY = "Energy"
    LOADS = "Loads"


@dataclass(frozen=True)
class Figure(Generic[RecordT]):
    """A figure of a record: of a trial, a load, an accuracy.

    Args:
        name: key in JSON and CSV.
        unit: unit of ``value``; it decides how the figure is rounded and shown.
        title: heading on a page; English, and the key of its translations.
        value: from a record to the value; None where it was not measured.
        over: from the values of all good records to that of their variant; None: it has none.
        place: the table that has a column for it, if any.
        short: heading in a terminal, instead of the title in small letters.
        part: what follows the title, the same in each language: ``p50``.
        tip: explanation of the heading; English, and the key of its translations.
        column: column of a single record in the index and in exports, instead of ``name``.
        may_gate: True if a recipe may bound it.
        gate: name in gates and of ``--figure``, instead of ``name`` in the unit of gates (ms for
            times).
        better: the better side, if there is one.
        is_compared: True if runs are compared by it: then it is above 0, and one side is better.
        has_loading: True if it depends on what was in memory before the start.
        needs_token_times: True if it needs tokens that were seen one by one.
        listed: whether lists of runs show the least and the greatest of the variants, and if only
            wide ones do.
        is_brief: False if it is left out of 80 columns, and comes last on a phone.
    """

    name: str
    unit: Unit
    title: str
    value: Callable[[RecordT], float | None]
    over: Callable[[Sequence[float]], float | None] | None = None
    place: Place | None = None
    short: str = ""
    part: str = ""
    tip: str = ""
    column: str = ""
    may_gate: bool = False
    gate: str = ""
    better: Literal["lower", "higher"] | None = None
    is_compared: bool = False
    has_loading: bool = False
    needs_token_times: bool = False
    listed: Literal["", "brief", "wide"] = ""
    is_brief: bool = True

    def __post_init__(self) -> None:
        end, instead, _ = _OF_GATES.get(self.unit, ("", "", 1))
        gate = self.gate or self.name.removesuffix(end) + instead
        object.__setattr__(self, "short", self.short or f"{small(self.title)} {self.part}".strip())
        object.__setattr__(self, "column", self.column or self.name)
        object.__setattr__(self, "gate", gate)

    @property
    def is_whole(self) -> bool:
        """True if its values are integers."""
        return self.unit in _WHOLE

    @property
    def more_is_faster(self) -> bool:
        """True if the greater value is the better one."""
        return self.better == "higher"

    @property
    def ends(self) -> tuple[str, str]:
        """Columns of a run for the least and the greatest of its variants."""
        stem, _, unit = self.name.rpartition("_")
        if unit not in ("ns", "bytes"):
            return f"{self.name}_low", f"{self.name}_high"
        return f"{stem}_low_{unit}", f"{stem}_high_{unit}"

    def of(self, record: RecordT) -> float | None:
        """Return the value of one record."""
        return self._rounded(self.value(record))

    def over_all(self, records: Iterable[RecordT]) -> float | None:
        """Return the value of a variant from its good records; None if none of them has one."""
        known = [value for one in records if (value := self.value(one)) is not None]
        return self._rounded(self.over(known)) if known and self.over else None

    def in_gates(self, value: float | None) -> float | None:
        """Return a value in the unit of gates: ms instead of ns."""
        return None if value is None else value / _OF_GATES.get(self.unit, ("", "", 1))[2]

    def ends_of(self, values: Iterable[float | None]) -> dict[str, float | None]:
        """Return the columns of a run from the values of its variants."""
        known = [value for value in values if value is not None]
        return dict(
            zip(self.ends, (min(known, default=None), max(known, default=None)), strict=True)
        )

    def text(self, value: float | None) -> str:
        """Return a value for people; ``-`` for None."""
        return "-" if value is None else shown(value, self.unit)

    def spread(self, found: Mapping[str, float | None]) -> str:
        """Return the least and the greatest of a run's columns, ``18.2-49.7 s``; empty: unknown."""
        low, high = (found.get(name) for name in self.ends)
        if low is None or high is None:
            return ""
        first, last = self.text(low), self.text(high)
        number, _, unit = first.partition(" ")
        if first == last:
            return first
        return f"{number if last.endswith(f' {unit}') else first}-{last}"

    def _rounded(self, value: float | None) -> float | None:
        return round(value) if value is not None and self.is_whole else value


def small(title: str) -> str:
    """Return a title as headings in a terminal have it: ``end to end``, ``TTFT``."""
    return title if title[1:2].isupper() else title[:1].lower() + title[1:]


def estimate(values: Sequence[float]) -> float | None:
    """Return the geometric mean; None if a value is not above 0."""
    return geometric_mean(values) if min(values) > 0 else None


def middle(values: Sequence[float]) -> float | None:
    """Return the median."""
    return median(values)


def greatest(values: Sequence[float]) -> float | None:
    """Return the greatest value."""
    return max(values)


def total(values: Sequence[float]) -> float | None:
    """Return the sum; None instead of 0."""
    return sum(values) or None
