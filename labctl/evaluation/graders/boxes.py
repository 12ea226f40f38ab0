r"""Boxes of LaTeX in a text: ``\boxed{...}`` and ``\fbox{...}``."""

import re
from dataclasses import dataclass

# A box, also with its backslash doubled as inside JSON; an escaped character; a brace.
_TOKENS = re.compile(r"(?:\\|(?<=\\))(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)


@dataclass(frozen=True)
class Boxes:
    """The boxes of a text. ``last`` is the content of the last complete one; None: there is none.

    ``complete`` and ``unclosed`` are their numbers.
    """

    last: str | None
    complete: int
    unclosed: int

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for a grade."""
        several = ("several-boxes",) if self.complete > 1 else ()
        return several + (("unclosed-box",) if self.unclosed else ())


def find_boxes(text: str) -> Boxes:
    """Find the boxes, in linear time. Of nested boxes the inner one is the last."""
    open_braces: list[int | None] = []  # where the content of a box begins; None: other braces
    last: tuple[int, int] | None = None
    complete = 0
    for token in _TOKENS.finditer(text):
        found = token[0]
        if found == "}":
            start = open_braces.pop() if open_braces else None
            if start is not None:
                complete += 1
                if last is None or start > last[0]:
                    last = start, token.start()
        elif found[-1] == "{" and found != r"\{":
            open_braces.append(None if found == "{" else token.end())
    unclosed = sum(start is not None for start in open_braces)
    return Boxes(None if last is None else text[slice(*last)].strip(), complete, unclosed)
