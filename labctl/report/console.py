"""Tables and lines for the console: whole, fitting, and safe to print."""

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from labctl.errors import printable_line
from labctl.report.names import short_names

_WIDEST = 1000


def print_whole(console: Console, table: Table) -> None:
    """Print a table at its own width: a wrapped line is better than a cut number."""
    roomy = console.options.update(max_width=_WIDEST)
    needed = Measurement.get(console, roomy, table).maximum
    terminal, console.width = console.width, max(needed, console.width)
    console.print(table)
    console.width = terminal


def print_fitting(console: Console, table: Table, *, spare: int = 0) -> None:
    """Print a table; on a terminal, cells wrap between words, the last column first, until it fits.

    If that is not enough, the last ``spare`` columns are left out one by one.
    """
    roomy = console.options.update(max_width=_WIDEST)

    def width(part: RenderableType) -> Measurement:
        return Measurement.get(console, roomy, part)

    while console.is_terminal:
        cells = [[width(cell) for cell in (v.header, *v.cells)] for v in table.columns]
        least = [max(cell.minimum for cell in column) for column in cells]
        most = [max(cell.maximum for cell in column) for column in cells]
        excess = width(table).maximum - console.width
        if not spare or excess <= sum(most) - sum(least):
            for column, low, high in reversed(list(zip(table.columns, least, most, strict=True))):
                column.width = max(low, high - max(0, excess))
                excess -= high - column.width
            break
        table.columns.pop()
        spare -= 1
    print_whole(console, table)


def plain(text: str) -> str:
    """Return text of boards and programs for a console: one line, no markup or control sequence.

    After a line feed in such a text, a CI server could read the next line as a command.
    """
    return escape(printable_line(text))


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines of markup: wrapped between words on a terminal, whole elsewhere."""
    for line in lines:
        console.print(line, highlight=False, soft_wrap=not console.is_terminal)


def print_table(
    console: Console,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    shorten: bool = True,
) -> None:
    """Print rows of text, whole, under headings (``>``: to the right); the first cell is a name.

    On a terminal, names that are too long are shortened (:mod:`labctl.report.names`). Elsewhere,
    and without ``shorten``, they stay whole.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        right = heading.startswith(">")
        label = heading.removeprefix(">")
        table.add_column(label, justify="right" if right else "left", no_wrap=True)
    names = [printable_line(row[0]) for row in rows]
    if shorten and console.is_terminal:
        others = [headings[1:], *(row[1:] for row in rows)]
        widths = (max(map(cell_len, column)) for column in zip(*others, strict=True))
        short = short_names(names, console.width - sum(width + 2 for width in widths))
        names = [short[name] for name in names]
    for name, row in zip(names, rows, strict=True):
        table.add_row(escape(name), *map(plain, row[1:]))
    print_whole(console, table)
