r"""Read numbers exactly, as people and models write them.

Accepted are groups of thousands (``1,234``, ``1'234``, ``1.234.567``, ``1 234``), decimals (also
``.5`` and ``0.\overline{3}``), ``1.5e3``, fractions, ``2 1/2``, ``2 and a half``, and multipliers:
``3 thousand``, ``18 dozen``, ``72k``, ``3万``. A single comma or point separates thousands only
before exactly three digits, and a comma is never a decimal point: ``10,00`` has no value. Signs,
powers and the like are arithmetic.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

#: Longer numbers and larger exponents have no value: their arithmetic would take too long.
MAX_DIGITS = 400
MAX_EXPONENT = 400

_GROUPED = re.compile(
    r"\d{1,3}(?:(?:,\d{3})+|(?: \d{3})+|(?:'\d{3})+)(?:\.\d*)?"
    r"|\d{1,2}(?:,\d\d)+,\d{3}(?:\.\d*)?|\d{1,3}(?:\.\d{3}){2,}"
)
_SEPARATED = re.compile(r"[, ']|\..*\.")
#: Digits with possible separators.
_DIGITS = (
    r"(?:[1-9]\d{0,2}(?:[ ]\d{3}){1,6}+(?:\.\d++)?(?![\d,'/^-]|[ ]\d|\.\d)"
    r"|\d++(?:[.,']\d++)*+|(?<![.\d])\.\d++)"
)
#: Factor that a word after a number means.
_WORDS: dict[str, int | Fraction] = {
    "hundreds?": 100,
    "thousands?|tausend|тысяч[аи]?|тыс": 1000,
    "millions?|millionen|millones|mn|миллион(?:а|ов)?|млн": 10**6,
    "billions?|milliarden?|bn|миллиард(?:а|ов)?|млрд": 10**9,
    "trillions?|tn": 10**12,
    "lakhs?": 10**5,
    "crores?": 10**7,
    "dozens?": 12,
    **{
        f"{part}s": Fraction(1, number)
        for part, number in (
            *(("third", 3), ("fourth", 4), ("fifth", 5), ("sixth", 6), ("seventh", 7)),
            *(("eighth", 8), ("ninth", 9), ("tenth", 10), ("hundredth", 100)),
            *(("thousandth", 1000), ("millionth", 10**6)),
        )
    },
    "halves": Fraction(1, 2),
}
_FACTORS = {"k": 1000, "m": 10**6, "b": 10**9}
_HAN_FACTORS = {"十": 10, "百": 100, "千": 1000, "万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8}
# Not 千米, 百分点: these begin with such a sign, but are units.
_HAN = r"(?:[十万萬亿億]|百(?![分帕])|千(?![米克瓦卡焦帕赫伏安欧吨字比位伙瓩升兆]))"
_WORD = rf"(?i:{'|'.join(_WORDS)})(?![^\W\d_])"
_SCALE = rf"(?:[ ]?-?{_WORD}|[kK](?![^\W_])|M(?![^\W_]))"
_PARTS = {"half": Fraction(1, 2), "third": Fraction(1, 3), "quarter": Fraction(1, 4)}
#: A number without sign, and multipliers; also used in other patterns.
NUMERAL = re.compile(
    rf"""
    (?: (?P<han> {_DIGITS} [ ]? {_HAN}++ (?: \d++ {_HAN}++ )*+ \d*+ )
      | (?: [$€£¥] [ ]? (?P<paid> {_DIGITS}) [ ]? (?P<factor> [mMbB]) (?![^\W_]) )
      | (?:
          (?: (?P<whole> \d{{1,9}}+) [ ]? (?:and[ ])?+ )?+ \\frac [ ]?
          (?: \{{ [ ]? (?P<top> -?{_DIGITS}) [ ]? \}} [ ]? \{{ [ ]? (?P<bottom> {_DIGITS}) [ ]? \}}
            | (?P<top1> \d) [ ]? (?P<bottom1> \d) )
        | (?P<whole2> \d{{1,9}}+) [ ] (?:and[ ])?+ (?P<top2> \d{{1,9}}+) / (?P<bottom2> \d{{1,9}}+)
          (?![.,]?\d|[ ]?\^)
        | (?P<top3> \d{{1,9}}+) / (?P<bottom3> \d{{1,9}}+) (?=[ ]{_WORD})
        | (?P<number> {_DIGITS})
          (?: (?P<point> \.?) \\(?:overline|bar|dot) [ ]? \{{ (?P<repeated> \d{{1,99}}) \}}
            | [eE] (?P<exponent> [+-]?\d{{1,4}}+) (?![.]?\d|[A-Za-z]) )?
        )
        (?: [ ]and[ ](?:(?:an?|one)[ ](?P<part>half|third|quarter)|(?P<three>three[ ]quarters))\b
          | [个個年天倍元岁歲]?(?P<han_half>半)
            (?=$|[^\w]|小时|小時|个月|個月|天|年|钟头|鐘頭|分钟|公斤|公里|斤)
        )?
        (?P<scales> {_SCALE}{{1,3}} )?
    )
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Number:
    """A number as written. ``value`` is None if it is too large or unclear (10,00)."""

    written: str
    value: Fraction | None
    percent: bool = False


