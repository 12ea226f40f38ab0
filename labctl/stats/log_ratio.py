"""The only estimator of the difference of two sets: the geometric mean of their ratio.

All computation uses natural logarithms. Their difference is the logarithm of the ratio, noise of
the same percentage is equal noise at any speed, and times and rates give the same answer. The unit
is the repeat, which is a separate process; the tokens of a repeat are not independent.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev, variance

from labctl.stats.intervals import Interval, stopping_cost, student_cdf, student_quantile

#: Fewer sessions say too little about session-to-session variation.
LEAST_SESSIONS = 5
#: Largest exponent whose exponential is finite: the interval of two pairs can be wider.
_LARGEST = 700.0


@dataclass(frozen=True)
class Repeat:
    """A value above 0 from a run: its round, and its position among all trials of the run."""

    round: int
    position: int
    value: float


@dataclass(frozen=True)
class LogRatio:
    """The logarithm of a ratio, with its standard error and the error's degrees of freedom.

    ``noise``: standard deviation of a single repeat's logarithm, 0.02 for 2 %. ``count``: number of
    pairs, or of repeats on the smaller side. ``is_paired``: True if computed from pairs.
    ``run_noise``: standard deviation of a run's mean; None without a comparison between runs.
    """

    mean: float
    error: float
    degrees: float
    noise: float
    count: int
    is_paired: bool
    run_noise: float | None = None

    @property
    def ratio(self) -> float:
        """Ratio, a geometric mean."""
        return math.exp(self.mean)

    def interval(self, level: float) -> Interval:
        """Return the ratio with its interval (Student's, of the logarithm)."""
        half = student_quantile((1 + level) / 2, self.degrees) * self.error
        low, high = math.exp(self.mean - half), math.exp(min(self.mean + half, _LARGEST))
        return Interval(self.ratio, low, high, level, self.count)

    def p_different(self) -> float:
        """Return the p-value of "there is no difference", two-sided (Student's t test)."""
        return min(1.0, 2 * self._tail(abs(self.mean)))

    def p_beyond(self, margin: float) -> float:
        """Return the p-value of "the logarithm is not within ± ``margin``".

        Two one-sided tests (D. J. Schuirmann, J. Pharmacokinetics and Biopharmaceutics 15(6),
        1987). It is at most ``a`` exactly if the interval of level ``1 - 2a`` lies within the
        margin.
        """
        return self._tail(margin - abs(self.mean))

    def _tail(self, distance: float) -> float:
        """Return the probability that chance alone brings the mean this far to one side."""
        if self.error == 0:
            return 0.0 if distance > 0 else 1.0
        return 1 - student_cdf(distance / self.error, self.degrees)


def paired(
    values: Sequence[float], references: Sequence[float], *, stopped: bool = False
) -> LogRatio:
    """Compare pairs that were measured one after the other.

    Slow drift affects both values of a pair equally and does not change their ratio. ``stopped``:
    repeating may have stopped because a result was precise (see :func:`stopping_cost`). Raises
    ValueError for fewer than two pairs, sequences of unequal length, or if a value is <= 0.
    """
    logs = [a - b for a, b in zip(_logs(values), _logs(references), strict=True)]
    if len(logs) < 2:
        raise ValueError("a comparison needs two pairs or more")
    spread = stdev(logs)
    error = spread / math.sqrt(len(logs) - stopping_cost(len(logs), stopped=stopped))
    return LogRatio(
        fmean(logs), error, len(logs) - 1, spread / math.sqrt(2), len(logs), is_paired=True
    )


def unpaired(
    values: Sequence[float], references: Sequence[float], *, stopped: bool = False
) -> LogRatio:
    """Compare two sets of one session, without pairs.

    Equal numbers of values: Student's test, exact if both sides have the same noise in percent.
    Otherwise the test of B. L. Welch (Biometrika 34(1-2), 1947), which does not need equal noise.
    Raises ValueError for fewer than two values on a side, or if a value is <= 0.
    """
    sides = [_logs(values), _logs(references)]
    counts = [len(side) for side in sides]
    if min(counts) < 2:
        raise ValueError("a comparison needs two values or more on each side")
    squares = [
        variance(side) / (count - stopping_cost(count, stopped=stopped))
        for side, count in zip(sides, counts, strict=True)
    ]
    total = sum(squares)
    degrees = float(sum(counts) - 2)
    if counts[0] != counts[1] and total > 0:
        parts = (square**2 / (n - 1) for square, n in zip(squares, counts, strict=True))
        degrees = total**2 / sum(parts)
    noise, _ = variance_within(sides)
    mean = fmean(sides[0]) - fmean(sides[1])
    return LogRatio(mean, math.sqrt(total), degrees, math.sqrt(noise), min(counts), is_paired=False)


def within_run(
    own: Iterable[Repeat], base: Iterable[Repeat], *, stopped: bool = False
) -> LogRatio | None:
    """Compare two variants of one run: in pairs if their rounds were interleaved.

    None if too few repeats have a value.
    """
    mine, theirs = ({one.round: one for one in side} for side in (own, base))
    rounds = sorted(mine.keys() & theirs.keys())
    if len(rounds) > 1 and are_interleaved([*mine.values(), *theirs.values()]):
        return paired(
            [mine[n].value for n in rounds], [theirs[n].value for n in rounds], stopped=stopped
        )
    if min(len(mine), len(theirs)) < 2:
        return None
    return unpaired(
        [one.value for one in mine.values()],
        [one.value for one in theirs.values()],
        stopped=stopped,
    )


def are_interleaved(repeats: Iterable[Repeat]) -> bool:
    """Return True if each round ended before the next one began."""
    rounds: dict[int, list[int]] = {}
    for one in repeats:
        rounds.setdefault(one.round, []).append(one.position)
    spans = [(min(positions), max(positions)) for _, positions in sorted(rounds.items())]
    return all(before[1] < after[0] for before, after in pairwise(spans))


Session = Sequence[float]


def known_sessions(groups: Iterable[Sequence[Session]]) -> int:
    """Return the number of sessions that show session variation: degrees of freedom + 1."""
    degrees = sum(len(group) - 1 for group in groups if group)
    return degrees + 1 if degrees else 0


def between_sessions(
    values: Sequence[Session],
    references: Sequence[Session],
    history: Iterable[Sequence[Session]] = (),
) -> LogRatio:
    """Compare sessions: each has its own offset, which repeats inside it do not average out.

    The variance of a session's mean comes from groups of sessions that measured the same thing:
    those of each side, and groups of ``history``. Each session of ``history`` is a separate run,
    and not one of the two sides'. The variance includes everything that makes session means differ,
    also correlation between neighbouring repeats. If the new sessions have fewer repeats than the
    known ones, the missing noise is added (a variance of two components, with F. E. Satterthwaite's
    degrees of freedom, Biometrics Bulletin 2(6), 1946). If they have more, the interval is wider
    than necessary.

    Raises ValueError if fewer than LEAST_SESSIONS show session-to-session variation.
    """
    sides = [[_logs(one) for one in side] for side in (values, references)]
    groups = [*sides, *([_logs(one) for one in group] for group in history if group)]
    if known_sessions(groups) < LEAST_SESSIONS:
        raise ValueError(f"fewer than {LEAST_SESSIONS} sessions show session-to-session variation")
    means = [[fmean(one) for one in group] for group in groups]
    between, between_degrees = variance_within(means)
    shares = [fmean(1 / len(one) for one in group) for group in groups]
    usual = sum((len(g) - 1) * share for g, share in zip(groups, shares, strict=True))
    usual /= between_degrees
    within, within_degrees = variance_within([one for group in groups for one in group])
    count = sum(1 / len(side) for side in sides)
    more = sum(share / len(side) for share, side in zip(shares[:2], sides, strict=True))
    parts = [(between * count, between_degrees)]
    if (missing := more - usual * count) > 0 and within_degrees:
        parts.append((within * missing, within_degrees))
    total = sum(part for part, _ in parts)
    spent = sum(part**2 / degrees for part, degrees in parts)
    return LogRatio(
        fmean(means[0]) - fmean(means[1]),
        math.sqrt(total),
        total**2 / spent if spent else between_degrees,
        math.sqrt(within),
        min(sum(map(len, side)) for side in sides),
        is_paired=False,
        run_noise=math.sqrt(between),
    )


def variance_within(groups: Iterable[Sequence[float]]) -> tuple[float, int]:
    """Return the pooled variance inside groups, and its degrees of freedom."""
    squares, degrees = 0.0, 0
    for group in groups:
        if len(group) > 1:
            squares += variance(group) * (len(group) - 1)
            degrees += len(group) - 1
    return (squares / degrees if degrees else 0.0), degrees


def _logs(values: Sequence[float]) -> list[float]:
    if min(values, default=1.0) <= 0:
        raise ValueError("a ratio is of values above 0")
    return [math.log(value) for value in values]
