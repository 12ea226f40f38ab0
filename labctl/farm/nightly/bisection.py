"""Search for the first slow commit of a list by noisy measurements, with a stated error.

Each pair of runs, of the last good build and of a commit, updates the probability of each commit to
be the first slow one (a Bayesian bisection, as in R. Nowak, Noisy generalized binary search, NIPS
2009). The model of a pair: the confirmed slowdown from the first slow commit on, no slowdown before
it, and noise with heavy tails. The commit with the least certain answer is measured next. When one
place has nearly all probability, its commit and the commit before it are compared in turns: only
this comparison names a commit. Otherwise the answer is a range.
"""

import math
from dataclasses import dataclass, field

#: Probability at which a place is compared with the place before it.
CONFIDENT = 0.997
#: Probability of the commits of a range.
RANGE = 0.999
#: Pairs of one measurement of a commit.
PAIRS = 2
#: A search that needs more pairs for each halving fails: no single commit has the slowdown.
_MOST_PER_STEP = 14
#: Degrees of freedom of the noise's distribution (Student's): an outlier has little weight.
_DEGREES = 4


@dataclass(frozen=True)
class Places:
    """Places of a range, from ``first`` to ``last``, which contains the first slow commit."""

    first: int
    last: int


@dataclass
class Bisection:
    """Search in ``count`` commits, oldest first; the last one is slow.

    Args:
        slowdown: the confirmed slowdown, as a logarithm.
        noise: standard deviation of the logarithm of one run's value.
    """

    count: int
    slowdown: float
    noise: float
    #: Commits that cannot be built or run: they are skipped, as git does.
    skipped: set[int] = field(default_factory=set)
    #: Commits that a comparison found not slower than the commit before them.
    cleared: set[int] = field(default_factory=set)
    pairs: int = 0

    def __post_init__(self) -> None:
        self._logs = [0.0] * self.count

    def observe(self, place: int, change: float, before: int = -1) -> None:
        """Note a pair: the logarithm of a commit's time over the time of a commit ``before`` it.

        ``before`` is the last good build by default.
        """
        scale = max(self.noise, 1e-6) * math.sqrt(2) * math.sqrt((_DEGREES - 2) / _DEGREES)
        slow, fast = (_log_student((change - mean) / scale) for mean in (self.slowdown, 0.0))
        for first in range(self.count):
            self._logs[first] += slow if before < first <= place else fast
        self.pairs += 1

    def clear(self, places: Places) -> None:
        """Note that some commits do not contain the first slow one, regardless of earlier pairs."""
        for place in range(places.first, places.last + 1):
            self.cleared.add(place)

    def skip(self, place: int) -> None:
        """Note that a commit cannot be measured."""
        self.skipped.add(place)

    @property
    def all_cleared(self) -> bool:
        """True if no commit can be the first slow one: several share the slowdown."""
        return len(self.cleared) == self.count

    @property
    def probabilities(self) -> list[float]:
        """Probability of each commit to be the first slow one."""
        logs = [-math.inf if n in self.cleared else log for n, log in enumerate(self._logs)]
        top = max(logs)
        if top == -math.inf:
            return [0.0] * self.count
        weights = [math.exp(log - top) for log in logs]
        total = sum(weights)
        return [weight / total for weight in weights]

    @property
    def most(self) -> int:
        """The largest useful number of pairs."""
        return _MOST_PER_STEP * (2 + math.ceil(math.log2(max(2, self.count))))

    def likely(self) -> Places | None:
        """Return the place with nearly all probability; None if there is no such place yet.

        The place has several commits if some of them cannot be measured.
        """
        known = self.probabilities
        for places in self._places():
            if sum(known[places.first : places.last + 1]) >= CONFIDENT:
                return places
        return None

    def next(self) -> int | None:
        """Return the commit to measure now; None if no further measurement would help."""
        known = self.probabilities
        best: tuple[float, int] | None = None
        slow = 0.0
        for place in range(self.count - 1):
            slow += known[place]
            if place not in self.skipped:
                best = min(best or (1.0, place), (abs(slow - 0.5), place))
        return None if best is None else best[1]

    def range(self) -> Places:
        """Return the shortest range of commits that has probability RANGE."""
        known, places = self.probabilities, self._places()
        low, high, total = 0, len(places) - 1, 1.0
        shares = [sum(known[one.first : one.last + 1]) for one in places]
        while low < high:
            end = low if shares[low] <= shares[high] else high
            if total - shares[end] < RANGE:
                break
            total -= shares[end]
            low, high = (low + 1, high) if end == low else (low, high - 1)
        return Places(places[low].first, places[high].last)

    def _places(self) -> list[Places]:
        """Return the places that measurements can distinguish."""
        found, first = [], 0
        for place in range(self.count):
            if place not in self.skipped or place == self.count - 1:
                found.append(Places(first, place))
                first = place + 1
        return found


def _log_student(value: float) -> float:
    return -(_DEGREES + 1) / 2 * math.log1p(value**2 / _DEGREES)
