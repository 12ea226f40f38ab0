"""Crossings of two curves of accuracy, from draws of their difference.

The interval of a crossing is the set of times at which the difference cannot be distinguished from
0, each tested at 95 % by itself. It contains the true crossing in 95 of 100 cases (E. C. Fieller's
method, J. R. Stat. Soc. B 16, 1954). A simultaneous band decides if one side is better anywhere:
with 95 % it contains the difference at all times together (from the largest deviation of the
draws). So equal models are rarely reported to cross.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from labctl.compare.equal_latency.result import CrossingKind

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_POINTWISE = 1.959964
_LEVEL = 0.95


@dataclass(frozen=True)
class Located:
    """A crossing. ``before`` and ``after``: sign of the difference, as far as shown; 0: not shown.

    ``low`` or ``high`` None: the interval is open on that side.
    """

    kind: CrossingKind
    before: int = 0
    after: int = 0
    seconds: float | None = None
    low: float | None = None
    high: float | None = None


def locate(
    times: "NDArray[np.float64]",
    difference: "NDArray[np.float64]",
    draws: "NDArray[np.float64]",
    questions: int,
) -> list[Located]:
    """Return the crossings of a difference with 0, in order; else one entry with the reason.

    Args:
        times: ascending, s.
        difference: difference at each time.
        draws: draws of the difference, one per row.
        questions: number of questions. A question that only one side answers counts as more
            frequent than observed; otherwise the first few answers of a model would look certain.
    """
    import numpy as np

    # Use quantiles: the mean of three repeats has a Student distribution without a variance.
    low, high = np.quantile(draws, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2], axis=0)
    spread = np.hypot((high - low) / (2 * _POINTWISE), 1.0 / questions)
    far = np.abs(draws - difference) / spread
    together = max(_POINTWISE, float(np.quantile(far.max(axis=1), _LEVEL)))
    score = difference / spread
    signs = np.where(np.abs(score) > together, np.sign(score), 0).astype(int)
    band = _Band(times, difference, np.abs(score) <= _POINTWISE)
    where = np.flatnonzero(signs)
    if not len(where):
        return [Located("unclear")]
    turns = [(int(one), int(other)) for one, other in pairwise(where) if signs[one] != signs[other]]
    if not turns:
        return [band.one_sided(int(signs[where[0]]), int(where[0]), int(where[-1]))]
    return [band.between(int(signs[one]), one, other) for one, other in turns]


@dataclass(frozen=True)
class _Band:
    """A difference over time; ``is_open``: times at which it cannot be distinguished from 0."""

    times: "NDArray[np.float64]"
    difference: "NDArray[np.float64]"
    is_open: "NDArray[np.bool_]"

    def between(self, sign: int, first: int, last: int) -> Located:
        """Return the crossing between two times; ``sign`` is shown at the first time."""
        low, high = self._ends(first, last)
        return Located("crossing", sign, -sign, self._zero(sign, first, last), low, high)

    def one_sided(self, sign: int, first: int, last: int) -> Located:
        """Return the possible crossing on the side where the shown sign may change."""
        end = len(self.times) - 1
        if self.is_open[last:].any():
            seconds = self._zero(sign, last, end) if self._turns(sign, last, end) else None
            return Located("after", sign, 0, seconds, self._ends(last, end)[0], None)
        if self._turns(sign, 0, first):
            high = self._ends(0, first)[1]
            return Located("before", 0, sign, self._zero(-sign, 0, first), None, high)
        return Located("none", sign, sign)

    def _turns(self, sign: int, first: int, last: int) -> bool:
        return bool((sign * self.difference[first : last + 1] < 0).any())

    def _ends(self, first: int, last: int) -> tuple[float, float]:
        """Return the times around the open part between two indexes."""
        inside = [k for k in range(first, last + 1) if self.is_open[k]]
        low, high = (
            (max(first, inside[0] - 1), min(last, inside[-1] + 1)) if inside else (first, last)
        )
        return float(self.times[low]), float(self.times[high])

    def _zero(self, sign: int, first: int, last: int) -> float | None:
        part = slice(first, last + 1)
        found = float(zero(self.times[part], -sign * self.difference[None, part])[0])
        return found if math.isfinite(found) else None


def zero(times: "NDArray[np.float64]", differences: "NDArray[np.float64]") -> "NDArray[np.float64]":
    """Return for each row the time at which it changes from below 0 to above 0.

    If there are several, return the one with the least sum before it: least of the wrong sign on
    both sides. ``-inf`` (``inf``) if it is before the first (after the last) time.
    """
    import numpy as np

    widths = np.gradient(times)
    sums = np.cumsum(differences * widths, axis=1)
    sums = np.concatenate([np.zeros((len(sums), 1)), sums], axis=1)
    after = sums.argmin(axis=1)  # index of the first time that is above 0
    rows = np.arange(len(differences))
    right = np.clip(after, 1, len(times) - 1)
    below, above = differences[rows, right - 1], differences[rows, right]
    span = np.where(above > below, above - below, 1.0)
    share = np.where(above > below, np.clip(-below / span, 0, 1), 0.5)
    found = times[right - 1] + share * (times[right] - times[right - 1])
    found = np.where(after == 0, -np.inf, found)
    whole: NDArray[np.float64] = np.where(after == len(times), np.inf, found)
    return whole
