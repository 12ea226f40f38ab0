"""Read English number words in a text like the library word2number.

Qwen2.5-Math's evaluation passes every answer through it. Words that are not numbers are ignored, so
"18 eggs for two" is 2.
"""

import re
from collections.abc import Sequence

_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_SCALES = {"billion": 10**9, "million": 10**6, "thousand": 1000}
_POINT = "point"
_VALUES = {
    **{word: value for value, word in enumerate(_SMALL.split())},
    **{word: 10 * tens for tens, word in enumerate(_TENS.split(), 2)},
    "hundred": 100,
    **_SCALES,
}
_BELOW_20 = _SMALL.replace(" ", "|")
_BELOW_100 = rf"(?:(?:{_TENS.replace(' ', '|')})(?:[- ](?:{_BELOW_20}))?|{_BELOW_20})"
_BELOW_1000 = rf"(?:(?:{_BELOW_20})[ ]hundred(?:(?: and)? {_BELOW_100})?|{_BELOW_100})"
#: Words that certainly are a number, though maybe only a part of it: "three quarters".
NUMBER_WORDS = re.compile(
    rf"(?<![\w-])(?:{_BELOW_1000} (?:{'|'.join(_SCALES)})(?: and)? ){{0,3}}{_BELOW_1000}"
    rf"(?: (?:{'|'.join(_SCALES)}))?(?![\w-]| quarter)",
    re.IGNORECASE,
)


def number_in_words(text: str) -> str:
    """Return a number in words as digits; the text itself if it has no number words."""
    spoken = text.replace("-", " ").lower()
    if spoken.isdecimal():
        return str(int(spoken)) if len(spoken) <= 4300 else text
    words = [word for word in spoken.split() if word in _VALUES or word == _POINT]
    value = _value(words) if words else None
    return text if value is None else str(value)


def _value(words: Sequence[str]) -> int | float | None:
    """Return the value of number words; None if they are not a number."""
    if any(words.count(word) > 1 for word in (*_SCALES, _POINT)):
        return None
    whole, digits = _at_point(words)
    places = [whole.index(scale) for scale in _SCALES if scale in whole]
    value = _whole(whole)
    if value is None or places != sorted(places):
        return None
    values = [_VALUES[word] for word in digits]
    if not digits or any(one > 9 for one in values):
        return value
    return value + float("0." + "".join(map(str, values)))


def _at_point(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    at = words.index(_POINT) if _POINT in words else len(words)
    return words[:at], words[at + 1 :]


def _whole(words: Sequence[str]) -> int | None:
    """Return the value of the words before the point; None if they are not a number."""
    if len(words) < 2:
        return _VALUES[words[0]] if words else 0
    total, rest = 0, list(words)
    for scale, factor in _SCALES.items():
        if scale in rest:
            at = rest.index(scale)
            if at == 0:
                return None
            total += _below_thousand(rest[:at]) * factor
            rest = rest[at + 1 :]
    return total + (_below_thousand(rest) if rest else 0)


def _below_thousand(words: Sequence[str]) -> int:
    """Return the value of up to four words; of more words only the first one counts."""
    values = [_VALUES[word] for word in words]
    match values:
        case [hundreds, hundred, tens, ones]:
            return hundreds * hundred + tens + ones
        case [hundreds, hundred, ones]:
            return hundreds * hundred + ones
        case [one, other]:
            return one * other if 100 in values else one + other
    return values[0]
