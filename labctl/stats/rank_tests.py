"""Tests that assume no distribution: a check on those that do, from LEAST repeats on."""

import math
from collections import Counter
from collections.abc import Sequence

#: Fewer repeats reach no small p-value, so that disagreeing would mean nothing.
LEAST = 10
#: Up to this many pairs all signs are tried; of more, a sample of them.
_ALL_SIGNS = 16
_SAMPLE = 20_000


def sign_flip(differences: Sequence[float]) -> float:
    """Return the p-value of "differences are as often positive as negative", two-sided.

    R. A. Fisher's test by randomisation (The Design of Experiments, 1935, section 21): how many of
    all assignments of signs have a sum as far from 0 as the one seen. Of more than 16 pairs 20,000
    are drawn, always the same ones.
    """
    import numpy as np  # only where there are enough repeats

    count = len(differences)
    if count <= _ALL_SIGNS:
        bits = np.arange(2**count)[:, None] >> np.arange(count)
        signs = 1 - 2 * (bits & 1)
    else:
        signs = np.random.default_rng(1).choice((-1, 1), size=(_SAMPLE, count))
        signs[0] = 1  # the one seen is one of them
    values = np.asarray(differences, dtype=float)
    seen = abs(float(values.sum()))
    # Sums of the same numbers in another order differ by rounding.
    return float(np.mean(np.abs(signs @ values) >= seen * (1 - 1e-12)))


def mann_whitney(values: Sequence[float], references: Sequence[float]) -> float:
    """Return the p-value of "neither side tends to be larger", two-sided.

    H. B. Mann and D. R. Whitney (Annals of Mathematical Statistics 18(1), 1947), by the normal
    approximation with corrections for ties and continuity, which is close from ten values on.
    """
    both = sorted([*values, *references])
    ranks: dict[float, float] = {}
    start = 0
    ties = Counter(both)
    for value, count in sorted(ties.items()):
        ranks[value] = start + (count + 1) / 2
        start += count
    n, m = len(values), len(references)
    above = sum(ranks[value] for value in values) - n * (n + 1) / 2
    tied = sum(count**3 - count for count in ties.values())
    spread = n * m / 12 * (n + m + 1 - tied / ((n + m) * (n + m - 1)))
    if spread <= 0:
        return 1.0
    distance = max(0.0, abs(above - n * m / 2) - 0.5) / math.sqrt(spread)
    return math.erfc(distance / math.sqrt(2))
