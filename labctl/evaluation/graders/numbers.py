r"""Numbers as people and models write them, exactly.

Accepted are groups of thousands (``1,234``), decimals, ``1.5e3``, ``1.5 * 10^3``, powers of
integers, ``3/4``, ``\frac{3}{4}``, ``2 1/2``, a sign also before a currency (``-$5``), and a
percent sign. A comma is never a decimal point: ``10,00`` has no value.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

#: Longer numbers and larger exponents have no value: their arithmetic would take too long.
MAX_DIGITS = 400
MAX_EXPONENT = 400
#: Relative tolerance of equal values, unless both are integers.
TOLERANCE = Fraction(1, 1_000_000)

_UNSIGNED = r"(?>\d+(?:,\d+)*+(?:\.\d+)?|(?<!\.)\.\d+)"
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d*)?")
_EXPONENT = (
    r"(?>[eE][+-]?\d{1,4}(?![\d.])|\s?\*\s?10\s?\^\s?(?:\{\s?[+-]?\d{1,4}\s?\}|[+-]?\d{1,4}))"
)
_PATTERN = rf"""
    (?<![A-Za-z_^\d]) (?<!\^\{{) (?<!\d\.)
    (?P<sign> (?<![)\]}}]) - (?=[$€£¥₹\d.\\]))?
    (?: [$€£¥₹] \s?)?
    (?:
        (?: (?P<whole> \d{{1,9}}+) \s? )?+ \\frac \s?
        (?: \{{ \s? (?P<top> -?{_UNSIGNED}) \s? \}} \s? \{{ \s? (?P<bottom> {_UNSIGNED}) \s? \}}
          | (?P<top1> \d) \s? (?P<bottom1> \d) )
      | (?P<whole2> \d{{1,9}}+) \s (?P<top2> \d{{1,9}}+) / (?P<bottom2> \d{{1,9}}+)
      | (?P<number> {_UNSIGNED})
        (?: (?P<exponent> {_EXPONENT})
          | \^ (?: \{{ \s? (?P<power> -?\d{{1,3}}) \s? \}} | (?P<power1> -?\d{{1,3}}) ) (?!\d) )?
        (?: \s? / \s? (?P<divisor> {_UNSIGNED}) )?
    )
    (?P<percent> \s? (?: % | percent\b) )?
"""
_NUMBER = re.compile(_PATTERN, re.VERBOSE)


@dataclass(frozen=True)
class Number:
    """A number as written. ``value`` is None if it is too large, or unclear: 10,00."""

    written: str
    value: Fraction | None
    percent: bool = False


def last_number(plain_text: str) -> Number | None:
    """Return the last number in a text of :func:`~labctl.evaluation.graders.plain.plain`."""
    last = None
    for last in _NUMBER.finditer(plain_text):  # noqa: B007
        pass
    return None if last is None else _number(last)


def _number(match: re.Match[str]) -> Number:
    percent = match["percent"] is not None
    written = match[0].strip()
    try:
        value = _magnitude(match)
    except (ValueError, ZeroDivisionError):
        return Number(written, None, percent)
    return Number(written, -value if match["sign"] else value, percent)


def _magnitude(match: re.Match[str]) -> Fraction:
    top = match["top"] or match["top1"] or match["top2"]
    if top is not None:
        bottom = match["bottom"] or match["bottom1"] or match["bottom2"]
        return Fraction(match["whole"] or match["whole2"] or 0) + decimal(top) / decimal(bottom)
    value = decimal(match["number"])
    if match["exponent"]:
        value *= power(Fraction(10), int(match["exponent"].lower().split("^")[-1].strip("e* {}")))
    raised = match["power"] or match["power1"]
    if raised:
        value = power(value, int(raised))
    return value / decimal(match["divisor"]) if match["divisor"] else value


def decimal(written: str) -> Fraction:
    """Return the value of digits with commas and a point, or of ``1.5e3``.

    Raises ValueError if there are too many digits, or if the commas do not separate thousands.
    """
    if len(written) > MAX_DIGITS or ("," in written and not _GROUPED.fullmatch(written)):
        raise ValueError("no number")
    return Fraction(written.replace(",", ""))


def power(base: Fraction, exponent: int) -> Fraction:
    """Return a power. Raises ValueError if it would be huge, ZeroDivisionError for 0^-1."""
    size = max(abs(base.numerator), base.denominator).bit_length()
    if abs(exponent) > MAX_EXPONENT or size * abs(exponent) > MAX_EXPONENT * 4:
        raise ValueError("too large")
    return base**exponent


def same_value(one: Number, other: Number) -> bool:
    """Return True if the numbers are equal: integers exactly, others within ``TOLERANCE``.

    If only one has a percent sign, the sign may mean hundredths or be a unit: 50 % equals 50, and
    0.5.
    """
    if one.value is None or other.value is None:
        return False
    if one.percent == other.percent:
        return _close(one.value, other.value)
    share, plain_value = (one.value, other.value) if one.percent else (other.value, one.value)
    return _close(share, plain_value) or _close(share / 100, plain_value)


def _close(one: Fraction, other: Fraction) -> bool:
    if one.denominator == other.denominator == 1:
        return one == other
    return abs(one - other) <= TOLERANCE * max(abs(one), abs(other))
