"""Results of a comparison: rows, each with its verdict and the deciding interval."""

from dataclasses import dataclass
from enum import StrEnum

from labctl.compare.likeness import PLACE, Difference
from labctl.compare.thresholds import Thresholds
from labctl.stats.intervals import Interval

#: Fewest repeats for an estimate of noise: from two repeats its interval spans a factor of 70.
_LEAST = 3


class Verdict(StrEnum):
    """Judgement of a row."""

    UNLIKE = "unlike"
    SAME = "same"
    SLOWER = "slower"
    FASTER = "faster"
    SUSPECTED = "suspected"
    CANT_TELL = "can't tell"


class Basis(StrEnum):
    """Measurements on which the interval of a row is based."""

    PAIRED = "paired"
    """Variants of one run that took turns: pairs by round."""
    UNPAIRED = "unpaired"
    """Variants of one run, one after the other."""
    FEW_ROUNDS = "few-rounds"
    """Variants of one run that took turns, but fewer than two rounds have both."""
    SESSIONS = "sessions"
    """Different runs; the run-to-run variation of this board is known."""
    UNKNOWN_SESSIONS = "unknown-sessions"
    """Different runs; run-to-run variation unknown, so no interval would be honest."""


@dataclass(frozen=True)
class Row:
    """One figure of one pair of sides.

    Args:
        left: name of the reference; ``right`` is what is compared with it.
        figure: name of the figure in FIGURES; ``label`` is for people.
        reason: one sentence that explains the verdict.
        left_value: geometric mean over the repeats: ns, or tokens/s. None: no good repeat has a
            value.
        ratio: right over left, the geometric mean; None: not comparable, or one side has no value.
        interval: confidence interval of the ratio, with its level; it decides. None: not known.
        p_different: uncorrected p-value of "no difference"; ``p_same``: of "not the same".
        noise: scatter of single repeats; 0.02 is 2 %.
        repeats: interleaved rounds of one run that would settle the verdict or, if no run can
            contain both sides, alternating runs of each side. None: the verdict is settled, no
            allowed number would settle it, or too little is known about the noise or the run-to-run
            variation.
        check: p-value of the distribution-free test; needs ten repeats.
        differences: all differences of the sides, including allowed ones.
        left_share: time of the nearest ceiling of its own board over the measured time, with the
            ceiling's name; None: unknown, or the figure is not the time of tokens.
        moved: boards in order, if a side was measured on several; else empty.
        fits_one_run: False if no run can contain both: a recipe varies only models and parameters.
    """

    left: str
    right: str
    figure: str
    label: str
    more_is_faster: bool
    verdict: Verdict
    reason: str
    left_value: float | None = None
    right_value: float | None = None
    left_share: tuple[str, float] | None = None
    right_share: tuple[str, float] | None = None
    left_repeats: int = 0
    right_repeats: int = 0
    ratio: float | None = None
    interval: Interval | None = None
    basis: Basis | None = None
    p_different: float | None = None
    p_same: float | None = None
    noise: float | None = None
    repeats: int | None = None
    check: float | None = None
    differences: tuple[Difference, ...] = ()
    warnings: tuple[str, ...] = ()
    fits_one_run: bool = True
    moved: tuple[str, ...] = ()

    @property
    def is_across_machines(self) -> bool:
        """True if the sides were measured on different boards."""
        return any(one.key in PLACE for one in self.differences)

    @property
    def is_rough(self) -> bool:
        """True if too little is known about the noise to give a number of rounds."""
        vague = self.interval is not None and self.interval.is_vague
        return vague or min(self.left_repeats, self.right_repeats) < _LEAST


@dataclass(frozen=True)
class Comparison:
    """All rows, their thresholds, and the kinds of machine that were measured."""

    rows: tuple[Row, ...]
    thresholds: Thresholds
    execution: frozenset[str]

    def having(self, *verdicts: Verdict) -> list[Row]:
        """Return the rows that have one of these verdicts."""
        return [row for row in self.rows if row.verdict in verdicts]
