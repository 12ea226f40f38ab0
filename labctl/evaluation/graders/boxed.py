"""The grader ``boxed``: the answer in the last complete box; otherwise wrong."""

from labctl.evaluation.graders.base import Grade, Grader
from labctl.evaluation.graders.boxes import find_boxes, without_thoughts
from labctl.evaluation.graders.values import same_answer


class Boxed(Grader):
    """Takes an answer only from a complete box: a cut answer does not count.

    A box in a thought is not an answer. Boxes in one list, "A and B", are one answer.
    """

    name = "boxed"
    version = "2"

    def grade(self, text: str, answer: str, *, complete: bool) -> Grade:  # noqa: ARG002
        """Judge a text."""
        boxes = find_boxes(without_thoughts(text))
        if boxes.listed is None:
            return Grade(None, correct=False, notes=("no-answer", *boxes.notes))
        correct, notes = same_answer(boxes.listed, answer)
        return Grade(boxes.listed, correct, (*boxes.notes, *notes))
