"""Repeats of a variant: their number, their outliers, their drift.

Outliers are reported with their causes from the telemetry, and never dropped.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from labctl.config.recipe import Precision
from labctl.figures.trials import token_time
from labctl.records.trial import TelemetrySummary, TrialRecord
from labctl.results.gates import METRICS
from labctl.results.summary import (
    Estimate,
    VariantSummary,
    estimate_of,
    good_trials,
    summarise,
)
from labctl.stats.describe import find_trend, mad, median
from labctl.stats.intervals import STOPPING_COST, Interval
from labctl.units import confidence, digits

#: B. Iglewicz and D. Hoaglin (1993): more than 3.5 robust standard deviations from the median.
_DEVIATIONS = 3.5
#: Smallest deviation of an outlier, as a share of the median: some boards repeat times to the
#: microsecond.
_NEGLIGIBLE = 0.02
#: Minimum number of repeats for an outlier.
_LEAST = 4
_HOTTER_MC = 5_000
_SLOWER = 0.97
_MORE_FAULTS, _FEW_FAULTS = 2, 100
_LOUDER = 0.1


@dataclass(frozen=True)
class Outlier:
    """A trial whose token time differs from the other trials of its variant.

    ``causes`` is None without telemetry.
    """

    number: int
    variant: str
    factor: float
    causes: tuple[str, ...] | None

    @property
    def sentence(self) -> str:
        """Description for people."""
        if self.causes is None:
            why = "no telemetry, cause unknown"
        else:
            why = ", ".join(self.causes) or "its telemetry shows no cause"
        return (
            f"outlier: trial {self.number} of {self.variant} took {self.factor:.2f} times as long"
            f" a token as the others ({why}); it is counted"
        )


def outliers(trials: Iterable[TrialRecord]) -> list[Outlier]:
    """Yield the outliers among the good repeats of each variant, in order."""
    groups: dict[str, list[TrialRecord]] = {}
    for trial in good_trials(trials):
        if token_time(trial):
            groups.setdefault(trial.variant, []).append(trial)
    found = [o for g in groups.values() if len(g) >= _LEAST for o in _of_group(g)]
    return sorted(found, key=lambda outlier: outlier.number)


def _of_group(group: Sequence[TrialRecord]) -> Iterator[Outlier]:
    times = [token_time(trial) or 0 for trial in group]
    middle, spread = median(times), mad(times)
    limit = max(_DEVIATIONS * spread, _NEGLIGIBLE * middle)
    for trial, time in zip(group, times, strict=True):
        if abs(time - middle) > limit:
            others = [t.evidence for t in group if t is not trial and t.evidence]
            causes = None
            if trial.evidence and others:
                causes = tuple(_causes(trial.evidence, others, slow=time > middle))
            yield Outlier(trial.number, trial.variant, time / middle, causes)


def _causes(
    own: TelemetrySummary, others: Sequence[TelemetrySummary], *, slow: bool
) -> Iterator[str]:
    """Yield values worse than in the other repeats, or better if this repeat was faster."""

    def pair(value: Callable[[TelemetrySummary], float | None]) -> tuple[float, float] | None:
        known = [v for other in others if (v := value(other)) is not None]
        mine = value(own)
        return None if mine is None or not known else (mine, median(known))

    def more(values: tuple[float, float], factor: float, margin: float) -> bool:
        mine, usual = values if slow else values[::-1]
        return mine > factor * usual + margin

    heat = pair(lambda e: e.highest_temperature_mc)
    if heat and more(heat, 1, _HOTTER_MC):
        yield f"temperature: {heat[0] / 1000:.0f} °C, otherwise {heat[1] / 1000:.0f} °C"
    clock = pair(lambda e: e.lowest_khz)
    if clock and more(clock[::-1], 1 / _SLOWER, 0):
        yield f"frequency: down to {clock[0] / 1000:.0f} MHz, otherwise {clock[1] / 1000:.0f} MHz"
    elif slow and own.limited and not any(other.limited for other in others):
        yield "frequency: the board lowered its clock"
    faults = pair(lambda e: e.major_faults)
    if faults and more(faults, _MORE_FAULTS, _FEW_FAULTS):
        yield f"major faults: {faults[0]:.0f}, otherwise {faults[1]:.0f}"
    load = pair(lambda e: e.others_share)
    if load and more(load, 1, _LOUDER):
        yield f"load: others used {load[0]:.0%} of a CPU, otherwise {load[1]:.0%}"
    reclaim = pair(lambda e: e.reclaim_share)
    if reclaim and more(reclaim, 1, _LOUDER):
        yield f"memory: freeing it took {reclaim[0]:.0%} of a CPU, otherwise {reclaim[1]:.0%}"
    stolen = pair(lambda e: e.steal_share)
    if stolen and more(stolen, 1, _LOUDER / 2):
        yield f"load: {stolen[0]:.0%} of a CPU was stolen, otherwise {stolen[1]:.0%}"


#: Minimum number of repeats for a statement about their spread.
LEAST_REPEATS = STOPPING_COST + 1


def fewest_repeats(wanted: Precision | None, repeats: int) -> int:
    """Return the number of repeats made whatever the results; ``repeats``: the recipe's number."""
    return min(max(repeats, LEAST_REPEATS), wanted.max_repeats) if wanted else repeats


