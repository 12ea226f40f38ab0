"""Words for a message: the known names, and the nearest one to a wrong word."""

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the nearest known name; None if no name is near."""
    import difflib  # not at start-up: only a mistake needs it

    names = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(word.casefold(), names, n=1, cutoff=0.6)
    return names[near[0]] if near else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``" (did you mean 'x'?)"`` for the nearest known name; empty if no name is near."""
    near = nearest(word, known)
    return f" (did you mean '{near}'?)" if near else ""


def listed(words: Iterable[str], *, joiner: str = "or") -> str:
    """Join words: ``"a, b or c"``."""
    *head, last = list(words)
    return f"{', '.join(head)} {joiner} {last}" if head else last


def unknown(kind: str, word: str, known: Iterable[str], *, where: str = "") -> str:
    """Return ``"no board 'rk2' (did you mean 'rk1'?)"``; lists all known words if no word is near.

    ``where`` follows the word: ``" in models.yaml"``.
    """
    names = sorted(known)
    near = did_you_mean(word, names)
    if names and not near:
        near = f"; known: {', '.join(names)}"
    return f"no {kind} {word!r}{where}{near}"
