"""Repeating until a result is known well enough."""

from collections.abc import Iterable, Sequence

from labctl.config.recipe import Precision
from labctl.records import TrialRecord
from labctl.results.gates import METRICS
from labctl.results.summary import VariantSummary, good_trials, interval_of, summarise, token_time
from labctl.stats import STOPPING_COST, Interval, find_trend, median
from labctl.units import digits

#: Fewer repeats say next to nothing about their own spread.
LEAST_REPEATS = STOPPING_COST + 1


def fewest_repeats(wanted: Precision | None, repeats: int) -> int:
    """Return the number of repeats made regardless of the results, if the recipe says
    ``repeats``.
    """
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
    return is_narrow(wanted, interval_of(values_of(wanted.metric, trials), wanted))


def verdict(wanted: Precision, variant: str, trials: Sequence[TrialRecord]) -> str:
    """One sentence: how well the variant's result is known, and whether that was asked for."""
    interval = interval_of(values_of(wanted.metric, trials), wanted)
    asked = f"± {wanted.confidence_interval:.1%} from {LEAST_REPEATS} or more repeats"
    value = next((METRICS[wanted.metric](row) for row in summarise(trials)), None)
    if interval is None or value is None:
        return f"{variant}: {wanted.metric}: too few repeats for an interval; not reached: {asked}"
    if interval.is_vague:
        known = f"{digits(value)}, {vague(interval, 'repeats')}"
        return f"{variant}: {wanted.metric} {known}; not reached: {asked}"
    text = (
        f"{variant}: {wanted.metric} {digits(value)} ± {interval.relative:.1%}"
        f" ({interval.level:.0%} interval {_range(interval)}, {interval.count} repeats)"
    )
    return text if is_narrow(wanted, interval) else f"{text}; not reached: {asked}"


def ratio_verdict(row: VariantSummary, first: str) -> str | None:
    """One sentence: how well a variant's ratio to the first is known; None with under two pairs."""
    found = row.ratio_interval
    if found is None:
        return None
    if found.is_vague:
        return f"{row.variant}: ratio to {first}: {vague(found, 'rounds')}"
    text = (
        f"{row.variant}: {digits(found.mean)} times the token time of {first} ({found.level:.0%}"
        f" interval {_range(found)}, {found.count} rounds)"
    )
    return f"{text}: no difference is shown" if found.low <= 1 <= found.high else text


def vague(interval: Interval, of: str) -> str:
    """Say that an interval tells nothing, and why."""
    return f"its {interval.count} {of} differ too much: the interval is wider than ± 100 %"


def trend_verdict(variant: str, trials: Iterable[TrialRecord]) -> str | None:
    """One sentence about token times that rise or fall from repeat to repeat; None: they do not.

    In one of twenty runs chance alone looks so.
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
