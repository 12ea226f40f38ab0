"""Subsets of a data set by a seed.

Questions are sorted by the SHA-256 of ``SEED:QUESTION``. QUESTION is the content of a question
(text, choices, answer), not its place. So the order is the same on every machine and in every
version of Python, and a longer subset begins with the shorter one.
"""

import hashlib
import json
from collections.abc import Iterable

from labctl.evaluation.question import Question


def in_seed_order(questions: Iterable[Question], seed: int) -> list[Question]:
    """Return the questions in the order of a ``subset_seed``; a subset is the first of them."""
    return sorted(questions, key=lambda one: _rank(one, seed))


def _rank(question: Question, seed: int) -> bytes:
    content = json.dumps([question.text, *question.choices, question.answer], ensure_ascii=True)
    return hashlib.sha256(f"{seed}:{content}".encode()).digest()
