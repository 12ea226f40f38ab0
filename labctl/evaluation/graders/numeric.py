"""The grader ``numeric``: the last number in the text."""

from labctl.evaluation.graders.base import Grade, Grader
from labctl.evaluation.graders.numbers import last_number, same_value
from labctl.evaluation.graders.plain import plain


class Numeric(Grader):
    """Takes the last number of the text, whatever its unit, also from an answer that was cut."""

    name = "numeric"
    version = "1"

    def grade(self, text: str, answer: str, *, complete: bool) -> Grade:  # noqa: ARG002
        """Judge a text."""
        found = last_number(plain(text))
        if found is None:
            return Grade(None, correct=False, notes=("no-answer",))
        right = last_number(plain(answer))
        notes = ("unclear-number",) if found.value is None else ()
        return Grade(found.written, right is not None and same_value(found, right), notes)
