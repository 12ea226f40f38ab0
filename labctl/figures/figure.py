"""The declaration of a figure: names, unit, how to read it from a record, and where it is used."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Literal, TypeVar

from labctl.stats.describe import geometric_mean, median
from labctl.units import shown

RecordT = TypeVar("RecordT")
#: ``mC``: thousandths of a degree Celsius. ``share``: fraction of 1. ``number``: without a unit.
Unit = Literal["ns", "bytes", "1/s", "J", "W", "mC", "count", "share", "number"]
#: Units whose values are integers.
_WHOLE = ("ns", "bytes", "mC", "count")
#: Unit -> end of a figure's name, its replacement in the name of a gate, size of the gate's unit.
_OF_GATES = {"ns": ("_ns", "_ms", 1e6)}


class Place(StrEnum):
    """Tables of a report with columns for figures."""

    RESULTS = "Experiment"
    PHASES = "Phases"
    INSIDE = "Single tokens inside a trial"
    ENERGY = "Energy"
    LOADS = "Loads"


@dataclass(frozen=True)
class Figure(Generic[RecordT]):
    """A figure of a record (trial, load or accuracy).

    Args:
        name: key in JSON and CSV.
        unit: unit of ``value``; it decides how the figure is rounded and shown.
        title: heading on a page; English, and the key of its translations.
        value: function from a record to the value; None if not measured.
        over: function from the values of all good records to the variant's value; None: variants
            have no value.
        place: the table that has a column for it, if any.
        short: name in sentences, and of a part (``p90``) at 80 columns, instead of the title in
            lower case.
        part: text after the title, the same in each language: ``p50``.
        tip: explanation of the heading; English, and the key of its translations.
        column: column of a single record in the index and in exports, instead of ``name``.
        may_gate: True if a recipe may set bounds for it.
        gate: name in gates and for ``--figure``, instead of ``name`` with the unit of gates (ms for
            times).
        better: the better side, if any.
        is_compared: True if runs are compared by it; it is then above 0 and has a better side.
        has_loading: True if it depends on the contents of memory before the start.
        needs_token_times: True if it needs the times of single tokens.
        listed: whether lists of runs, or only wide lists, show the smallest and the largest value
            of the variants.
        is_brief: False if it is left out at 80 columns, and comes last on a phone.
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
        """True if a higher value is better."""
        return self.better == "higher"

    @property
    def ends(self) -> tuple[str, str]:
        """Columns of a run for the smallest and the largest value of its variants."""
        stem, _, unit = self.name.rpartition("_")
        if unit not in ("ns", "bytes"):
            return f"{self.name}_low", f"{self.name}_high"
        return f"{stem}_low_{unit}", f"{stem}_high_{unit}"

    def of(self, record: RecordT) -> float | None:
        """Return the value of one record."""
        return self._rounded(self.value(record))

    def over_all(self, records: Iterable[RecordT]) -> float | None:
        """Return the value of a variant from its good records; None if no record has a value."""
        known = [value for one in records if (value := self.value(one)) is not None]
        return self._rounded(self.over(known)) if known and self.over else None

    def in_gates(self, value: float | None) -> float | None:
        """Return a value in the unit of gates: ms instead of ns."""
        return None if value is None else value / _OF_GATES.get(self.unit, ("", "", 1))[2]

    def ends_of(self, values: Iterable[float | None]) -> dict[str, float | None]:
        """Return a run's columns from the values of its variants."""
        known = [value for value in values if value is not None]
        return dict(
            zip(self.ends, (min(known, default=None), max(known, default=None)), strict=True)
        )

    def text(self, value: float | None) -> str:
        """Return a value for people; ``-`` for None."""
        return "-" if value is None else shown(value, self.unit)

    def spread(self, found: Mapping[str, float | None]) -> str:
        """Return a run's smallest and largest value as text, ``18.2-49.7 s``; empty if unknown."""
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
    """Return a title in the form of terminal headings: ``end to end``, ``TTFT``."""
    return title if title[1:2].isupper() else title[:1].lower() + title[1:]


def estimate(values: Sequence[float]) -> float | None:
    """Return the geometric mean; None if a value is <= 0."""
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
