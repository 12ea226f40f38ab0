"""Figures of an evaluation."""

from labctl.figures.figure import Figure
from labctl.records.evaluation import AccuracyRecord

#: Share of right answers of a variant within a budget, for one grader.
ACCURACY: Figure[AccuracyRecord] = Figure(
    "accuracy", "share", "Right answers",
    lambda found: found.correct / found.graded if found.graded else None,
    short="right", may_gate=True, better="higher", listed="brief",
)  # fmt: skip
