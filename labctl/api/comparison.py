"""A comparison of runs, variants or baselines."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, get_args, get_type_hints

from labctl.api.frames import data_frame
from labctl.api.run import plotted
from labctl.compare.comparison import Comparison as Found
from labctl.compare.comparison import Row
from labctl.stats.intervals import Interval

if TYPE_CHECKING:
    from pandas import DataFrame

    from labctl.report.figures.figure import Figure

_ENDS = ("low", "high", "level")


@dataclass(frozen=True, repr=False)
class Comparison:
    """The result of ``labctl compare``. ``found``: rows, thresholds, kinds of machine.

    ``runs``: directories of the runs that were compared.
    """

    found: Found
    runs: tuple[Path, ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        """A row for each figure of each pair of sides; times in ns."""
        return self.found.rows

    def to_pandas(self) -> "DataFrame":
        """Return a table with a row for each figure of each pair; times in ns.

        The interval of the ratio is in ``interval_low``, ``interval_high`` and ``interval_level``.
        Raises ConfigError without pandas.
        """
        return data_frame([_values(row) for row in self.rows], _columns())

    def plot(self, name: str | None = None) -> "Figure":
        """Return a figure of the report on these runs, as :meth:`labctl.api.run.Run.plot`."""
        return plotted(self.runs, name)

    def __repr__(self) -> str:
        return f"<comparison, {len(self.rows)} rows>"

    def _repr_html_(self) -> str:
        from labctl.report.comparison import comparison_html

        return comparison_html(self.found)


def _columns() -> dict[str, type]:
    found: dict[str, type] = {}
    for name, hint in get_type_hints(Row).items():
        kinds = get_args(hint) or (hint,)
        if Interval in kinds:
            found |= {f"{name}_{end}": float for end in _ENDS}
        else:
            found[name] = next((kind for kind in (bool, int, float) if kind in kinds), str)
    return found


def _values(row: Row) -> Mapping[str, object]:
    found: dict[str, object] = {}
    for name in (field.name for field in fields(row)):
        value = getattr(row, name)
        if isinstance(value, Interval):
            found |= {f"{name}_{end}": getattr(value, end) for end in _ENDS}
        elif isinstance(value, tuple):
            found[name] = "; ".join(map(str, value))
        else:
            found[name] = str(value) if isinstance(value, Enum) else value
    found.pop("interval", None)
    return found
