"""Lines and tables as HTML for notebooks, made of untrusted texts."""

from collections.abc import Iterable, Sequence
from html import escape

from labctl.errors import printable_line

#: Most rows of a table; the rest is counted.
_MOST_ROWS = 60
_SIDES = {True: ' style="text-align:right;white-space:nowrap"', False: ' style="text-align:left"'}


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table without empty columns; a column whose heading has ``>`` is aligned right."""
    kept = [at for at in range(len(headings)) if not rows or any(row[at] for row in rows)]
    headings, rows = [headings[at] for at in kept], [[row[at] for at in kept] for row in rows]
    sides = [_SIDES[name.startswith(">")] for name in headings]

    def line(tag: str, cells: Iterable[str]) -> str:
        pairs = zip(sides, cells, strict=True)
        return f"<tr>{''.join(f'<{tag}{side}>{_text(one)}</{tag}>' for side, one in pairs)}</tr>"

    head = line("th", (name.removeprefix(">") for name in headings))
    body = "".join(line("td", row) for row in rows[:_MOST_ROWS])
    more = len(rows) - _MOST_ROWS
    rest = lines([f"and {more} more rows"]) if more > 0 else ""
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>{rest}"


def lines(texts: Iterable[str], *, strong: bool = False) -> str:
    """Return a paragraph for each text; ``strong``: an answer or a warning."""
    before, after = ("<p><strong>", "</strong></p>") if strong else ("<p>", "</p>")
    return "".join(f"{before}{_text(text)}{after}" for text in texts)


def _text(text: str) -> str:
    return escape(printable_line(text))
