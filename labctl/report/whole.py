"""Tables that keep their width."""

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

_WIDEST = 1000


def print_whole(console: Console, table: Table) -> None:
    """Print a table at its own width: a wrapped line is better than a cut number."""
    roomy = console.options.update(max_width=_WIDEST)
    needed = Measurement.get(console, roomy, table).maximum
    terminal, console.width = console.width, max(needed, console.width)
    console.print(table)
    console.width = terminal
