"""Lines of Markdown made of untrusted texts."""

import re
from collections.abc import Iterator, Sequence

from labctl.errors import printable_line


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, then an empty line; a heading with ``>`` is aligned right."""
    yield line([name.removeprefix(">") for name in headings])
    yield line(["--:" if name.startswith(">") else ":--" for name in headings])
    yield from (line([cell(text) for text in row]) for row in rows)
    yield ""


def line(cells: Sequence[str]) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(cells)} |"


def cell(text: str) -> str:
    """Return text of boards and people for a Markdown line: no markup, link, cell, HTML, control.

    The marks are those of GitHub's Markdown (GFM 0.29).
    """
    text = re.sub(r"([\\`*\[\]<|&~])", r"\\\1", printable_line(text))
    text = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)
    return re.sub(r"^([#>+-]|\d+[.)])(?=\s|$)", r"\\\1", text)


def quote(lines: Sequence[str]) -> Iterator[str]:
    """Yield a quotation of the lines of a program, then an empty line; nothing without lines.

    No line begins with the program's text, which a CI server could read as a command.
    """
    yield from (f"> {cell(one)}  " for one in lines)
    yield from [""] if lines else []