def values_of(metric: str, trials: Iterable[TrialRecord]) -> list[float]:
    """Return a metric of each good trial, warm-ups excluded: independent values."""
    found = (METRICS[metric](row) for trial in good_trials(trials) for row in summarise([trial]))
    return [value for value in found if value is not None]


def is_narrow(wanted: Precision, interval: Interval | None) -> bool:
    """Return True if an interval is as narrow as the recipe asks."""
    return (
        interval is not None
        and interval.count >= LEAST_REPEATS
        and interval.relative <= wanted.confidence_interval
    )


def is_enough(wanted: Precision, trials: Iterable[TrialRecord]) -> bool:
    """Return True if a variant needs no further repeat."""
    found = _estimate(wanted, trials)
    return is_narrow(wanted, found.interval if found else None)


def _estimate(wanted: Precision, trials: Iterable[TrialRecord]) -> Estimate | None:
    return estimate_of(values_of(wanted.metric, trials), wanted)


def verdict(wanted: Precision, variant: str, trials: Sequence[TrialRecord]) -> str:
    """Describe the precision of a variant's result, and compare it with the requested one."""
    found = _estimate(wanted, trials)
    interval = found.interval if found else None
    asked = f"± {wanted.confidence_interval:.1%} from {LEAST_REPEATS} or more repeats"
    if found is None or interval is None:
        return f"{variant}: {wanted.metric}: too few repeats for an interval; not reached: {asked}"
    if interval.is_vague:
        known = f"{digits(found.value)}, {vague(interval, 'repeats')}"
        return f"{variant}: {wanted.metric} {known}; not reached: {asked}"
    text = (
        f"{variant}: {wanted.metric} {digits(found.value)} ± {interval.relative:.1%}"
        f" ({confidence(interval.level)}% interval {_range(interval)}, {interval.count} repeats)"
    )
    return text if is_narrow(wanted, interval) else f"{text}; not reached: {asked}"


def ratio_verdict(row: VariantSummary, first: str) -> str | None:
    """Return a sentence on the precision of a variant's ratio; None below two pairs."""
    found = row.ratio_interval
    if found is None:
        return None
    if found.is_vague:
        return f"{row.variant}: ratio to {first}: {vague(found, 'rounds')}"
    text = (
        f"{row.variant}: {digits(found.mean)} times the token time of {first}"
        f" ({confidence(found.level)}% interval {_range(found)}, {found.count} rounds)"
    )
    return f"{text}: no difference is shown" if found.low <= 1 <= found.high else text


def vague(interval: Interval, of: str) -> str:
    """Explain why an interval is meaningless."""
    return f"its {interval.count} {of} differ too much: the interval is wider than ± 100%"


def trend_verdict(variant: str, trials: Iterable[TrialRecord]) -> str | None:
    """Return a sentence if token times rise or fall from repeat to repeat; None if they do not.

    One run in twenty gets the sentence by chance alone.
    """
    repeats = sorted(good_trials(trials), key=lambda trial: trial.repeat)
    times = [time for trial in repeats if (time := token_time(trial))]
    trend = find_trend(times)
    if trend is None:
        return None
    return (
        f"{variant}: trend: token time {trend.slope / median(times):+.2%} a repeat over"
        f" {len(times)} repeats (Mann-Kendall test, p = {trend.probability:.2g}): its interval"
        " holds only without a trend"
    )


def _range(interval: Interval) -> str:
    return f"{digits(interval.low)} to {digits(interval.high)}"
