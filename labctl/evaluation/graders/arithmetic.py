r"""Exact arithmetic of numbers: ``+ - * / ^``, brackets, ``\frac``, roots of squares.

Everything else, and everything too large, has no value, since the text is hostile input.
"""

import math
import re
from fractions import Fraction

from labctl.evaluation.graders.numbers import decimal, power

#: Longer or deeper texts have no value.
MAX_CHARACTERS = 500
MAX_DEPTH = 20

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3}(?![\d.]))?)|\\(?P<name>frac|sqrt)"
    r"|(?P<sign>[-+*/^(){}]))"
)
# \frac12 is \frac{1}{2}.
_BARE_TOP = re.compile(r"\\frac\s*(\d)(?=\s*[\d{\\])")
_BARE_BOTTOM = re.compile(r"(\\frac\s*\{[^{}]*\})\s*(\d)")
_MIXED = re.compile(r"(?P<sign>-?)\s*(\d+)\s+(\d+)\s*/\s*(\d+)")


class _NoValue(ArithmeticError):
    """The text is not arithmetic."""


def evaluate(text: str, *, mixed: bool = True) -> Fraction | None:
    r"""Return the value of a text of :func:`~labctl.evaluation.graders.plain.plain`, or None.

    ``mixed``: ``2\frac{1}{2}`` and ``2 1/2`` are two and a half; otherwise the first is a product.
    """
    if len(text) > MAX_CHARACTERS:
        return None
    if mixed and (whole := _MIXED.fullmatch(text.strip())):
        text = f"{whole['sign']}({whole[2]}+{whole[3]}/{whole[4]})"
    text = _BARE_BOTTOM.sub(r"\1{\2}", _BARE_TOP.sub(r"\\frac{\1}", text))
    try:
        return _Expression(text.rstrip(), mixed=mixed).whole()
    except (_NoValue, ValueError, ZeroDivisionError):
        return None


class _Expression:
    """A recursive descent over the tokens of a short text."""

    def __init__(self, text: str, *, mixed: bool):
        self._tokens = []
        at = 0
        while at < len(text):
            token = _TOKEN.match(text, at)
            if token is None:
                raise _NoValue
            self._tokens.append(token)
            at = token.end()
        self._at = 0
        self._depth = 0
        self._mixed = mixed

    def whole(self) -> Fraction:
        """Return the value of all tokens."""
        value = self._sum()
        if self._at < len(self._tokens):
            raise _NoValue
        return value

    def _next(self) -> str | None:
        return self._tokens[self._at]["sign"] if self._at < len(self._tokens) else None

    def _take(self, signs: str) -> str | None:
        sign = self._next()
        if sign is None or sign not in signs:
            return None
        self._at += 1
        return sign

    def _sum(self) -> Fraction:
        value = self._product()
        while sign := self._take("+-"):
            value += self._product() if sign == "+" else -self._product()
        return value

    def _product(self) -> Fraction:
        value = self._signed()
        while sign := self._take("*/") or self._implied():
            value = value * self._signed() if sign == "*" else value / self._signed()
            if max(abs(value.numerator), value.denominator).bit_length() > 4 * MAX_CHARACTERS:
                raise _NoValue
        return value

    def _implied(self) -> str | None:
        """Return the multiplication sign omitted before a bracket or a root."""
        if self._at == len(self._tokens):
            return None
        token = self._tokens[self._at]
        return "*" if token["sign"] == "(" or token["name"] == "sqrt" else None

    def _signed(self) -> Fraction:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _NoValue
        try:
            sign = self._take("+-")
            if sign:
                return self._signed() if sign == "+" else -self._signed()
            value = self._atom()
            if not self._take("^"):
                return value
            exponent = self._signed()
            if exponent.denominator != 1:
                raise _NoValue
            return power(value, exponent.numerator)
        finally:
            self._depth -= 1

    def _atom(self) -> Fraction:
        if self._at >= len(self._tokens):
            raise _NoValue
        if self._next() in ("(", "{"):
            return self._group()
        token = self._tokens[self._at]
        self._at += 1
        if token["number"]:
            value = decimal(token["number"])
            if self._at < len(self._tokens) and self._tokens[self._at]["name"] == "frac":
                part = self._atom()
                value = value + part if self._mixed else value * part
            return value
        if token["name"] == "frac":
            return self._group() / self._group()
        if token["name"] == "sqrt":
            return _root(self._group())
        raise _NoValue

    def _group(self) -> Fraction:
        opening = self._take("({")
        if opening is None:
            raise _NoValue
        value = self._sum()
        if not self._take(")" if opening == "(" else "}"):
            raise _NoValue
        return value


def _root(square: Fraction) -> Fraction:
    if square < 0:
        raise _NoValue
    root = Fraction(math.isqrt(square.numerator), math.isqrt(square.denominator))
    if root * root != square:
        raise _NoValue
    return root
