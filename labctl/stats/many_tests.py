"""Several tests at once: each more of them is one more chance to be wrong."""

from collections.abc import Sequence


def holm(probabilities: Sequence[float], error: float = 0.05) -> list[float]:
    """Return for each p-value the error at which it is judged, so that ``error`` holds for all.

    S. Holm's step-down procedure (Scandinavian Journal of Statistics 6(2), 1979): the smallest of
    ``m`` is judged at ``error / m``, the next at ``error / (m - 1)``, up to the first that fails;
    the rest is judged as that one, and fails too. A test holds where its p-value is at most its
    own error, which is just where the interval of the level ``1 - error`` excludes what it tests.
    """
    errors = [0.0] * len(probabilities)
    judged: float | None = None
    for rank, index in enumerate(sorted(range(len(probabilities)), key=probabilities.__getitem__)):
        if judged is None:
            errors[index] = error / (len(probabilities) - rank)
            if probabilities[index] > errors[index]:
                judged = errors[index]
        else:
            errors[index] = judged
    return errors
