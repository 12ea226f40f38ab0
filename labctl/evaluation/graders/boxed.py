"""The grader ``boxed``: the last complete box, or wrong."""

from labctl.evaluation.graders.base import Grade, Grader
from labctl.evaluation.graders.boxes import find_boxes
from labctl.evaluation.graders.values import same_answer


class Boxed(Grader):
    """Takes an answer only from a complete box: an answer that a budget cut is not an answer."""

    name = "boxed"
    version = "1"

    def grade(self, text: str, answer: str, *, complete: bool) -> Grade:  # noqa: ARG002
        """Judge a text."""
        boxes = find_boxes(text)
        if boxes.last is None:
            return Grade(None, correct=False, notes=("no-answer", *boxes.notes))
        correct, notes = same_answer(boxes.last, answer)
        return Grade(boxes.last, correct, (*boxes.notes, *notes))
