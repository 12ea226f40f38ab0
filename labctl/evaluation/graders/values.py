r"""Comparison of the found answer with the right one.

A value is a whole answer: a number or arithmetic, with at most a unit after it, and a currency or a
name before it. Any other text leaves the answer without a value: "18 or more", "not 18".
"""

import re
from collections.abc import Iterable

from labctl.evaluation.graders.arithmetic import MAX_CHARACTERS, evaluate
from labctl.evaluation.graders.number_words import NUMBER_WORDS, number_in_words
from labctl.evaluation.graders.numbers import Number, same_value, with_plain_numbers
from labctl.evaluation.graders.plain import bare
from labctl.evaluation.graders.units import is_clause, is_name, is_unit

_CURRENCY = re.compile(
    r"(?:\b(?:US|HK|NT|CA|AU|NZ|[ACSR]))?[$€£¥₹₽₩]"
    r"|^(?:USD|US|EUR|GBP|RMB|CNY|JPY|INR|CHF|AUD|CAD|Rs\.?)(?![A-Za-z])|^人民币"
)
# Units and signs that LaTeX has commands for.
_COMMANDS = (
    (re.compile(r"\\(?:Omega|ohm)(?![A-Za-z]) ?"), "Ω"),
    (re.compile(r"\\(?:mu|micro)(?![A-Za-z]) ?"), "μ"),
    (re.compile(r"\\(?:degree|textdegree|degreeCelsius|celsius)(?![A-Za-z])"), " "),
    (re.compile(r"\\(?:euro|pounds|yen|textdollar)(?![A-Za-z])"), "$"),
    (re.compile(r"\\(?:approx|simeq|sim|cong|thickapprox)(?:eq)?(?![a-z])"), "\u2248"),
    (re.compile(r"\\[lcd]?dots(?![A-Za-z])|\.{3,}"), "\u2026"),
    # Marks of a result: a tick, a black square.
    (
        re.compile(
            r"\\(?:checkmark|blacksquare|square|Box|qed|star)(?![A-Za-z])|[\u2705\u2713\u2714]"
        ),
        " ",
    ),
    (re.compile(r"\\(?:space|newline|hfill?)(?![A-Za-z])|\\[,;:!]|\\+$"), " "),
    # A currency in braces; 百分之50, 4分之3.
    (re.compile(r"\{ ?([$€£¥₹]) ?\}"), r"\1"),
    (re.compile(r"百分之 ?(\d[\d.]*)"), r"\1%"),
    (re.compile(r"(?<![\d.])(\d+)分之 ?(\d+)(?![\d.])"), r"{\2/\1}"),
    # The exponent of a unit, for the fraction of two units.
    (re.compile(r"(?<=[A-Za-zΩμ)}]) ?\^ ?\{ ?([+-]?\d{1,2}) ?\}"), r"^\1"),
    (re.compile(r"\\frac ?\{((?:[^{}\d]|\^-?\d)*)\} ?\{((?:[^{}\d]|\^-?\d)*)\}"), r" \1/\2"),
)
# Arithmetic in words.
_SPOKEN = (
    (re.compile(r"(?<=\d) (?:times|multiplied by) (?=[\d({\\])"), " * "),
    (re.compile(r"(?<=\d) plus (?=[\d({\\])"), " + "),
    (re.compile(r"(?<=\d) minus (?=[\d({\\])"), " - "),
    (re.compile(r"(?<=\d) divided by (?=[\d({\\])"), " / "),
)
# "the answer is", "Total:", "she has", 答案是; the text before it must be a name.
_LEAD = re.compile(
    r"(?P<name>[^\d=:]*?(?:[A-Za-z})_]_?\{?\d{1,3}\}?|\(\d{1,3}\))?) ?"
    r"(?::(?!=)|\b(?:is|are|was|were|equals|has|have|had|gets?|got|needs?|needed|costs|earn(?:s|ed)?"
    r"|makes?|made|pays?|paid|spends?|spent|saved?|saves|sells|sold|buys|bought|takes?|took)\b"
    r"(?: equal to| to)?(?: ?:)?|等于|是|为|為|有|需要?|还?剩[下余]?|得[到出]?|[买卖花付要价了])"
    r"(?=[^=])(?P<rest>.*)",
    re.DOTALL,
)
#: Most introductions of an answer: "Answer: she has" are two.
_MOST_LEADS = 3
# "He ran", "It takes her"
_CLAUSE = re.compile(r"(?:[A-Z][a-z]*|he|she|it|they|we)(?: [a-z]+){1,6} (?=[\d{.])")
# Words before a number that only introduce the answer. "About" is the sign \u2248.
_NEUTRAL = re.compile(
    r"(?:(?:\u2248|=|(?i:the|an?|final|answer|total|sum|of|exactly|precisely|just|only|so|thus|hence"
    r"|therefore|about|approximately|approx\.?|roughly|around|circa|ca\.?|etwa|rund)"
    r"(?![A-Za-z])"
    r"|答案?|一共|总共|共计|合计|总计|共|大约|约|大概|仅|只|有|需要?|平均|每(?:[人天年月周份]|小时|分钟)"
    r"|\\therefore(?![a-z])|\u2234)[ ,]*)+"
)
_EQUALS = re.compile(r"(?<![<>!=~/\\:]):?==?(?![<>=])|\u2248")
_SEPARATORS = re.compile(r"[;、\n]|\\\\|,(?!\d)|&| (?:and|or) |[和或与及]")
_ARITHMETIC = re.compile(r"(?:[\d.+\-*/^(){} ]|\\(?:frac|sqrt)(?![A-Za-z]))*")
_PERCENT = re.compile(r" ?(?:%|(?i:per ?cent)(?![A-Za-z]))")
_WORD = re.compile(r"[^\W\d_]{2,}")
# "18", **18**, `18`
_QUOTED = re.compile(r"(?:\"|\u201c|``?|\*\*)([^\"\u201c\u201d`*]+)(?:\"|\u201d|''|``?|\*\*)")
# A set with one member.
_SET = re.compile(r"(?:(?<=[A-Za-z]) ?\\in(?![A-Za-z]) ?|^)\\\{((?:[^{},;]|\{[^{}]*\})*)\\\}$")
# Also feet; not 5'4".
_INCHES = re.compile("(?<=[\\d}]) ?(?:''|['\"\u2032\u2033\u2019\u201d])$")
# The same value in words and in digits: "eighteen (18)".
_TWICE = re.compile(r"([^()]+)\(([^()]+)\)")
# 10-year-old
_HYPHEN = re.compile(r"(?<=[\d}]) ?-(?=[A-Za-z]{3,}-[A-Za-z]{3,}$)")


