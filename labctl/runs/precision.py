"""Repeating until a result is known well enough."""

from collections.abc import Iterable, Sequence

from labctl.config.recipe import Precision
from labctl.records import TrialRecord, TrialState
from labctl.runs.gates import METRICS
from labctl.runs.summary import summarise, token_time
from labctl.stats import Interval, mean_interval, ratio_interval

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


def verdict(wanted: Precision, variant: str, trials: Sequence[TrialRecord]) -> str:
    """One sentence: how well the variant's result is known, and whether that was asked for."""
    interval = interval_of(wanted, trials)
    if interval is None:
        return f"{variant}: too few repeats to say how well {wanted.metric} is known"
    known = f"{wanted.metric} {interval.mean:.4g} ± {interval.relative:.1%}"
    text = f"{variant}: {known} ({interval.level:.0%} interval, {interval.count} repeats)"
    if is_enough(wanted, trials):
        return text
    return f"{text}, wanted ± {wanted.confidence_interval:.1%} from {LEAST_REPEATS} or more"


def ratio_verdict(
    variant: str, trials: Iterable[TrialRecord], first: str, of_first: Iterable[TrialRecord]
) -> str | None:
    """One sentence: how well a variant's ratio to the first is known; None with under two pairs.

    A pair is what was measured in one round.
    """
    own, base = _by_round(trials), _by_round(of_first)
    rounds = sorted(own.keys() & base.keys())
    if len(rounds) < 2:
        return None
    found = ratio_interval([own[n] for n in rounds], [base[n] for n in rounds])
    text = (
        f"{variant}: {found.mean:.3g} times the token time of {first} ({found.level:.0%} interval"
        f" {found.low:.3g} to {found.high:.3g}, {found.count} rounds)"
    )
    return f"{text}: no difference is shown" if found.low <= 1 <= found.high else text


def _by_round(trials: Iterable[TrialRecord]) -> dict[int, int]:
    found = {}
    for trial in trials:
        time = token_time(trial)
        if time and trial.state is TrialState.OK and trial.repeat > 0:
            found[trial.repeat] = time
    return found
