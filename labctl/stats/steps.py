"""Steps in a series of values that should be equal: where a level changes, and by how much.

The series is cut where a sum of squares about the levels between the cuts is the least, each cut
at the cost of a penalty (optimal partitioning: B. Jackson et al., IEEE Signal Processing Letters
12(2), 2005). The penalty is in squares of the series' own noise, which comes from the differences
of neighbours (J. von Neumann et al., Annals of Mathematical Statistics 12(2), 1941): a step is one
large difference among many and hardly changes it. Before that, single values that are out of line
with their neighbours are replaced (F. R. Hampel, JASA 69, 1974).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labctl.stats.describe import MAD_TO_SIGMA

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Fewest values of a level: up to three bad nights of seven are no step.
LEAST_NIGHTS = 4
_AROUND = 7
#: Fewest values in which a step is looked for: the noise has to be known.
LEAST_SERIES = 10
#: The least noise that is believed, in logarithms: a clock that repeats itself is no noise of 0.
_LEAST_SIGMA = 0.001
#: Values further than this from the median of those around them are out of line, in sigmas.
_OUT_OF_LINE = 3.0
#: Differences further out than this are steps or outliers, in sigmas of a difference.
_NO_NOISE = 3.0
#: Fewer differences that are not 0, and a smaller share of them, are steps and outliers.
_FEW_MOVED = 4
_SHARE_MOVED = 0.05
#: Share of the spread of normal values that is left without those.
_TRIMMED = 0.9866
#: Penalty of a cut in a long series, in squares of its noise, and the number of values of a short
#: one that show nothing of its noise: by simulation, less than one false step in 1,000 series.
_PENALTY = 20.0
_UNKNOWN = 4
#: Squares of the noise by which a cut may be worse than the best one, with 95 % probability.
_DOUBT = 6.0


@dataclass(frozen=True)
class Step:
    """A change of level: ``index`` is the first value of the new one, ``before`` and ``after`` are
    the levels.

    With 95 % probability the first value of the new level is from ``earliest`` to ``latest``.
    """

    index: int
    earliest: int
    latest: int
    before: float
    after: float

    @property
    def ratio(self) -> float:
        """The new level over the old one."""
        return self.after / self.before


def find_steps(values: Sequence[float], *, at_least: float = 0.0) -> list[Step]:
    """Return the steps in values above 0, in their order; levels are geometric means.

    At most one false step is found in 1,000 series of 100 normal values. Steps whose ratio is
    nearer to 1 than ``at_least`` (0.02: by less than 2 %) are left out. Fewer than
    :data:`LEAST_SERIES` values have none. Raises ValueError for values that are not above 0.
    """
    if min(values, default=1.0) <= 0:
        raise ValueError("steps are looked for in values above 0")
    if len(values) < LEAST_SERIES:
        return []
    import numpy as np

    logs = np.log(np.asarray(values, dtype=np.float64))
    sigma = noise(logs)
    cleaned = _cleaned(logs, sigma)
    cuts = [0, *_cuts(cleaned, penalty(len(logs)) * sigma**2), len(logs)]
    found = []
    for start, cut, end in zip(cuts, cuts[1:], cuts[2:], strict=False):
        before, after = (float(cleaned[a:b].mean()) for a, b in ((start, cut), (cut, end)))
        earliest, latest = _range(cleaned[start:end], cut - start, _DOUBT * sigma**2)
        step = Step(cut, start + earliest, start + latest, math.exp(before), math.exp(after))
        if max(step.ratio, 1 / step.ratio) >= 1 + at_least:
            found.append(step)
    return found


def noise(logs: "NDArray[np.float64]") -> float:
    """Return the standard deviation of values about their level, whatever steps there are."""
    import numpy as np

    differences = np.abs(np.diff(logs))
    moved = differences[differences > 0]
    # If rounding made most values equal, the others show the noise.
    is_rounded = len(moved) >= max(_FEW_MOVED, _SHARE_MOVED * len(differences))
    middle = float(np.median(moved if is_rounded else differences))
    limit = _NO_NOISE * MAD_TO_SIGMA * middle
    kept = differences[differences <= limit]
    return max(_LEAST_SIGMA, float(np.sqrt(np.mean(kept**2) / 2)) / _TRIMMED)


def penalty(count: int) -> float:
    """Return what a cut of a series costs, in squares of its noise.

    The noise of a short series is known badly, and the ratio to it is spread as Student's is.
    """
    known = count - _UNKNOWN
    return known * math.expm1(_PENALTY / known)


def _cleaned(logs: "NDArray[np.float64]", sigma: float) -> "NDArray[np.float64]":
    """Replace values that are out of line by the median of the seven around them; edges stay."""
    import numpy as np

    middle = np.median(np.lib.stride_tricks.sliding_window_view(logs, _AROUND), axis=1)
    middle = np.pad(middle, _AROUND // 2, mode="edge")  # at the ends: of the last seven
    return np.where(np.abs(logs - middle) > _OUT_OF_LINE * sigma, middle, logs)


def _cuts(logs: "NDArray[np.float64]", cost: float) -> list[int]:
    """Return the first index of each level but the first, of the best cuts."""
    import numpy as np

    count = len(logs)
    centred = logs - logs.mean()  # squares of small numbers: nothing is lost in their differences
    sums, squares = (np.concatenate([[0.0], np.cumsum(x)]) for x in (centred, centred**2))
    best = np.full(count + 1, np.inf)
    best[0] = -cost
    last = np.zeros(count + 1, dtype=np.intp)
    for end in range(LEAST_NIGHTS, count + 1):
        starts = np.arange(end - LEAST_NIGHTS + 1)
        inside = squares[end] - squares[starts] - (sums[end] - sums[starts]) ** 2 / (end - starts)
        total = best[starts] + inside + cost
        last[end] = np.argmin(total)
        best[end] = total[last[end]]
    found = []
    end = count
    while end := int(last[end]):
        found.append(end)
    return found[::-1]


def _range(logs: "NDArray[np.float64]", cut: int, doubt: float) -> tuple[int, int]:
    """Return the first and the last place of a cut in two levels that is hardly worse than it."""
    import numpy as np

    places = np.arange(1, len(logs))
    sums = np.cumsum(logs - logs.mean())[:-1]
    explained = sums**2 / places + sums**2 / (len(logs) - places)
    near = places[explained >= explained[cut - 1] - doubt]
    return int(near[0]), int(near[-1])
