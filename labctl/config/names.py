"""Names that users give, and what to say when one is not known."""

import difflib
import re
from collections.abc import Iterable

#: What a board, build host, lab, target, model or recipe may be called: safe as a file name,
#: as an option's value and as a word of a command.
NAME_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,62}$"
LONGEST_NAME = 63
NAME_RULE = "a-z, 0-9, '-' and '_' (at most 63), beginning with a letter or digit"

#: The newest run that passed: what a gate of a recipe may name as it names a baseline.
LAST_GOOD = "last-good"


def is_name(text: str) -> bool:
    """Return True if ``text`` may name something in a lab."""
    return re.fullmatch(NAME_PATTERN, text) is not None


def plain_name(text: str) -> str:
    """Make a name of a file's name, an address or a serial number; empty if nothing of it may be
    in one.
    """
    return re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-_")[:LONGEST_NAME].rstrip("-_")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``" (did you mean 'x'?)"`` for the nearest known name, or nothing when none is near."""
    names = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(word.casefold(), names, n=1, cutoff=0.6)
    return f" (did you mean '{names[near[0]]}'?)" if near else ""


def listed(words: Iterable[str], *, joiner: str = "or") -> str:
    """Join words: ``"a, b or c"``."""
    *head, last = list(words)
    return f"{', '.join(head)} {joiner} {last}" if head else last


def unknown(kind: str, word: str, known: Iterable[str], *, where: str = "") -> str:
    """Return ``"no board 'rk2' (did you mean 'rk1'?)"``, with all known words if none is near.

    ``where`` follows the word: ``" in models.yaml"``.
    """
    names = sorted(known)
    near = did_you_mean(word, names)
    if names and not near:
        near = f"; known: {', '.join(names)}"
    return f"no {kind} {word!r}{where}{near}"
