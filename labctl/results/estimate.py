"""The estimate that every table shows: one figure a trial, the median over the good trials.

Where it lies is told from the trials alone: the tokens of one trial share its process, its memory
and its heat, and are no independent measurements.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from labctl.config.recipe import Precision
from labctl.records import RunRecord, TrialRecord, TrialState
from labctl.stats import Interval, geometric_interval, median, ratio_interval

#: Confidence of intervals where the recipe asks for none.
LEVEL = 0.95


@dataclass(frozen=True)
class Ratio:
    """A variant's token time over the first one's.

    ``interval`` is None where fewer than two rounds have both: then it is that of the medians.
    """

    value: float
    interval: Interval | None


def wanted_precision(run: RunRecord) -> Precision | None:
    """Return the precision that the run's recipe asked for; None if it repeats a fixed number."""
    wanted = run.recipe_resolved.get("repeats_until")
    return Precision.model_validate(wanted) if wanted else None


def good_trials(trials: Iterable[TrialRecord]) -> list[TrialRecord]:
    """Those that count: neither warm-ups nor failures."""
    return [trial for trial in trials if trial.state is TrialState.OK and trial.repeat > 0]


def token_time(trial: TrialRecord) -> int | None:
    """Return a trial's mean time of a token in ns, the reciprocal of its tokens per second.

    The median of its single tokens is another figure, and does not stand in for it.
    """
    return None if trial.timing is None else trial.timing.mean_ns


def interval_of(values: Sequence[float], until: Precision | None) -> Interval | None:
    """Interval of a trial's figure, from one value for each trial; None with fewer than two.

    Nor of values that are not above 0. ``until``: what ended the repeating, which widens it. Many
    trials that are not spread evenly can have their median outside of the mean's interval: it
    reaches there then.
    """
    if len(values) < 2 or min(values) <= 0:
        return None
    level = until.level if until else LEVEL
    found = geometric_interval(values, level=level, stopped=until is not None)
    middle = median(values)
    return replace(found, low=min(found.low, middle), high=max(found.high, middle))


def ratio_of(
    trials: Iterable[TrialRecord], first: Iterable[TrialRecord], until: Precision | None
) -> Ratio | None:
    """Return the ratio of a variant to the first one; None if one of them has no token time.

    A pair is what was measured in one round; the ratio is the pairs' geometric mean.
    """
    own, base = _by_round(trials), _by_round(first)
    if not own or not base:
        return None
    rounds = sorted(own.keys() & base.keys())
    if len(rounds) < 2:
        return Ratio(median([*own.values()]) / median([*base.values()]), None)
    found = ratio_interval(
        [own[n] for n in rounds],
        [base[n] for n in rounds],
        level=until.level if until else LEVEL,
        stopped=until is not None,
    )
    return Ratio(found.mean, found)


def _by_round(trials: Iterable[TrialRecord]) -> dict[int, int]:
    return {trial.repeat: time for trial in good_trials(trials) if (time := token_time(trial))}
