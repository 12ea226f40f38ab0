"""Answers with verdicts of two readers, who knew neither the graders' code nor their cases.

One half, chosen by a hash of text and gold, is for work on the graders; the other is held back.
"""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labctl.evaluation.graders import make_grader

PATH = Path(__file__).parents[1] / "fixtures" / "grading" / "answers.jsonl"
Judge = Callable[[str, str], bool]


def labelled() -> list[dict[str, Any]]:
    return [json.loads(line) for line in PATH.read_text(encoding="utf-8").splitlines()]


def is_for_work(answer: dict[str, Any]) -> bool:
    return hashlib.sha256(f"{answer['text']}\0{answer['gold']}".encode()).digest()[0] % 2 == 0


@dataclass(frozen=True)
class Share:
    """Mistakes among the answers that could be mistaken."""

    count: int
    total: int

    def __str__(self) -> str:
        """Return the share with its one-sided upper limit of 95 % (Clopper and Pearson)."""
        from scipy.stats import beta

        others = self.total - self.count
        high = beta.ppf(0.95, self.count + 1, others) if others else 1.0
        return f"{self.count} of {self.total} (≤ {100 * high:.1f}%)"


def mistakes(judge: Judge, verdict: str, *, work: bool) -> tuple[Share, Share]:
    """Count the answers of a half that are falsely right, and falsely wrong."""
    found: dict[bool, list[bool]] = {True: [], False: []}
    for one in labelled():
        if verdict in one["labels"] and is_for_work(one) is work:
            found[one["labels"][verdict][0]].append(judge(one["text"], one["gold"]))
    falsely_right = Share(found[False].count(True), len(found[False]))
    return falsely_right, Share(found[True].count(False), len(found[True]))


def grader(name: str) -> Judge:
    made = make_grader(name)
    return lambda text, gold: made.grade(text, gold, complete=True).correct


def lm_eval(pattern: str, place: int) -> Judge:
    """Return how GSM8K is judged in lm-evaluation-harness: a pattern and its exact_match.

    These are the published patterns and settings of its task gsm8k, not the package.
    """

    def cleaned(text: str) -> str:
        for ignored in (",", r"\$", r"(?s).*#### ", r"\.$"):
            text = re.sub(ignored, "", text)
        return text.lower()

    def judge(text: str, gold: str) -> bool:
        found = re.findall(pattern, text)
        one = found[place] if found else "[invalid]"
        extracted = next((part for part in one if part), "") if isinstance(one, tuple) else one
        return cleaned(extracted.strip()) == cleaned(gold)

    return judge


STRICT_MATCH = lm_eval(r"#### (\-?[0-9\.\,]+)", 0)
FLEXIBLE_EXTRACT = lm_eval(r"(-?[$0-9.,]{2,})|(-?[0-9]+)", -1)


def row(verdict: str, shown: str, judge: Judge) -> str:
    """Return a row of the documents' table."""
    shares = [share for work in (True, False) for share in mistakes(judge, verdict, work=work)]
    return " | ".join(["", verdict, shown, *map(str, shares), ""]).strip()
