"""Tables that keep their width, and text that stays text."""

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from labctl.errors import printable

_WIDEST = 1000


def print_whole(console: Console, table: Table) -> None:
    """Print a table at its own width: a wrapped line is better than a cut number."""
    roomy = console.options.update(max_width=_WIDEST)
    needed = Measurement.get(console, roomy, table).maximum
    terminal, console.width = console.width, max(needed, console.width)
    console.print(table)
    console.width = terminal


def plain(text: str) -> str:
    """Text of boards and programs for a console: no markup, no control sequence for a terminal."""
    return escape(printable(text))