def with_plain_numbers(bare_text: str) -> str:
    r"""Return a text with numbers in digits: ``3 thousand eggs`` becomes ``3000 eggs``.

    A fraction becomes ``{1/2}``, a number without a value ``?``. The text comes from
    :func:`~labctl.evaluation.graders.plain.bare`.
    """
    return NUMERAL.sub(_written_plainly, bare_text)


def _written_plainly(match: re.Match[str]) -> str:
    try:
        value = _value(match)
    except (ValueError, ZeroDivisionError):
        return "?"
    return str(value) if value.denominator == 1 else f"{{{value}}}"


def _value(match: re.Match[str]) -> Fraction:
    if match["han"]:
        return _han_value(match["han"])
    if match["paid"]:
        return _clear(match["paid"]) * _FACTORS[match["factor"].lower()]
    top = match["top"] or match["top1"] or match["top2"] or match["top3"]
    value = _clear(match["number"]) if top is None else _fraction(match, top)
    if match["repeated"]:
        value += _repeated(match)
    if match["exponent"]:
        value *= power(Fraction(10), int(match["exponent"]))
    if match["part"] or match["han_half"]:
        value += _PARTS[match["part"] or "half"]
    if match["three"]:
        value += Fraction(3, 4)
    for scale in re.findall(r"[^\W\d_]+", match["scales"] or ""):
        value *= _factor(scale)
    return value


def _fraction(match: re.Match[str], top: str) -> Fraction:
    bottom = match["bottom"] or match["bottom1"] or match["bottom2"] or match["bottom3"]
    part = _clear(top.lstrip("-")) / _clear(bottom)
    return Fraction(match["whole"] or match["whole2"] or 0) + (-part if top[0] == "-" else part)


def _repeated(match: re.Match[str]) -> Fraction:
    """Return what repeated decimals add. Raises ValueError without a decimal point."""
    _, point, fixed = match["number"].partition(".")
    if not (match["point"] or point):
        raise ValueError("no decimal")
    nines = 10 ** len(match["repeated"]) - 1
    return Fraction(int(match["repeated"]), nines * 10 ** len(fixed))


def _factor(scale: str) -> Fraction:
    if scale.lower() in _FACTORS:
        return Fraction(_FACTORS[scale.lower()])
    return next(
        Fraction(factor)
        for words, factor in _WORDS.items()
        if re.fullmatch(words, scale, re.IGNORECASE)
    )


def _han_value(written: str) -> Fraction:
    """Return the value of 3万, 1亿2千万, 3万5000. Raises ValueError for 3万5: it may be 35000."""
    total, least = Fraction(0), None
    for digits, scales in re.findall(r"([\d.,' ]*\d) ?([^\d.,' ]*)", written):
        value = _clear(digits)
        if least is not None and (value >= least or (not scales and value * 10 < least)):
            raise ValueError("unclear")
        factor = 1
        for scale in scales:
            factor *= _HAN_FACTORS[scale]
        if least is not None and factor >= least:
            raise ValueError("unclear")
        total, least = total + value * factor, factor
    return total


def _clear(written: str) -> Fraction:
    """Return the value of digits. Raises ValueError if it is unclear, as in 0,123."""
    if re.match(r"0+[,']", written):
        raise ValueError("no number")
    return decimal(written)


def decimal(written: str) -> Fraction:
    """Return the value of digits with separators and a point, or of ``1.5e3``.

    Raises ValueError if there are too many digits, or if the commas do not separate thousands.
    """
    separated = _SEPARATED.search(written)
    if len(written) > MAX_DIGITS or (separated and not _GROUPED.fullmatch(written)):
        raise ValueError("no number")
    if written.count(".") > 1:
        written = written.replace(".", "")
    return Fraction(re.sub("[, ']", "", written))


def power(base: Fraction, exponent: int) -> Fraction:
    """Return a power. Raises ValueError if it would be huge, ZeroDivisionError for 0^-1."""
    size = max(abs(base.numerator), base.denominator).bit_length()
    if abs(exponent) > MAX_EXPONENT or size * abs(exponent) > MAX_EXPONENT * 4:
        raise ValueError("too large")
    return base**exponent


def same_value(one: Number, other: Number) -> bool:
    """Return True if the numbers are equal, exactly.

    If only one number has a percent sign, it may mean hundredths or be a unit: 50 % equals 50 and
    0.5.
    """
    if one.value is None or other.value is None:
        return False
    if one.percent == other.percent:
        return one.value == other.value
    share, plain_value = (one.value, other.value) if one.percent else (other.value, one.value)
    return plain_value in (share, share / 100)
