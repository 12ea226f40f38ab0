"""Tables of reports, with typed cells; pages and terminals show the same tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from labctl.figures.figure import Figure, small
from labctl.report.page.language import Language
from labctl.units import shown

#: ``bad``: a failure or a warning; ``open``: not judged.
Tone = Literal["", "bad", "good", "open", "strong"]
#: Tone -> style in a terminal.
STYLES: dict[Tone, str] = {
    "": "default",
    "bad": "bold red",
    "good": "green",
    "open": "yellow",
    "strong": "bold",
}


@dataclass(frozen=True)
class Cell:
    """A cell of a table. ``value``: sort key instead of the text; ``tip``: explanation.

    ``recorded``: text of a record, the same in every language. ``mark``: mark that must stay with
    the cell, for example EMULATED. ``short``: shorter text for 80 columns. ``on_page``: shorter
    text for a page, where the tip has the whole.
    """

    text: str
    value: float | None = None
    tip: str = ""
    tone: Tone = ""
    recorded: bool = False
    mark: str = ""
    short: str = ""
    on_page: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a table. A ``wide`` column has sentences.

    A ``later`` column is last on a phone, a ``roomy`` column is left out at 80 columns. ``short``:
    heading at 80 columns. Terminals show headings in lower case.
    """

    heading: str
    numeric: bool = False
    wide: bool = False
    tip: str = ""
    later: bool = False
    roomy: bool = False
    short: str = ""


@dataclass(frozen=True)
class Table:
    """A table with a caption; the first cell of each row names it.

    A ``roomy`` table is left out at 80 columns.
    """

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    roomy: bool = False


ABSENT = Cell("–")


def named(name: str, short: Mapping[str, str], *, tip: str = "", mark: str = "") -> Cell:
    """Return the cell of a variant's name; ``short``: name -> shorter one for a page."""
    on_page = short.get(name, name)
    if on_page != name:
        return Cell(
            name,
            tip="; ".join(filter(None, (name, tip))),
            recorded=True,
            mark=mark,
            on_page=on_page,
        )
    return Cell(name, tip=tip, recorded=True, mark=mark)


def quantity(value: float | None, unit: str) -> Cell:
    """Return the cell of a value in ``ns``, ``bytes``, ``J`` ...; a dash for an unknown value."""
    return ABSENT if value is None else Cell(shown(value, unit), value)


def heading(figure: Figure[Any], words: Language) -> Column:
    """Return the column of a figure."""
    return Column(
        f"{words.word(figure.title)} {figure.part}".strip(),
        numeric=True,
        tip=words.word(figure.tip),
        later=not figure.is_brief,
        roomy=not figure.is_brief,
        short=figure.short if figure.part else "",
    )


def plain_cells(table: Table, *, brief: bool = False) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return a table as texts for a terminal: headings (``>``: to the right), and its rows.

    A last column has the marks of the rows, if any. ``brief``: only what fits in 80 columns.
    """
    chosen = [at for at, column in enumerate(table.columns) if not (brief and column.roomy)]
    headings = []
    for column in (table.columns[at] for at in chosen):
        name = (brief and column.short) or small(column.heading)
        headings.append(f"{'>' if column.numeric else ''}{name}")
    rows = [tuple(_plain(row[at], brief=brief) for at in chosen) for row in table.rows]
    marks = [row[0].mark for row in table.rows]
    if any(marks):
        return [*headings, ""], [(*row, mark) for row, mark in zip(rows, marks, strict=True)]
    return headings, rows


def _plain(cell: Cell, *, brief: bool) -> str:
    text = cell.short or cell.text if brief else cell.text
    return text if cell.recorded else text.replace("–", "-")
