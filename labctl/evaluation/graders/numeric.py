"""The grader ``numeric``: the last number in the text."""

import re
from fractions import Fraction

from labctl.evaluation.graders.arithmetic import MAX_CHARACTERS, evaluate
from labctl.evaluation.graders.base import Grade, Grader
from labctl.evaluation.graders.boxes import without_thoughts
from labctl.evaluation.graders.numbers import NUMERAL, Number, same_value, with_plain_numbers
from labctl.evaluation.graders.plain import bare

# A separate number: not an index, the exponent of a unit, or a part of a word.
_NUMERAL = re.sub(r"\(\?P<\w+>", "(?:", NUMERAL.pattern)
_NUMBER = re.compile(
    rf"""
    (?<![A-Za-z_^\d]) (?<![_^]\{{) (?<!\^[-+]) (?<!\^\{{[-+]) (?<!\d\.)
    (?P<sign> (?: (?<![)\]}}]) - | (?<=[=:({{\[]) [ ]? - [ ]? ) (?=[$€£¥₹\d.\\]) )?
    (?P<number> (?: [$€£¥₹] [ ]? (?! [\d.,]++ [ ]? [mMbB] (?![^\W_]) ) )? {_NUMERAL}
        (?: [ ]?\*[ ]?10[ ]?\^[ ]? (?: \{{ [ ]?[+-]?\d{{1,4}}[ ]? \}} | [+-]?\d{{1,4}}+ )
          | \^[ ]? (?: \{{ [ ]?[+-]?\d{{1,4}}[ ]? \}} | [+-]?\d{{1,4}}+ ) )?
        (?: [ ]?/[ ]? {_NUMERAL} )?
    )
    (?P<percent> [ ]? (?: % | per[ ]?cent\b ) )?
    """,
    re.VERBOSE,
)


class Numeric(Grader):
    """Takes the last number of the text with any unit, also from a cut answer.

    Numbers in a thought do not count.
    """

    name = "numeric"
    version = "2"

    def grade(self, text: str, answer: str, *, complete: bool) -> Grade:  # noqa: ARG002
        """Judge a text."""
        found = last_number(bare(without_thoughts(text)))
        if found is None:
            return Grade(None, correct=False, notes=("no-answer",))
        right = last_number(bare(answer))
        notes = ("unclear-number",) if found.value is None else ()
        return Grade(found.written, right is not None and same_value(found, right), notes)


def last_number(bare_text: str) -> Number | None:
    """Return the last number in a text from :func:`~labctl.evaluation.graders.plain.bare`."""
    last = None
    for last in _NUMBER.finditer(bare_text):  # noqa: B007
        pass
    if last is None:
        return None
    value: Fraction | None = None
    if len(last["number"]) <= MAX_CHARACTERS:
        value = evaluate(with_plain_numbers(last["number"]).lstrip("$€£¥₹ "))
    if value is not None and last["sign"]:
        value = -value
    return Number(last[0].strip(), value, last["percent"] is not None)
