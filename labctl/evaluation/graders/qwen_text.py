r"""Text handling of Qwen2.5-Math's evaluation: find an answer, and strip it.

Behaves like ``evaluation/parser.py`` in https://github.com/QwenLM/Qwen2.5-Math (commit 005449c,
``extract_answer`` and ``strip_string`` for GSM8K), with its peculiarities. Other graders judge
better, but figures of this grader can be compared with published ones.
"""

import re
from collections.abc import Callable

from labctl.evaluation.graders.number_words import number_in_words

_LAST_NUMBER = re.compile(r"-?\d*\.?\d+")

# Words that the evaluation removes as units, and their plurals in s. A dot is any character, since
# the evaluation uses the words as patterns.
_UNITS = (
    # length, area, volume, mass
    r"m sqaure| m east|sq m|ft|mile|feet|inches|inch|yard|km|m|cm|mm|dm|mtr|metre|meter|sq|sq . m"
    r"|sq inch|cm 2|pi sq m|π r 2|∏ cm ³|square|cubic|cube|cu cm|cu . m|cc|acre|hectare|Surface"
    r"|gal|gallon|liter|litre|l|lt|kg|g|gm|lb|mt"
    # time, speed, angle, temperature
    r"|noon|hr|hour|minute|min|minw|second|sec|day|month|year|yr|am|pm|a . m|p . m"
    r"|mph|kmph|kmh|mp|degree|deg|° f|ohm"
    # money and things counted
    r"|rupee|rs .|rs|rd|profit of rs|profit|loss|gain|coin|monkey|men|man|women|woman|soldier"
    r"|apple|toy|tile|pie|mark|unit|number|rounds|way"
    # words around a number, and single letters
    r"|east|west|rise|increase|decrease|excess|more|less|no change|pure|prime|ratio|percent|per|by"
    r"|are|bc|st|th|ab|o|t|a|h|c|s|d|q .|a .|b .|c .|d .|e .|f .|g .|h .|s .|v â € ™"
)


def _unit_patterns() -> list[re.Pattern[str]]:
    words = _UNITS.split("|")
    return [re.compile(rf"(^|\W){word}($|\W)") for word in (*words, *(one + "s" for one in words))]


_UNIT_PATTERNS = _unit_patterns()

#: Plain replacements, in this order.
_SPELLINGS = (
    ("bmatrix", "pmatrix"),
    ("tfrac", "frac"),
    ("dfrac", "frac"),
    (r"\neq", r"\ne"),
    (r"\leq", r"\le"),
    (r"\geq", r"\ge"),
    (r"\left", ""),
    (r"\right", ""),
    (r"\{", "{"),
    (r"\}", "}"),
)
_SIGNS = ((r"^{\circ}", ""), (r"^\circ", ""), (r"\$", ""), ("$", ""), (r"\(", ""), (r"\)", ""))
_NAMES = (
    *((name + relation, "") for relation in ("=", r"\in", r"\to") for name in "xyz"),
    (r"\emptyset", "{}"),
    (r"(-\infty,\infty)", r"\mathbb{R}"),
    (r"\%", ""),
    ("%", ""),
    (" .", " 0."),
    ("{.", "{0."),
    ("infinity", r"\infty"),
)


def find_answer(text: str) -> str | None:
    """Return the answer as the evaluation finds it, before stripping; None: no answer."""
    text = text.replace("\u043a\u0438", "")
    if "final answer is $" in text and "$. I hope" in text:
        found = text.split("final answer is $", 1)[1].split("$. I hope", 1)[0].strip()
    elif "boxed" in text:
        found = _box(text.rpartition("boxed")[2])
    elif "he answer is" in text:
        found = text.rpartition("he answer is")[2].strip()
    elif "final answer is" in text:
        found = text.rpartition("final answer is")[2].strip()
    elif "答案是" in text:
        found = text.split("答案是", 2)[1].strip().split("\n\n", 1)[0].strip()
    else:
        numbers = _LAST_NUMBER.findall(text.replace(",", ""))
        found = numbers[-1] if numbers else ""
    return found or None


def _box(rest: str) -> str:
    """Return the content of the box that begins here, up to the text's end if it is not closed."""
    if not rest.startswith("{"):
        return rest.split("$", 1)[0].strip()
    depth = 0
    for brace in re.finditer("[{}]", rest):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return rest[1 : brace.start()]
    return rest[1:]


def trimmed(found: str) -> str:
    """Return the found text on one line, without a leading colon, trailing dot or slash."""
    found = re.sub(r"\n\s*", "", found)
    return found.removeprefix(":").removesuffix(".").removesuffix("/")


def strip_answer(answer: str) -> str:
    """Return an answer without units and formatting, in one spelling of LaTeX."""
    text = answer.strip().replace("\n", "").rstrip(".").replace(r"\!", "")
    text = re.sub(r"\\begin\{array\}\{.*?\}", r"\\begin{pmatrix}", text)
    text = text.replace(r"\end{array}", r"\end{pmatrix}")
    text = _replaced(text, _SPELLINGS)
    text = _unless_empty(text, lambda one: re.sub(r"\\text{.*?}$", "", one).strip())
    for _ in range(2):
        for pattern in _UNIT_PATTERNS:
            text = _unless_empty(text, lambda one, unit=pattern: unit.sub(r"\1\2", one))  # type: ignore[misc]
    text = number_in_words(_replaced(text, _SIGNS))
    text = _replaced(re.sub(r"\\text\{(.*?)\}", r"\1", text), _NAMES)
    if r"\infty" not in text:
        text = text.replace("inf", r"\infty")
    text = text.replace("+\\inity", r"\infty").replace("and", "").replace(r"\mathbf", "")
    text = re.sub(r"\\mbox{.*?}", "", text)
    if "j" in text and "i" not in text:
        text = text.replace("j", "i")
    text = re.sub(r"(\d+)\.0*$", r"\1", re.sub(r"(\d+)\.0*([^\d])", r"\1\2", text))
    if text.startswith("."):
        text = "0" + text
    sides = text.split("=")
    if len(sides) == 2 and len(sides[0]) <= 2:
        text = sides[1]
    text = re.sub(r"\\sqrt(\w+)", r"\\sqrt{\1}", text).replace(" ", "")
    return _slash_as_fraction(_fractions_in_braces(text))


def _replaced(text: str, pairs: tuple[tuple[str, str], ...]) -> str:
    for old, new in pairs:
        text = text.replace(old, new)
    return text


def _unless_empty(text: str, change: Callable[[str], str]) -> str:
    return change(text) or text


def _fractions_in_braces(text: str) -> str:
    r"""Write ``\frac12`` and ``\frac1{2}`` with braces; change nothing if one is cut off."""
    head, *rest = text.split(r"\frac")
    parts = [head]
    for part in rest:
        if part.startswith("{"):
            parts.append(part)
        elif len(part) < 2:
            return text
        else:
            bottom = part[1] if part[1] == "{" else f"{{{part[1]}}}"
            parts.append(f"{{{part[0]}}}{bottom}{part[2:]}")
    return r"\frac".join(parts)


def _slash_as_fraction(text: str) -> str:
    """Write ``a/b`` of two integers, or of roots, as a fraction."""
    sides = text.split("/")
    if len(sides) != 2:
        return text
    if all("sqrt" in side or re.fullmatch(r"0|-?[1-9]\d{0,999}", side) for side in sides):
        return rf"\frac{{{sides[0]}}}{{{sides[1]}}}"
    return text
