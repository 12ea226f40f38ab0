r"""The grader ``math-verify``: the library of this name, which compares expressions and sets.

The library reads two boxes as a set of two answers, so it gets only the last box. Without a box it
gets the whole text, and takes the part that looks most like an answer. Its time limits use signals
and are switched off, since the pool has its own.
"""

from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

from labctl.distribution import install_extra
from labctl.errors import ConfigError
from labctl.evaluation.graders.base import Grade, Grader
from labctl.evaluation.graders.boxes import find_boxes

#: Without a box, only the last characters are searched: the library's patterns are slow.
SOUGHT_CHARACTERS = 2000


def _installed() -> str:
    try:
        return version("math-verify")
    except PackageNotFoundError:
        raise ConfigError(
            "the grader math-verify needs a library that is not installed",
            hint=install_extra("accuracy"),
        ) from None


class MathVerify(Grader):
    """Compares the answer that the library reads in the last box, or in the text's end."""

    name = "math-verify"
    version = f"2 (math-verify {_installed()})"

    def __init__(self) -> None:
        import math_verify  # 1 s: sympy

        self._library = math_verify
        # The same answer to a question comes from many variants and budgets.
        self._judge = lru_cache(maxsize=10_000)(self._judged)

    def grade(self, text: str, answer: str, *, complete: bool) -> Grade:  # noqa: ARG002
        """Judge a text."""
        boxes = find_boxes(text)
        sought = text[-SOUGHT_CHARACTERS:] if boxes.last is None else f"\\boxed{{{boxes.last}}}"
        found, correct = self._judge(sought, answer)
        notes = (*boxes.notes, *(("no-answer",) if found is None else ()))
        return Grade(found if boxes.last is None else boxes.last, correct, notes)

    def _judged(self, sought: str, answer: str) -> tuple[str | None, bool]:
        found = self._library.parse(sought, parsing_timeout=None)
        right = self._library.parse(f"\\boxed{{{answer}}}", parsing_timeout=None)
        correct = self._library.verify(right, found, timeout_seconds=None)
        return (str(found[-1]) if found else None), correct
