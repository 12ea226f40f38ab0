"""Comparison of the found answer with the right one."""

import re

from labctl.evaluation.graders.arithmetic import MAX_CHARACTERS, evaluate
from labctl.evaluation.graders.numbers import Number, same_value
from labctl.evaluation.graders.plain import plain

_CURRENCY = re.compile(r"[$€£¥₹]|^\s*(?:USD|US|EUR|GBP|RMB|CNY|Rs)\b")
# Nearly equal signs before a number, and dots after it.
_ROUNDED = re.compile(r"\\(?:approx|sim|ldots|dots|cdots)(?![a-z])|\u2248|\u2026")
_PERCENT = re.compile(r"\s*(?:%|percent)$", re.IGNORECASE)
# Words after a number. A single letter is a unit only if it is a usual one: 2x is not a length.
_UNIT = re.compile(
    r"(?P<number>.*[\d)}])"
    r"(?:\s*(?:[/(]?\s*[^\W\d_]{2,}|[^\W\d_A-Za-z])|\s+[mgslLhJWVANKCFdt](?![^\W\d_])|\s*/)"
    r"(?:[^\W\d_]|[\s/().'-])*(?:\^?\{?[23\u00b2\u00b3]\}?)?"
)


def same_answer(found: str, right: str) -> tuple[bool, tuple[str, ...]]:
    """Compare two answers: as values if both have one, otherwise as texts.

    Return the verdict and notes. A value is a number or arithmetic of numbers; a unit after it is
    allowed, and not compared.
    """
    if len(found) > MAX_CHARACTERS:
        return found.strip() == right.strip(), ("too-long",)
    one, notes = _value(found)
    other, _ = _value(right)
    if one is not None and other is not None:
        return same_value(one, other), notes
    return _text(found) == _text(right), ()


def _value(answer: str) -> tuple[Number | None, tuple[str, ...]]:
    """Return the value of an answer, if it has one, and notes on the parts left out."""
    text = _ROUNDED.sub("", _CURRENCY.sub("", plain(answer))).strip(" *.\t\n")
    text = text.rpartition("=")[2].strip()
    without = _PERCENT.sub("", text)
    percent = ("percent-removed",) if without != text else ()
    value = evaluate(without)
    if value is not None:
        return Number(answer, value, bool(percent)), percent
    unit = _UNIT.fullmatch(text)
    value = evaluate(unit["number"]) if unit else None
    return (None, ()) if value is None else (Number(answer, value), ("unit-removed",))


def _text(answer: str) -> str:
    return re.sub(r"[\s{}$]|\.$", "", plain(answer)).casefold()
