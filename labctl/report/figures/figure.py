"""A figure: a chart in Vega-Lite, and its data rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from labctl.records.board import Execution
from labctl.report.figures.svg import svg_of
from labctl.report.figures.theme import PALETTES, Theme, config
from labctl.report.rows import rows_csv

#: A part of a chart's description. Only texts and numbers vary, and Vega treats them as data.
Spec: TypeAlias = dict[str, Any]
Value: TypeAlias = bool | int | float | str | None
#: Data of one mark. ``kind``: its layer, if a chart has several.
Row: TypeAlias = Mapping[str, Value]

SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
#: Name of the data set in every chart.
ROWS = "rows"
#: Width of a page's column, in CSS pixels.
WIDTH = 760


@dataclass(frozen=True)
class Figure:
    """A chart with its words, in one language.

    Args:
        name: unique in a report, and part of a file name: ``token-times``.
        caption: description, and how to read the figure; plain text.
        alt: description for readers who cannot see the picture; plain text.
        spec: Vega-Lite without its data, size, title and colours; see :meth:`chart`.
        rows: the data.
        warning: mark that must stay with the picture, for example EMULATED; empty for a board.
        execution: execution of the figure's only trial; None: the figure shows whole runs.
    """

    name: str
    title: str
    caption: str
    alt: str
    spec: Spec = field(repr=False)
    rows: Sequence[Row] = field(repr=False)
    warning: str = ""
    execution: Execution | None = None

    def svg(self, theme: Theme = "light", width: int = WIDTH, *, heading: bool = True) -> str:
        """Return the figure as SVG, ``width`` CSS pixels wide. Raises HostError."""
        return svg_of(
            self.chart(theme, width, heading=heading),
            title=" – ".join(filter(None, (self.title, self.warning))),
            description=self.alt,
            in_page=theme == "page",
        )

    def _repr_html_(self) -> str:
        # A dark notebook would hide dark text.
        return f'<div style="background:{PALETTES["light"].background}">{self.svg()}</div>'

    def chart(self, theme: Theme = "light", width: int = WIDTH, *, heading: bool = True) -> Spec:
        """Return the complete chart, for any Vega-Lite 5; ``width`` is in CSS pixels.

        Without ``heading``, it lacks its title and its warning: the page around it shows them.
        """
        made: Spec = {
            "$schema": SCHEMA,
            "description": self.alt,
            "background": None,
            **self.spec,
            "data": {"name": ROWS},
            "datasets": {ROWS: [dict(row) for row in self.rows]},
            "config": config(theme),
        }
        if "vconcat" in made:
            inside = width - made["usermeta"]["outside"]
            made["vconcat"] = [{**part, "width": inside} for part in made["vconcat"]]
        else:
            made["width"] = width
            # The reader's font may be wider than the one of this host.
            made["padding"] = {"left": 5, "top": 5, "right": 14, "bottom": 5}
            made["autosize"] = {"type": "fit-x", "contains": "padding"}
        if heading:
            made["title"] = {"text": self.title, "subtitle": self.warning or None}
        return made

    def csv(self) -> str:
        """Return the rows as CSV; a cell that a spreadsheet would compute starts with a '."""
        return rows_csv(self.rows, dict.fromkeys(name for row in self.rows for name in row))


@dataclass(frozen=True)
class Missing:
    """A figure that cannot be drawn from these runs, and the reason in a sentence."""

    name: str
    title: str
    reason: str


@dataclass(frozen=True)
class Figures:
    """All figures of some runs, in the order of a report."""

    drawn: tuple[Figure, ...]
    missing: tuple[Missing, ...]
