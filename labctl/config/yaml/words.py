"""Values of YAML's plain words: YAML 1.2's core schema.

``no``, ``yes``, ``on``, ``off``, ``10:30`` and ``2026-01-31`` are text, ``012`` is twelve, and only
``true`` and ``false`` are booleans. (YAML 1.1, which PyYAML follows by itself, reads booleans,
sexagesimal and octal numbers and dates into them.) ``.inf`` and ``.nan`` are text too: nothing here
can use them.
"""

import re
from collections.abc import Callable
from typing import TypeAlias

Value: TypeAlias = "bool | int | float | str | list[Value] | dict[str, Value] | None"

MOST_NUMBER = 2**63 - 1

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
#: Kind, form and first characters; anything else is text. Source: YAML 1.2.2, section 10.3.2.
WORDS = (
    ("null", re.compile(r"(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("int", re.compile(rf"(?:{_INT.pattern})$"), list("-+0123456789")),
    ("float", re.compile(rf"(?:{_FLOAT.pattern})$"), list("-+.0123456789")),
)


def plain_value(text: str) -> Value:
    """Return the value of a plain word; an unknown word is a text."""
    kind = next((kind for kind, pattern, _ in WORDS if pattern.match(text)), "str")
    try:
        return meaning(kind, text)
    except ValueError:
        return text


def meaning(kind: str, text: str) -> Value:
    """Return the value of a scalar of that kind; KeyError for other kinds, ValueError with a
    sentence.
    """
    value = _MAKERS[kind](text)
    if isinstance(value, int | float) and abs(value) > MOST_NUMBER:
        raise ValueError("this number is too large")
    return value


def _text(text: str) -> str:
    if not is_unicode(text):
        raise ValueError("this text has half of a surrogate pair in it")
    return text


def _bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _int(text: str) -> int:
    if not _INT.fullmatch(text):
        raise ValueError("must be a whole number")
    # Longer ones are too large in any base; Python refuses the very long by itself.
    return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10)) if len(text) < 100 else MOST_NUMBER + 1


def _float(text: str) -> float:
    if not _FLOAT.fullmatch(text):
        raise ValueError("must be a number")
    return float(text)


_MAKERS: dict[str, Callable[[str], Value]] = {
    "null": lambda _: None,
    "bool": _bool,
    "int": _int,
    "float": _float,
    "str": _text,
}


def is_unicode(text: str) -> bool:
    """Return True if a text can be written as UTF-8, which half a surrogate pair cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
