"""Lines of Markdown made of texts that nobody trusts."""

import re
from collections.abc import Iterator, Sequence

from labctl.errors import printable_line


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, and an empty one; a heading with ``>`` is to the right."""
    yield line([name.removeprefix(">") for name in headings])
    yield line(["--:" if name.startswith(">") else ":--" for name in headings])
    yield from (line([cell(text) for text in row]) for row in rows)
    yield ""


def line(cells: Sequence[str]) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(cells)} |"


def cell(text: str) -> str:
    """Text of boards and programs on a line of Markdown: no cell, no HTML, no control sequence."""
    return re.sub(r"([\\|<])", r"\\\1", printable_line(text))
