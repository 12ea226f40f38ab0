"""Compare two models, or prompts, on the same questions: which has more right answers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from labctl.stats.intervals import Interval

#: Weight of the mixture in :func:`difference_shown`: finds shares of wins around 0.6 soonest.
_MIXTURE = 10.0
_NORMAL = NormalDist()


@dataclass(frozen=True)
class McNemar:
    """The test of Q. McNemar (Psychometrika 12, 1947), without its approximation.

    ``wins``: questions that only the second answers right. ``losses``: only the first. ``exact``:
    two-sided p-value of the binomial test. ``mid_p``: the same, but the observed table counts half.
    It is less cautious, and its errors hardly exceed the level (M. W. Fagerland and others, BMC
    Med. Res. Methodol. 13:91, 2013).
    """

    wins: int
    losses: int
    exact: float
    mid_p: float


def count_wins(first: Sequence[float], second: Sequence[float]) -> tuple[int, int]:
    """Return wins and losses of the second, question by question.

    Each value is the share of right samples of a question, 0 or 1 for one sample. Raises ValueError
    for different numbers of questions.
    """
    pairs = list(zip(first, second, strict=True))
    return sum(b > a for a, b in pairs), sum(b < a for a, b in pairs)


def mcnemar(wins: int, losses: int) -> McNemar:
    """Test if wins and losses are equally frequent; see :func:`count_wins`."""
    if wins < 0 or losses < 0:
        raise ValueError(f"{wins} wins and {losses} losses")
    count, few = wins + losses, min(wins, losses)
    logs = [_log_binomial(count, k) for k in range(few + 1)]
    tail = math.fsum(map(math.exp, logs))
    return McNemar(wins, losses, min(1.0, 2 * tail), min(1.0, 2 * tail - math.exp(logs[-1])))


def paired_difference(
    first: Sequence[float],
    second: Sequence[float],
    *,
    level: float = 0.95,
    resamples: int = 5_000,
    seed: int = 0,
) -> Interval:
    """Return the second's accuracy minus the first's, with its bootstrap interval.

    Values as in :func:`count_wins`. Whole questions are drawn, with all samples of both sides (B.
    Efron and R. Tibshirani, An Introduction to the Bootstrap, 1993, section 13.3: percentiles). One
    win and one loss are added, since few questions look too certain otherwise (D. G. Bonett and R.
    M. Price, J. Educ. Behav. Stat. 37, 2012). Only ``seed`` determines the draws. Raises ValueError
    for fewer than two questions, or different numbers.
    """
    import numpy as np

    from labctl.stats.bootstrap import draw_questions

    gains = np.subtract(second, first, dtype=float)
    if len(gains) < 2:
        raise ValueError("an interval needs two questions or more")
    drawn = np.append(gains, [1.0, -1.0])
    means = draw_questions(len(drawn), resamples, seed) @ drawn / len(drawn)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(gains.mean()), float(low), float(high), level, len(gains))


def difference_shown(wins: int, losses: int, *, level: float = 0.95) -> bool:
    """Return True if asking can stop: one side is shown to be right more often.

    May be called after each question: if both sides are equal, it ever returns True with a
    probability of at most ``1 - level``. For questions that only one side answers right, it
    compares the mixture of all shares of wins (a beta distribution around 1/2) with the share 1/2.
    Their ratio is a martingale, which reaches ``1 / (1 - level)`` with at most this probability (J.
    Ville 1939; H. Robbins, Ann. Math. Statist. 41, 1970).
    """
    return always_valid_p(wins, losses) <= 1 - level


def always_valid_p(wins: int, losses: int) -> float:
    """Return the p-value of these wins and losses, valid for any number at which one stops.

    See :func:`difference_shown`.
    """
    log_ratio = (
        _log_beta(_MIXTURE + wins, _MIXTURE + losses)
        - _log_beta(_MIXTURE, _MIXTURE)
        + (wins + losses) * math.log(2)
    )
    return math.exp(-max(0.0, log_ratio))


def questions_for_difference(
    difference: float,
    discordant: float,
    *,
    level: float = 0.95,
    power: float = 0.9,
) -> int:
    """Return the number of common questions that show a difference of accuracies with ``power``.

    R. J. Connor, Biometrics 43, 1987. ``discordant``: share of questions that only one side answers
    right, at least the difference; unknown before some questions were asked. Raises ValueError for
    a difference of 0 or above this share.
    """
    gap = abs(difference)
    if not 0 < gap <= discordant <= 1:
        raise ValueError(f"a difference of {difference} at {discordant} that differ")
    z_level, z_power = _NORMAL.inv_cdf((1 + level) / 2), _NORMAL.inv_cdf(power)
    root = z_level * math.sqrt(discordant) + z_power * math.sqrt(discordant - gap * gap)
    return math.ceil((root / gap) ** 2)


def _log_binomial(count: int, k: int) -> float:
    """Return the logarithm of the probability of ``k`` out of ``count`` at 1/2."""
    ways = math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
    return ways - count * math.log(2)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
