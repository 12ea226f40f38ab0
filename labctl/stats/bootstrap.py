"""Random draws of questions and of repeats, as matrices."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def draw_questions(count: int, resamples: int, seed: int) -> "NDArray[np.float64]":
    """Return how often each of ``count`` questions is drawn, one row per resample.

    A row sums to ``count``. The same arguments give the same draws, so results on the same
    questions use the same draws.
    """
    import numpy as np

    chance = np.random.default_rng(seed)
    return chance.multinomial(count, np.full(count, 1 / count), resamples).astype(np.float64)


def draw_means(values: "NDArray[np.float64]", resamples: int, seed: int) -> "NDArray[np.float64]":
    """Return draws of the mean of a few repeats, one row per resample.

    ``values`` has one row per repeat. The draws have a (multivariate) Student's distribution with
    the repeats' covariance: resampling three repeats would make their mean look far more certain
    than it is. For one repeat, all draws are equal.
    """
    import numpy as np

    count = len(values)
    mean = values.mean(axis=0)
    if count < 2:
        return np.repeat(mean[None, :], resamples, axis=0)
    chance = np.random.default_rng(seed)
    parts = chance.standard_normal((resamples, count)) @ (values - mean)
    spread = np.sqrt(chance.chisquare(count - 1, resamples) / (count - 1))
    drawn: NDArray[np.float64] = mean + parts / np.sqrt(count * (count - 1)) / spread[:, None]
    return drawn