def same_answer(found: str, right: str) -> tuple[bool, tuple[str, ...]]:
    """Compare two answers: as values if one has a value, otherwise as texts.

    Return the verdict and notes. A unit after a value is allowed, and not compared.
    """
    if len(found) > MAX_CHARACTERS:
        return found.strip() == right.strip(), ("too-long",)
    one, notes = _value(found)
    other, _ = _value(right)
    if one is None and other is None:
        return _text(found) == _text(right), ()
    return one is not None and other is not None and same_value(one, other), notes


def _value(answer: str) -> tuple[Number | None, tuple[str, ...]]:
    """Return the value of an answer (or None), and notes on the parts left out."""
    text = bare(answer).strip()
    if not re.search(r"\d", text):
        text = NUMBER_WORDS.sub(lambda words: number_in_words(words[0]), text)
    for pattern, replacement in _COMMANDS:
        text = pattern.sub(replacement, text)
    text = _CURRENCY.sub(" ", with_plain_numbers(text).strip())
    for pattern, replacement in _SPOKEN:
        text = pattern.sub(replacement, text)
    text = re.sub(" +", " ", text).strip().rstrip(" .\u3002,;")
    if quoted := _QUOTED.fullmatch(text):
        text = quoted[1].strip()
    text = _SET.sub(r"=\1", _INCHES.sub(" in", text))
    notes: dict[str, None] = {}
    value = _chain(text, notes)
    if value is None:
        value = _only([_chain(part, notes) for part in _SEPARATORS.split(text)])
    if value is None and (twice := _TWICE.fullmatch(text)):
        value = _only([_value(part)[0] for part in twice.groups()])
    return value, () if value is None else tuple(notes)


def _only(values: Iterable[Number | None]) -> Number | None:
    """Return the common value; None if values differ or one is missing."""
    first, *others = values
    if first is None or any(one is None or not same_value(first, one) for one in others):
        return None
    return first


def _chain(text: str, notes: dict[str, None]) -> Number | None:
    """Return the value of ``x = 9*2 = 18``: names do not count, all other parts must be equal."""
    for _ in range(_MOST_LEADS):
        if (clause := _CLAUSE.match(text)) and is_clause(clause[0]):
            text = text[clause.end() :]
            break
        lead = _LEAD.fullmatch(text)
        if lead is None or (lead["name"].strip() and not is_name(lead["name"])):
            break
        text = lead["rest"].strip()
    sides = [side.strip() for side in _EQUALS.split(text)]
    if len(sides) > 1 and not sides[0]:
        del sides[0]
    *others, last = [side for side in sides if len(sides) == 1 or not is_name(side)] or [""]
    value = _quantity(last, notes)
    if value is None:
        return None
    for side in others:
        other = _quantity(side, {}) or _quantity(_WORD.sub(" ", side), {})
        if other is None or not same_value(value, other):
            return None
    return value


def _quantity(text: str, notes: dict[str, None]) -> Number | None:
    """Return the value of a number or arithmetic with an optional unit after it."""
    text = _NEUTRAL.sub("", text, count=1) if _NEUTRAL.match(text) else text
    text = _HYPHEN.sub(" ", _without_brackets(text.strip()))
    end = _ARITHMETIC.match(text)
    run = end[0].rstrip(" ({/") if end else ""
    rest = text[len(run) :]
    value = evaluate(run) if run else None
    if value is None:
        return None
    rest = re.sub("^\u2026", "", rest.strip() and rest)
    percent = _PERCENT.match(rest)
    if percent:
        rest = rest[percent.end() :]
        notes["percent-removed"] = None
    if rest.strip():
        if not is_unit(rest):
            return None
        if not percent:
            notes["unit-removed"] = None
    return Number(text, value, percent is not None)


def _without_brackets(text: str) -> str:
    """Return a text without a pair of brackets around the whole text."""
    while text and text[0] + text[-1] in ("{}", "()"):
        depth = 0
        for at, one in enumerate(text):
            depth += (one in "{(") - (one in "})")
            if depth == 0 and at < len(text) - 1:
                return text
        text = text[1:-1].strip()
    return text


def _text(answer: str) -> str:
    return re.sub(r"(?<!\d)\s|\s(?!\d)|[{}$]|\.$", "", bare(answer)).casefold()
