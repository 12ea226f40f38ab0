"""A figure: a chart in Vega-Lite, and the rows that it draws."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from labctl.records.board import Execution
from labctl.report.figures.theme import Theme, config
from labctl.report.trial_export import csv_cell

#: A part of a chart's description. Constant but for texts and numbers, which are data to Vega.
Spec: TypeAlias = dict[str, Any]
Value: TypeAlias = bool | int | float | str | None
#: Meaning of a mark. ``kind`` says of which layer it is, where a chart has several.
Row: TypeAlias = Mapping[str, Value]

SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
#: Name of the data set in every chart.
ROWS = "rows"


@dataclass(frozen=True)
class Figure:
    """A chart with its words, in one language.

    Args:
        name: unique in a report, a part of a file name: ``token-times``.
        caption: what is drawn and how to read it; plain text.
        alt: what the picture shows, for those who do not see it; plain text.
        spec: Vega-Lite without its data, size, title and colours; see :meth:`chart`.
        rows: the data.
        warning: mark that must stay with the picture: EMULATED; empty for a board.
        execution: what the only trial in it ran on; None: it is of the runs as a whole.
    """

    name: str
    title: str
    caption: str
    alt: str
    spec: Spec = field(repr=False)
    rows: Sequence[Row] = field(repr=False)
    warning: str = ""
    execution: Execution | None = None

    def chart(self, theme: Theme | None = "light", *, width: int | None = None) -> Spec:
        """Return the chart as a whole, for any Vega-Lite 5.

        None as theme leaves the colours out: a page adds ``config(theme)`` itself, and can change
        it. With a ``width`` in pixels it stands alone: of that width, and with its title; without
        one it is as wide as what contains it. The views of a column of them cannot be: there a
        page sets ``width`` of each part of ``vconcat`` to its own, less ``usermeta.outside``.
        """
        made: Spec = {
            "$schema": SCHEMA,
            "description": self.alt,
            "background": None,
            **self.spec,
            "data": {"name": ROWS},
            "datasets": {ROWS: [dict(row) for row in self.rows]},
        }
        parts = made.get("vconcat")
        if parts is None:
            made["width"] = width or "container"
            made["autosize"] = {"type": "fit-x", "contains": "padding"}
        elif width:
            inside = width - made["usermeta"]["outside"]
            made["vconcat"] = [{**part, "width": inside} for part in parts]
        if width:
            made["title"] = {"text": self.title, "subtitle": self.warning or None}
        elif self.warning:
            made["title"] = {"text": self.warning, "style": "warning"}
        if theme is not None:
            made["config"] = config(theme)
        return made

    def csv(self) -> str:
        """Return the rows as CSV; a cell that a spreadsheet would compute gets a ' before it."""
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        written = io.StringIO()
        writer = csv.DictWriter(written, names, lineterminator="\r\n")
        writer.writeheader()
        for row in self.rows:
            writer.writerow({name: csv_cell(value) for name, value in row.items()})
        return written.getvalue()


@dataclass(frozen=True)
class Missing:
    """A figure that cannot be drawn of these runs, and the reason in a sentence."""

    name: str
    title: str
    reason: str


@dataclass(frozen=True)
class Figures:
    """All figures of some runs, in the order of a report."""

    drawn: tuple[Figure, ...]
    missing: tuple[Missing, ...]
