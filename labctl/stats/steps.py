"""Steps in a series of values that should be equal: place and size of each change of level.

A step is shown if noise alone does not explain it: the gain of a cut (reduction of the squared
distances to the levels) is larger than in 99 % of series with the same noise and no step. Such
series are made from the noise left after the cut. Each night keeps the size of its own noise, but
its sign is drawn anew (wild bootstrap: C. F. J. Wu, Annals of Statistics 14(4), 1986). Each night
resembles the night before as closely as the series allows (S. Gonçalves and L. Kilian, J. of
Econometrics 123(1), 2004). So noise may wander, and may change its size. The step must show in
means of up to three nights too, where slow wandering is easier to see, and explain more than a
straight line. Pairs of cuts (a level that is left and reached again) are tried as well as single
cuts (A. B. Olshen et al., Biostatistics 5(4), 2004), and parts of the series as well as the whole
(P. Fryzlewicz, Annals of Statistics 42(6), 2014). Outliers are limited first (F. R. Hampel, JASA
69, 1974).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from labctl.stats.describe import MAD_TO_SIGMA

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Minimum number of values of a level: up to three bad nights of seven are not a step.
LEAST_NIGHTS = 4
_AROUND = 7
#: Minimum number of values to search for a step: the noise must be known.
LEAST_SERIES = 10
#: Minimum noise, in logarithms: a clock that repeats itself does not mean no noise.
_LEAST_SIGMA = 0.001
#: Values further than this from the median of their neighbours are outliers, in sigmas.
_OUT_OF_LINE = 3.0
#: Values are limited to this distance from the levels of their series, in sigmas.
_PULLED_IN = 3.5
#: Differences larger than this are steps or outliers, in sigmas of a difference.
_NO_NOISE = 3.0
#: A smaller number and share of non-zero differences are steps and outliers, not noise.
_FEW_MOVED = 4
_SHARE_MOVED = 0.05
#: Share of the spread of normal values that remains without these.
_TRIMMED = 0.9866
#: Number of generated series of noise alone, and the share of them that may show a step.
_MADE = 300
_FALSE = 0.01
#: Maximum share of series of 100 nights without a step that show a step: read once, with any noise;
#: and read each morning, with independent noise. docs/comparing.md has other kinds.
FALSE_ONCE = 0.05
FALSE_EACH_MORNING = 0.1
#: Minimum gain of a step, in squares of the noise, even if noise alone had none.
_LEAST_GAIN = 10.0
#: Amount by which the correlation of neighbours is estimated too low with one and with two best
#: cuts, times the number of nights: a constant, and a part that grows with it (simulated).
_TOO_LOW = ((4.0, 7.0), (5.0, 10.0))
#: Means of several nights: maximum nights per mean, minimum means of a series and of a level.
_MOST_JOINED = 3
_LEAST_MEANS = 30
_LEAST_LEVEL = 2
#: Minimum by which a step must explain more than a straight line, as twice the logarithm of
#: likelihoods: in a series of fewer nights than _LINE_NIGHTS, and in longer ones.
_MORE_THAN_A_LINE = (4.0, 6.0)
_LINE_NIGHTS = 50
#: Shorter series are not searched in parts; parts below a half have at least _LEAST_PART nights. A
#: change in a part needs _IN_PARTS times the gain.
_LEAST_PARTS = 40
_LEAST_PART = 30
_IN_PARTS = 4.0
#: Share of generated series whose step is in the range. It is above 95 %, since a small step is
#: shown mostly if noise makes it larger; then the range contains 93 % or more (simulated).
_HELD = 0.995


@dataclass(frozen=True)
class Step:
    """A change of level; ``before`` and ``after`` are the levels.

    ``index`` is the first value of the new level; with 95 % probability it is from ``earliest`` to
    ``latest``.
    """

    index: int
    earliest: int
    latest: int
    before: float
    after: float

    @property
    def ratio(self) -> float:
        """New level divided by the old one."""
        return self.after / self.before

    @property
    def size(self) -> float:
        """Larger level divided by the smaller one, minus 1: 0.02 is 2 %."""
        return max(self.ratio, 1 / self.ratio) - 1


def find_steps(values: Sequence[float]) -> list[Step]:
    """Return the steps in values above 0, in their order; levels are geometric means.

    At most 5 % of series without a step show one; docs/comparing.md has the measured rates. Fewer
    than :data:`LEAST_SERIES` values show no step. Raises ValueError if a value is <= 0.
    """
    if not all(0 < value < math.inf for value in values):  # false for NaN
        raise ValueError("steps are looked for in values above 0")
    if len(values) < LEAST_SERIES:
        return []
    import numpy as np

    logs = np.log(np.asarray(values, dtype=np.float64))
    cuts = [0, *_placed(logs, _cuts(logs)), len(logs)]
    cleaned = _cleaned(logs, noise(logs))
    found = []
    for start, cut, end in zip(cuts, cuts[1:], cuts[2:], strict=False):
        before, after = (float(cleaned[a:b].mean()) for a, b in ((start, cut), (cut, end)))
        earliest, latest = _range(logs[start:end], cut - start)
        found.append(Step(cut, start + earliest, start + latest, math.exp(before), math.exp(after)))
    return found


def smallest_step(values: Sequence[float], steps: Sequence[Step]) -> float | None:
    """Return the smallest further step that this series can show, as 0.08 for 8 %.

    A smaller step would not be found even in the middle of the series. None if the series is too
    short, or if even a factor of 2 would not be found.
    """
    if len(values) < LEAST_SERIES:
        return None
    import numpy as np

    logs = np.log(np.asarray(values, dtype=np.float64))
    bounds = [0, *(step.index for step in steps), len(logs)]
    rest = np.concatenate([_pulled_in(logs[a:b]) for a, b in pairwise(bounds)])
    count = len(rest)
    needed = [
        2 * math.sqrt(one.least * one.variance / len(series))
        for series, least in _scales(rest)
        for one in [_strongest(series, 1, least)]
    ]
    spread = math.sqrt(_strongest(rest, 1, LEAST_NIGHTS).variance)
    needed.append(4 * spread * math.sqrt(math.expm1(_more_than_a_line(count) / count)))
    smallest = math.expm1(max(needed))
    return smallest if smallest <= 1 else None


def noise(logs: "NDArray[np.float64]") -> float:
    """Return the standard deviation of values about their level, ignoring steps."""
    import numpy as np

    differences = np.abs(np.diff(logs))
    moved = differences[differences > 0]
    # If rounding made most values equal, the others show the noise.
    is_rounded = len(moved) >= max(_FEW_MOVED, _SHARE_MOVED * len(differences))
    middle = float(np.median(moved if is_rounded else differences))
    limit = _NO_NOISE * MAD_TO_SIGMA * middle
    kept = differences[differences <= limit]
    return max(_LEAST_SIGMA, float(np.sqrt(np.mean(kept**2) / 2)) / _TRIMMED)


def _cleaned(logs: "NDArray[np.float64]", sigma: float) -> "NDArray[np.float64]":
    """Replace outliers by the median of the seven values around them; edges stay."""
    import numpy as np

    around = min(_AROUND, len(logs))
    middle = np.median(np.lib.stride_tricks.sliding_window_view(logs, around), axis=1)
    before = (around - 1) // 2
    middle = np.pad(middle, (before, around - 1 - before), mode="edge")
    return np.where(np.abs(logs - middle) > _OUT_OF_LINE * sigma, middle, logs)


def _pulled_in(
    logs: "NDArray[np.float64]", levels: Sequence[float] | None = None
) -> "NDArray[np.float64]":
    """Return values minus their mean, limited to the range of noise around the levels."""
    import numpy as np

    reach = _PULLED_IN * noise(logs) if len(logs) > 1 else 0.0
    levels = levels or np.quantile(logs, (0.25, 0.75)).tolist()
    kept = np.clip(logs, min(levels) - reach, max(levels) + reach)
    return np.asarray(kept - kept.mean())


def _cuts(logs: "NDArray[np.float64]") -> list[int]:
    """Return the first index of each level except the first level."""
    count = len(logs)
    if count < LEAST_SERIES:
        return []
    for start, end, strength in _parts(count):
        found = [start + cut for cut in _shown(logs[start:end], strength)]
        if found:
            found = _placed(logs, found)
            inner = [a + cut for a, b in pairwise([0, *found, count]) for cut in _cuts(logs[a:b])]
            return sorted({*found, *inner})
    return []


def _parts(count: int) -> Iterator[tuple[int, int, float]]:
    """Yield the parts of a series to search for a change, with the strength that it needs.

    First the whole, then its halves, then their halves: with many changes, no one or two cuts of
    the whole explain enough. Parts overlap by half.
    """
    yield 0, count, 1.0
    pieces = 2
    while count >= _LEAST_PARTS and (pieces == 2 or count // pieces >= _LEAST_PART):
        size = count // pieces
        for n in range(2 * pieces - 1):
            start = (count - size) * n // (2 * pieces - 2)
            yield start, start + size, _IN_PARTS
        pieces *= 2


def _placed(logs: "NDArray[np.float64]", cuts: Sequence[int]) -> list[int]:
    """Move each cut to its best place between its neighbours."""
    placed = [0, *cuts, len(logs)]
    for n in range(1, len(placed) - 1):
        start, end = placed[n - 1], placed[n + 1]
        _, places, _ = _best(_pulled_in(logs[start:end])[None], 1, LEAST_NIGHTS)
        placed[n] = start + int(places[0])
    return placed[1:-1]


def _shown(logs: "NDArray[np.float64]", strength: float) -> list[int]:
    """Return the cuts of a change of level that noise does not explain; none if noise does."""
    import numpy as np

    series = _pulled_in(logs)
    found = None
    for values, least in _scales(series):
        tried = [_strongest(values, cuts, least) for cuts in (1, 2)]
        strengths = [one.strength(strength) for one in tried]
        if max(strengths) <= strength:
            return []
        found = found or tried[strengths.index(max(strengths))]
    if found is None:
        return []
    places = np.arange(len(series)) - (len(series) - 1) / 2
    line = float(places @ series) ** 2 / float(places @ places)
    more = math.log((series @ series - line) / (len(series) * found.variance))
    return found.cuts if len(series) * more > _more_than_a_line(len(series)) else []


def _more_than_a_line(count: int) -> float:
    return _MORE_THAN_A_LINE[count >= _LINE_NIGHTS]


def _scales(series: "NDArray[np.float64]") -> Iterator[tuple["NDArray[np.float64]", int]]:
    """Yield a series and, if long, means of neighbours, each with its minimum level length."""
    yield series, LEAST_NIGHTS
    joined = min(_MOST_JOINED, len(series) // _LEAST_MEANS)
    if joined > 1:
        means = series[len(series) % joined :].reshape(-1, joined).mean(axis=1)
        yield _pulled_in(means), _LEAST_LEVEL


@dataclass(frozen=True)
class _Strongest:
    """The best cuts of a series: their gain in squares of the noise, and the remaining noise."""

    cuts: list[int]
    least_level: int
    gain: float
    left: "NDArray[np.float64]"
    weight: "NDArray[np.float64]"

    @property
    def variance(self) -> float:
        """Variance of the remaining noise."""
        return max(float(self.left @ self.left) / len(self.left), _LEAST_SIGMA**2)

    @property
    def least(self) -> float:
        """Minimum gain that noise does not explain."""
        import numpy as np

        count = len(self.left)
        made = _noise_like(self.left / self.weight, _resemblance(self.left, len(self.cuts)))
        gains, _, _ = _best(made, len(self.cuts), self.least_level)
        rest = np.maximum((made**2).sum(axis=1) - gains, count * _LEAST_SIGMA**2)
        return max(_LEAST_GAIN, float(np.quantile(gains * count / rest, 1 - _FALSE)))

    def strength(self, needed: float) -> float:
        """Return the gain divided by the minimum gain; 0 if certainly below the needed strength."""
        return self.gain / self.least if self.gain > needed * _LEAST_GAIN else 0.0


def _strongest(series: "NDArray[np.float64]", cuts: int, least: int) -> _Strongest:
    """Find the best one or two cuts of values about 0."""
    import numpy as np

    gains, starts, ends = _best(series[None], cuts, least)
    inside = np.zeros(len(series), dtype=bool)
    inside[starts[0] : ends[0]] = True
    left = series.copy()
    weight = np.ones(len(series))
    for level in (inside, ~inside):
        if level.any():
            left[level] -= series[level].mean()
            weight[level] = 1 - 1 / max(2, int(level.sum()))  # the level took some of the noise
    places = [int(starts[0])] if cuts == 1 else [int(starts[0]), int(ends[0])]
    found = _Strongest(places, least, 0.0, left, weight)
    return replace(found, gain=float(gains[0]) / found.variance)


def _best(
    rows: "NDArray[np.float64]", cuts: int, least: int
) -> tuple["NDArray[np.float64]", "NDArray[np.intp]", "NDArray[np.intp]"]:
    """Return the largest gain of a level from a start to an end in each row of values about 0.

    With one cut, the level lasts to the end of the row. With two cuts it ends before; its lengths
    are tried in steps of a fifth.
    """
    import numpy as np

    count = rows.shape[1]
    sums = np.concatenate([np.zeros((len(rows), 1)), np.cumsum(rows, axis=1)], axis=1)
    if cuts == 1:
        places = np.arange(least, count - least + 1)
        gains = sums[:, places] ** 2 * (count / (places * (count - places)))
        at = gains.argmax(axis=1)
        ends = np.full(len(rows), count, dtype=np.intp)
        return gains.max(axis=1), places[at], ends
    best = np.zeros(len(rows))
    starts = np.zeros(len(rows), dtype=np.intp)
    ends = np.zeros(len(rows), dtype=np.intp)
    length = least
    while length <= count - 2 * least:
        inside = (
            sums[:, least + length : count - least + 1]
            - sums[:, least : count - least - length + 1]
        )
        inside = inside**2 * (count / (length * (count - length)))
        at = inside.argmax(axis=1)
        gains = inside.max(axis=1)
        better = gains > best
        best[better] = gains[better]
        starts[better] = at[better] + least
        ends[better] = starts[better] + length
        length = max(length + 1, length * 6 // 5)
    return best, starts, ends


def _resemblance(left: "NDArray[np.float64]", cuts: int) -> float:
    """Return the largest likely correlation of neighbours in the noise that remains after cuts."""
    import numpy as np

    count = len(left)
    cleaned = _cleaned(left, noise(left))
    squares = float(cleaned @ cleaned)
    seen = float(cleaned[1:] @ cleaned[:-1]) / squares if squares else 0.0
    constant, growing = _TOO_LOW[cuts - 1]
    most = (seen + constant / count + 1 / math.sqrt(count)) / max(0.1, 1 - growing / count)
    return float(np.clip(most, 0.0, 1.0))


def _noise_like(
    left: "NDArray[np.float64]", resemblance: float, cut: int | None = None
) -> "NDArray[np.float64]":
    """Make rows of noise about 0, with the sizes of the given noise at each place.

    With a cut, the sizes are shuffled on each side of it.
    """
    import numpy as np

    new = left.copy()
    new[1:] -= resemblance * left[:-1]
    chance = np.random.default_rng(len(left))
    rows = new * (chance.integers(0, 2, (_MADE, len(left))) * 2.0 - 1)
    if cut is not None:
        rows = np.hstack([chance.permuted(side, axis=1) for side in np.split(rows, [cut], axis=1)])
    rows = np.asfortranarray(rows)
    for n in range(1, len(left)):
        rows[:, n] += resemblance * rows[:, n - 1]
    return np.asarray(rows - rows.mean(axis=1, keepdims=True))


def _range(logs: "NDArray[np.float64]", cut: int) -> tuple[int, int]:
    """Return the first and last place to which noise could have moved the cut of two levels."""
    import numpy as np

    sides = (slice(0, cut), slice(cut, None))
    series = _pulled_in(logs, [float(np.median(logs[side])) for side in sides])
    levels = np.empty(len(series))
    for side in sides:
        levels[side] = series[side].mean()
    left = series - levels
    rows = np.vstack([series, levels + _noise_like(left, _resemblance(left, 1), cut)])
    places = np.arange(1, len(series))
    gains = np.cumsum(rows, axis=1)[:, :-1] ** 2 * (len(series) / (places * (len(series) - places)))
    lost = gains.max(axis=1) - gains[:, cut - 1]
    near = places[gains[0] >= gains[0].max() - np.quantile(lost[1:], _HELD)]
    return min(int(near[0]), cut), max(int(near[-1]), cut)
