"""Two models, or prompts, on the same questions: whose answers are right more often."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from labctl.stats.intervals import Interval

#: Weight of the mixture in :func:`difference_shown`: shares of wins around 0.6 are found soonest.
_MIXTURE = 10.0
_NORMAL = NormalDist()


@dataclass(frozen=True)
class McNemar:
    """The test of Q. McNemar (Psychometrika 12, 1947), without its approximation.

    ``wins``: questions that the second alone answers right; ``losses``: the first alone. ``exact``
    is the two-sided p-value of the binomial test, ``mid_p`` the one that counts half of the
    observed table: less cautious, and its errors hardly exceed the level (M. W. Fagerland and
    others, BMC Med. Res. Methodol. 13:91, 2013).
    """

    wins: int
    losses: int
    exact: float
    mid_p: float


def count_wins(first: Sequence[float], second: Sequence[float]) -> tuple[int, int]:
    """Return wins and losses of the second, question by question.

    Each value is the share of a question's samples that is right, 0 or 1 for one sample. Raises
    ValueError for unlike numbers of questions.
    """
    pairs = list(zip(first, second, strict=True))
    return sum(b > a for a, b in pairs), sum(b < a for a, b in pairs)


def mcnemar(wins: int, losses: int) -> McNemar:
    """Test whether wins and losses are alike; see :func:`count_wins`."""
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
    """Return by how much the second's accuracy exceeds the first's, with its bootstrap interval.

    Values as in :func:`count_wins`. Whole questions are drawn, with all samples of both sides
    (B. Efron and R. Tibshirani, An Introduction to the Bootstrap, 1993, section 13.3: percentiles),
    and with them one win and one loss that nobody saw, without which few questions look too certain
    (D. G. Bonett and R. M. Price, J. Educ. Behav. Stat. 37, 2012). ``seed`` alone is the chance.
    Raises ValueError for fewer than two questions, or unlike numbers.
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

    It may be looked at after each question: where both are alike it is ever True with a probability
    of at most ``1 - level``. Of questions that one side alone answers right, the mixture of all
    shares of wins (a beta distribution around 1/2) is held against the share 1/2. Their ratio is a
    martingale that reaches ``1 / (1 - level)`` with no more than that probability (J. Ville 1939;
    H. Robbins, Ann. Math. Statist. 41, 1970).
    """
    return always_valid_p(wins, losses) <= 1 - level


def always_valid_p(wins: int, losses: int) -> float:
    """Return the p-value of that many wins and losses that holds at whatever number one stops.

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
    """Return how many common questions show a difference of two accuracies with ``power``.

    R. J. Connor, Biometrics 43, 1987. ``discordant`` is the share of questions that one side alone
    answers right, at least the difference; it is not known before some questions were asked. Raises
    ValueError for a difference of 0 or beyond that share.
    """
    gap = abs(difference)
    if not 0 < gap <= discordant <= 1:
        raise ValueError(f"a difference of {difference} at {discordant} that differ")
    z_level, z_power = _NORMAL.inv_cdf((1 + level) / 2), _NORMAL.inv_cdf(power)
    root = z_level * math.sqrt(discordant) + z_power * math.sqrt(discordant - gap * gap)
    return math.ceil((root / gap) ** 2)


def _log_binomial(count: int, k: int) -> float:
    """Return the logarithm of the probability of ``k`` of ``count`` at 1/2."""
    ways = math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
    return ways - count * math.log(2)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
