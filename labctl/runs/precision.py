"""Repeating until a result is known well enough."""

from collections.abc import Iterable

from labctl.config.recipe import Precision
from labctl.records import TrialRecord, TrialState
from labctl.runs.gates import METRICS
from labctl.runs.summary import summarise
from labctl.stats import Interval, mean_interval

#: Fewer repeats say next to nothing about their own spread.
LEAST_REPEATS = 3


def values_of(metric: str, trials: Iterable[TrialRecord]) -> list[float]:
    """A metric of each good trial alone, warm-ups aside: what is independent of each other."""
    good = (trial for trial in trials if trial.state is TrialState.OK and trial.repeat > 0)
    found = (METRICS[metric](row) for trial in good for row in summarise([trial]))
    return [value for value in found if value is not None]


def interval_of(wanted: Precision, trials: Iterable[TrialRecord]) -> Interval | None:
    """How well the metric is known from one variant's trials; None from fewer than two."""
    values = values_of(wanted.metric, trials)
    return mean_interval(values, level=wanted.level) if len(values) > 1 else None


def is_enough(wanted: Precision, trials: Iterable[TrialRecord]) -> bool:
    """Whether no further repeat of one variant is needed."""
    interval = interval_of(wanted, trials)
    return (
        interval is not None
        and interval.count >= LEAST_REPEATS
        and interval.relative <= wanted.confidence_interval
    )


def verdict(wanted: Precision, variant: str, trials: Iterable[TrialRecord]) -> str:
    """One sentence: how well the variant's result is known, and whether that was asked for."""
    interval = interval_of(wanted, trials)
    if interval is None:
        return f"{variant}: too few repeats to say how well {wanted.metric} is known"
    known = f"{wanted.metric} {interval.mean:.4g} ± {interval.relative:.1%}"
    text = f"{variant}: {known} ({interval.level:.0%} interval, {interval.count} repeats)"
    reached = interval.relative <= wanted.confidence_interval
    return text if reached else f"{text}, wanted ± {wanted.confidence_interval:.1%}"
