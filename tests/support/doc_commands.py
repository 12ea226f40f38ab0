"""Command lines of labctl in the documents."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Written:
    """A command line of a page, as words."""

    page: str
    line: int
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: labctl {' '.join(self.words)}"


def _words(text: str) -> list[str]:
    """Split a line as a shell does, or at spaces where a placeholder has an odd quote."""
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.partition(" #")[0].split()


def _block_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield numbered lines of blocks: fenced (no language, console, sh) or indented.

    A line that ends with a backslash is joined with the next.
    """
    fence: str | None = None
    joined, began = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r"\s*```(\w*)", line):
            fence = None if fence is not None else match[1]
            continue
        shown = fence in ("", "console", "sh", "bash") or (fence is None and line[:4] == "    ")
        if not shown:
            continue
        began = began or number
        if line.endswith("\\"):
            joined += line[:-1] + " "
            continue
        yield began, joined + line
        joined, began = "", 0


def block_commands(page: Path) -> list[Written]:
    """Return the commands of a page's blocks: lines that begin with labctl or $ labctl."""
    found = []
    for number, line in _block_lines(page.read_text(encoding="utf-8")):
        if match := re.match(r"\s*(?:\$ )?(?:[A-Z_]+=\S+ )*labctl (.*)", line):
            # Up to a pipe, a redirection, another command or the background sign.
            text = re.split(r"\s(?:\||>|<|&&|&|;|2>)(?:\s|$)", match[1])[0]
            found.append(Written(page.name, number, tuple(_words(text))))
    return found
