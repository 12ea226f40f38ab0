"""The grader ``choice``: the letter of a multiple-choice question."""

import re

from labctl.evaluation.graders.base import Grade, Grader
from labctl.evaluation.graders.boxes import find_boxes
from labctl.evaluation.graders.plain import plain

# A letter alone: not the pronoun of "I think", and no part of "X-rays" or "U.S.".
_LETTER = (
    r"(?P<letter>[A-HJ-Z]|I(?!'| (?!because|since)[a-z]))"
    r"(?![A-Za-z]|-[a-z]|\.[A-Z]\.)"
)
_WRAPPED = re.compile(rf"[(\[]?\s*{_LETTER}[\s*]*(?:[)\].:,、。]|$)")
_BEFORE = rf"[*(\[]{{0,4}}\s?{_LETTER}"
# "the answer is (B)", "Answer: B", "答案是B", "选B"; "the answer is a" has an article in it.
_PHRASE = re.compile(
    r"(?:(?i:answer|choice|option)(?:\s+is\s?:?|\s?:)|答案(?:是|为)?\s?:?|选择?\s?:?|故选\s?:?)"
    rf"\s?{_BEFORE}"
)
# "option B": of less weight, since a text also names options that it does not choose.
_NAMED = re.compile(rf"(?<!not )(?i:answer|choice|option)\s?{_BEFORE}")
_IN_BRACKETS = re.compile(rf"\(\s?{_LETTER}\s?\)")
_OWN_LINE = re.compile(rf"^[ \t*]{{0,8}}{_LETTER}[ \t.*]{{0,8}}$", re.MULTILINE)


class Choice(Grader):
    """Takes the letter in the last box, or else at the usual places.

    Without a box: after the last "answer is" or the like; after the last "option" or "choice"; at
    the beginning of the text (``B.``, ``(B) Paris``); alone on the last such line; in the last
    brackets.
    """

    name = "choice"
    version = "2"

    def grade(self, text: str, answer: str, *, complete: bool) -> Grade:  # noqa: ARG002
        """Judge a text."""
        boxes = find_boxes(text)
        letter = _boxed(boxes.last) if boxes.last is not None else _in_text(text)
        if letter is None:
            return Grade(boxes.last, correct=False, notes=("no-answer", *boxes.notes))
        return Grade(letter, letter == answer.strip().upper(), boxes.notes)


def _boxed(content: str) -> str | None:
    text = plain(content).strip(" *$.\t\n")
    wrapped = _WRAPPED.match(text) or _PHRASE.search(text) or _NAMED.search(text)
    if wrapped:
        return wrapped["letter"]
    return text.upper() if re.fullmatch("[a-z]", text) else None


def _in_text(text: str) -> str | None:
    text = plain(text)
    for pattern in (_PHRASE, _NAMED):
        if phrases := list(pattern.finditer(text)):
            return phrases[-1]["letter"]
    begin = _WRAPPED.match(text.lstrip(" *\t\n"))
    if begin:
        return begin["letter"]
    for pattern in (_OWN_LINE, _IN_BRACKETS):
        found = pattern.findall(text)
        if found:
            return str(found[-1])
    return None
