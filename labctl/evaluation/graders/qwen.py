r"""The grader ``qwen``: the answer and the verdict of Qwen2.5-Math's evaluation.

The comparison follows ``math_equal`` in its ``evaluation/grader.py`` (commit 29a82a8): equal texts,
numbers equal within 0.01 % (also as hundredths or a hundredfold), lists and matrices member by
member, equations. Difference: where ``math_equal`` uses sympy, only arithmetic of numbers is
evaluated here, exactly and within bounds; ``x+x`` is not ``2x`` (use math-verify for that). sympy
takes only the beginning of a text that it does not understand, as in ``18}``; here such an answer
is wrong.
"""

import math
import re

from labctl.evaluation.graders.arithmetic import evaluate
from labctl.evaluation.graders.base import Grade, Grader
from labctl.evaluation.graders.boxes import find_boxes
from labctl.evaluation.graders.plain import plain
from labctl.evaluation.graders.qwen_text import find_answer, strip_answer, trimmed

#: Longer answers count as wrong, and are not searched for units.
MAX_CHARACTERS = 2000
RELATIVE_TOLERANCE = 1e-4
_LIST = re.compile(r"[(\[].+[)\]]")
_MATRIX = re.compile(r"\\begin\{[pb]matrix\}.*\\end\{[pb]matrix\}")
_MATRIX_BEGIN, _MATRIX_END = r"\begin{pmatrix}", r"\end{pmatrix}"


class Qwen(Grader):
    """Takes an answer wherever Qwen2.5-Math's evaluation takes one, also from an open box."""

    name = "qwen"
    version = "1"

    def grade(self, text: str, answer: str, *, complete: bool) -> Grade:  # noqa: ARG002
        """Judge a text."""
        boxes = find_boxes(text).notes if "boxed" in text else ()
        found = find_answer(text)
        if found is None:
            return Grade(None, correct=False, notes=("no-answer", *boxes))
        if len(found) > MAX_CHARACTERS:
            return Grade(found, correct=False, notes=("too-long", *boxes))
        # Stripped twice, as in the original.
        stripped = strip_answer(strip_answer(trimmed(found)))
        return Grade(stripped, equal(stripped, strip_answer(answer)), boxes)


def equal(found: str, right: str) -> bool:
    """Compare two stripped answers."""
    return (
        found.strip().lower() == right.strip().lower()
        or (right in tuple("ABCDE") and _last_letter(found) == right)
        or _same_number(found, right)
        or (bool(found.strip()) and _same_expression(found.strip(), right.strip()))
    )


def _same_expression(found: str, right: str) -> bool:
    if "pmatrix" in found and "pmatrix" not in right:
        right = _as_matrices(right)
    if _same_without_brackets(found, right):
        return True
    if _LIST.match(found) and _LIST.match(right):
        return _same_members(found[1:-1].split(","), right[1:-1].split(","))
    if _is_matrix(found) and _is_matrix(right):
        return _same_matrix(_rows(found), _rows(right))
    if found.count("=") == right.count("=") == 1:
        one, other = _difference(found), _difference(right)
        return _same_arithmetic(one, other) or _same_arithmetic(f"-({one})", other)
    return _same_value(found, right)


def _same_value(found: str, right: str) -> bool:
    if _is_named_value(found) and "=" not in right:
        return equal(found.partition("=")[2], right)
    if _is_named_value(right) and "=" not in found:
        return equal(found, right.partition("=")[2])
    return _same_arithmetic(found, right)


def _is_named_value(text: str) -> bool:
    return text.count("=") == 1 and len(text.partition("=")[0].strip()) <= 2


def _last_letter(found: str) -> str:
    text = found.strip("\n").rstrip(".").rstrip("/").strip(" ").lstrip(":")
    letters = re.findall(r"\b[A-E]\b", text.upper())
    return letters[-1] if letters else text.strip().strip(".")


def _number(text: str) -> float | None:
    text = text.replace(",", "")
    try:
        return float(text)
    except ValueError:
        pass
    if not text.endswith("%"):
        return None
    try:
        return float(text[:-1].removesuffix("\\")) / 100
    except ValueError:
        return None


def _same_number(found: str, right: str) -> bool:
    one, other = _number(found), _number(right)
    if one is None or other is None:
        return False
    return any(_close(one, each) for each in (other / 100, other, other * 100))


def _close(one: float, other: float) -> bool:
    return math.isclose(other, one, rel_tol=RELATIVE_TOLERANCE)


def _same_arithmetic(found: str, right: str) -> bool:
    if not found.isascii():  # not arithmetic, for example a degree sign
        return False
    one, other = (evaluate(plain(text), mixed=False) for text in (found, right))
    if one is None or other is None:
        return False
    try:
        return _close(float(one), float(other))
    except OverflowError:
        return one == other


def _difference(equation: str) -> str:
    left, _, right = equation.partition("=")
    return f"{left.strip()} - ({right.strip()})"


def _same_without_brackets(found: str, right: str) -> bool:
    """Compare without brackets, unless one side is a closed and the other an open interval."""
    if (_is_in(found, "[]") and not _is_in(right, "()")) or (
        _is_in(found, "()") and not _is_in(right, "[]")
    ):
        found, right = found.strip("[]()"), right.strip("[]()")
    return re.sub(r"[{}()]", "", found).lower() == re.sub(r"[{}()]", "", right).lower()


def _is_in(text: str, brackets: str) -> bool:
    return text.startswith(brackets[0]) and text.endswith(brackets[1])


def _as_matrices(text: str) -> str:
    found = re.findall(r"\{.*,.*\}", text)
    rows = (one.strip("{}").replace(",", "\\") for one in found)
    return ", ".join(f"{_MATRIX_BEGIN}{row}{_MATRIX_END}" for row in rows)


def _is_matrix(text: str) -> bool:
    return _MATRIX.fullmatch(text) is not None


def _rows(text: str) -> list[list[str]]:
    inner = text[len(_MATRIX_BEGIN) : -len(_MATRIX_END)].split("\\\\")
    return [row.strip().split("&") for row in inner if row.strip()]


def _same_matrix(one: list[list[str]], other: list[list[str]]) -> bool:
    return len(one) == len(other) and all(map(_same_members, one, other))


def _same_members(one: list[str], other: list[str]) -> bool:
    return len(one) == len(other) and all(map(equal, one, other))
