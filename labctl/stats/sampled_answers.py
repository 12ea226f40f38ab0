"""Several samples of one question: their vote, and the probability that one of k is right."""

import math
from collections import Counter
from collections.abc import Sequence

from labctl.stats.intervals import Interval
from labctl.stats.proportions import bounded_interval


def majority_vote(answers: Sequence[str | None]) -> int | None:
    """Return the index of the first sample with the answer that most samples give.

    X. Wang and others, Self-Consistency (2022). If several answers have the most votes, the
    earliest one wins. A sample without an answer (None) does not vote; None if no sample has an
    answer.
    """
    votes = Counter(answer for answer in answers if answer is not None)
    if not votes:
        return None
    most = max(votes.values())
    return next(
        i for i, answer in enumerate(answers) if answer is not None and votes[answer] == most
    )


def pass_at_k(correct: int, samples: int, k: int) -> float:
    """Return the probability that at least one of ``k`` samples is right.

    The unbiased estimator of M. Chen and others, Evaluating Large Language Models Trained on Code
    (2021), equation 1: 1 - C(n - c, k) / C(n, k). Raises ValueError unless ``1 <= k <= samples``
    and ``0 <= correct <= samples``.
    """
    if not 1 <= k <= samples:
        raise ValueError(f"{k} of {samples} samples")
    if not 0 <= correct <= samples:
        raise ValueError(f"{correct} right answers of {samples}")
    return 1 - math.comb(samples - correct, k) / math.comb(samples, k)


def pass_at_k_interval(
    correct: Sequence[int], samples: Sequence[int], k: int, *, level: float = 0.95
) -> Interval:
    """Return the mean of :func:`pass_at_k` over questions, with its interval.

    Each question is one value, see :func:`~labctl.stats.proportions.bounded_interval`. Raises
    ValueError for fewer than two questions, or for a question with fewer than ``k`` samples.
    """
    shares = [pass_at_k(c, n, k) for c, n in zip(correct, samples, strict=True)]
    if len(shares) < 2:
        raise ValueError("an interval needs two questions or more")
    return bounded_interval(shares, level=level)
