"""Time limits: a trial's limit, with its origin, and the run's ``max_time``.

A prediction is a lower bound, so a trial's limit is many times as long: it ends hanging trials,
never slow ones. Too long a limit costs little, since no trial lasts longer than ``max_time``.

When a prediction says that the trials do not fit into ``max_time``, they are cut down in this
order, and every cut is reported before anything runs: warm-ups go first, then repeats down to one,
then tokens down to ``min_tokens`` (not at all without it). If they still do not fit, the run is
refused. While it runs, :class:`RunClock` holds it to ``max_time``.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from labctl.config.lab import Board
from labctl.config.recipe import Recipe
from labctl.config.recipe_parts import Variant
from labctl.errors import ConfigError, ProgramTimeout
from labctl.records.trial import TrialLimit, TrialPrediction, TrialRecord, TrialState
from labctl.units import duration

if TYPE_CHECKING:
    from labctl.runs.planning.forecast import Forecast
    from labctl.runs.planning.trials import PlannedTrial


def longest_seconds(recipe: Recipe, pool: Sequence[Board]) -> float:
    """Return the longest time (s) that a run may take on one of these boards."""
    return max(min(recipe.max_time, board.limits.max_time or math.inf) for board in pool)


#: Minimum of the limits that labctl chooses.
LEAST_SECONDS = 600.0
#: If storage, arithmetic or a trial was measured, the prediction is close: the rest is for
#: throttled clocks (to a fifth, on a hot board), or a busy board.
NEAR = 10
#: From DRAM only: unmeasured arithmetic takes several times as long.
FAR = 50

RECIPE = "the recipe's timeouts.trial"
#: The recipe's limit, or the board's if that is less.
MAX_TIME = "max_time"

#: Begins the origin of a limit in a search: the setting is slow, and need not end.
CUT_OFF_SOURCE = "3 times"
#: A trial hangs after this many times the duration of the trial before.
_HANGS = 5
#: A trial that had this share of its run's whole time had enough time.
_CHANCE = 0.5
#: Minimum limit (s) for the agent: shorter limits are useless.
_LEAST_SECONDS = 1.0


def planned_limits(
    recipe: Recipe, trials: "Sequence[PlannedTrial]", forecast: "Forecast", max_seconds: float
) -> dict[str, TrialLimit]:
    """Return the limit of each variant's trials, by slug."""
    return {
        trial.variant.slug: _planned(recipe.timeouts.trial, trial, forecast, max_seconds)
        for trial in trials
    }


def _planned(
    wanted: float | None, trial: "PlannedTrial", forecast: "Forecast", max_seconds: float
) -> TrialLimit:
    if wanted is not None:
        return TrialLimit(seconds=wanted, source=RECIPE)
    predicted, longest = forecast.of(trial), forecast.longest(trial)
    if predicted is None or longest is None:
        return TrialLimit(seconds=max_seconds, source=f"{MAX_TIME}: nothing predicts this trial")
    factor = FAR if predicted.bound == "dram" else NEAR
    basis = f"the predicted {duration(longest * 1e9)} ({predicted.source})"
    return _at_least(factor, longest, basis)


def measured_limit(planned: TrialLimit, took: Mapping[str, float], slug: str) -> TrialLimit:
    """Return the limit after trials of some variants took a known number of seconds.

    A limit in the recipe stays.
    """
    if planned.source == RECIPE or slug not in took:
        return planned
    basis = f"the {duration(took[slug] * 1e9)} of the trial before it"
    return _at_least(NEAR, took[slug], basis)


def _at_least(factor: int, seconds: float, basis: str) -> TrialLimit:
    source = f"{factor} times {basis}"
    if seconds * factor < LEAST_SECONDS:
        source = f"the least that labctl gives; {source} are less"
    return TrialLimit(seconds=max(LEAST_SECONDS, seconds * factor), source=source)


def timed_out(error: ProgramTimeout, limit: TrialLimit | None) -> ProgramTimeout:
    """Return the error of a trial that was stopped at its limit, with the limit's origin."""
    if limit is None:
        return error
    return ProgramTimeout(
        f"{error.message}; limit: {duration(limit.seconds * 1e9)}, {limit.source}",
        hint="if it only needs longer, raise max_time or ask for fewer tokens"
        if limit.source.startswith(MAX_TIME)
        else "if it only needs longer, set timeouts.trial: `--set timeouts.trial=2h`",
        details=error.details,
    )


def trial_seconds(record: TrialRecord, looked_s: float | None = None) -> float:
    """Return the time of a trial in s, from its start to its record.

    Waiting for the board is not included. A trial that was taken over was observed for only a part
    of its time. ``looked_s``: the length of that part, by a better clock than the record's.
    """
    if looked_s is None and record.took_ns is not None:
        looked_s = record.took_ns / 1e9
    if looked_s is None:
        looked_s = (record.finished - record.started).total_seconds()
    ran = record.job.wall_ns / 1e9 if record.job else 0.0
    return max(looked_s - (record.waited_ns or 0) / 1e9, ran)


@dataclass
class RunClock:
    """Limits a run to ``max_seconds``: no trial starts or continues after that.

    ``limits`` are the trials' own limits, by variant; ``predicted`` gives a trial's prediction, if
    any.
    """

    max_seconds: float
    limits: Mapping[str, TrialLimit]
    predicted: "Callable[[PlannedTrial], TrialPrediction | None]"
    #: Limit of a trial that a search gives; None: the trial's own.
    cut_off: "Callable[[PlannedTrial], TrialLimit | None]" = lambda _trial: None
    _began: float = field(init=False)
    _took: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._began = time.monotonic()

    @property
    def spent(self) -> float:
        """Elapsed seconds of the run, including the time of earlier controllers."""
        return time.monotonic() - self._began

    @property
    def left(self) -> float:
        """Remaining seconds; below 0 when the time is over."""
        return self.max_seconds - self.spent

    def remember(self, record: TrialRecord) -> None:
        """Add a trial that an earlier controller finished."""
        self._began -= trial_seconds(record) + (record.waited_ns or 0) / 1e9
        self.note(record)

    def note(self, record: TrialRecord, looked_s: float | None = None) -> None:
        """Expect the next trial of a variant to take as long as this good trial."""
        if record.state is TrialState.OK:
            self._took[record.variant] = trial_seconds(record, looked_s)

    def took(self, trial: "PlannedTrial") -> float | None:
        """Return the time in s of the last trial of its variant, if there was one."""
        return self.took_of(trial.variant.slug)

    def took_of(self, variant: str) -> float | None:
        """Return the time in s of a variant's last trial, if there was one."""
        return self._took.get(variant)

    def expected(self, trial: "PlannedTrial") -> float | None:
        """Return a trial's expected time in s: the variant's last, else the predicted minimum."""
        if (took := self.took(trial)) is not None:
            return took
        prediction = self.predicted(trial)
        return prediction.trial_ns / 1e9 if prediction else None

    def remaining(self, trials: "Iterable[PlannedTrial]") -> float | None:
        """Return the expected time of trials in s; None if that is unknown.

        An unknown variant is expected to take as long as the last trials of the others.
        """
        usual = sum(self._took.values()) / len(self._took) if self._took else None
        found = [usual if (e := self.expected(trial)) is None else e for trial in trials]
        known = [seconds for seconds in found if seconds is not None]
        return min(sum(known), max(self.left, 0.0)) if len(known) == len(found) else None

    def longest_wait(self, trial: "PlannedTrial") -> float:
        """Return how long a trial may wait for the board in s, without using its own time."""
        expected = self.expected(trial)
        return max(0.0, self.left / 2 if expected is None else self.left - expected)

    def limit(self, trial: "PlannedTrial") -> TrialLimit:
        """Return the limit of a trial that starts now."""
        slug = trial.variant.slug
        cut = self.cut_off(trial)
        own = cut or measured_limit(self.limits[slug], self._took, slug)
        if own.seconds <= self.left:
            return own
        return TrialLimit(
            seconds=max(_LEAST_SECONDS, self.left), source=f"{MAX_TIME}: the remaining time"
        )

    def reason_to_skip(self, trial: "PlannedTrial") -> str | None:
        """Return why there is no time for a trial; None if there is."""
        expected = self.expected(trial) or 0.0
        if self.left > expected:
            return None
        left = f"max_time: {max(self.left, 0):.1f} s left"
        if self.took(trial) is not None:
            return f"{left}, the last such trial took {expected:.1f} s"
        return f"{left}, such a trial takes {expected:.1f} s at least" if expected else left

    def reason_cut_short(self, trial: "PlannedTrial", limit: TrialLimit) -> str | None:
        """Return why a stopped trial says nothing about its program; None if it does.

        The end of the run's time stopped it before it is clear that it hangs.
        """
        if limit.source.startswith(CUT_OFF_SOURCE):
            return f"slower than {limit.source}"
        if not limit.source.startswith(MAX_TIME):
            return None
        stopped = f"max_time: stopped after {limit.seconds:.1f} s"
        if (took := self.took(trial)) is not None:
            before = f"{stopped}, the one before took {took:.1f} s"
            return before if limit.seconds < took * _HANGS else None
        if (prediction := self.predicted(trial)) is not None:
            # It had less time than its own limit; only its own limit shows a hang.
            return f"{stopped}, such a trial takes {prediction.trial_ns / 1e9:.1f} s at least"
        return stopped if limit.seconds < self.max_seconds * _CHANCE else None


#: Minimum seconds of one trial of a variant with this number of tokens (None: it generates none),
#: with a warm-up pass or without; None = no data for a prediction.
PredictTrial = Callable[[Variant, int | None, bool], float | None]
#: Share of max_time reserved for moving files and for optimistic predictions.
RESERVE = 0.1


@dataclass(frozen=True)
class Amount:
    """Size of a measurement: repeats, warm-ups and tokens."""

    repeats: int
    warm_up_trials: int
    tokens: Mapping[str, int]  # by variant, without variants that generate no tokens
    most_repeats: int = 0  # repeats above ``repeats`` are optional
    warm_up_pass: bool = True  # by the program: one pass over all weights before the prompt


def cut_to_max_time(
    variants: Sequence[Variant],
    wanted: Amount,
    max_seconds: float,
    min_tokens: int | None,
    predict: PredictTrial,
) -> tuple[Amount, float | None, list[str]]:
    """Return the amount that fits, its predicted time in s if known, and a note for each cut.

    Raises ConfigError if even the smallest amount does not fit.
    """
    limit = max_seconds * (1 - RESERVE)

    def seconds(amount: Amount) -> float | None:
        times = [predict(v, amount.tokens.get(v.slug), amount.warm_up_pass) for v in variants]
        rounds = amount.repeats + amount.warm_up_trials
        return None if None in times else sum(t for t in times if t is not None) * rounds

    total = seconds(wanted)
    if total is None or total <= limit:
        return wanted, total, []
    limits = f"predicted to take {_span(total)}, max_time is {_span(max_seconds)}"
    notes = [f"as written the trials are {limits}"]
    amount = replace(wanted, warm_up_trials=0, warm_up_pass=False)
    if seconds(amount) != total:
        notes[0] += ": no warm-up"
    total = seconds(amount)
    if total is not None and total > limit and amount.repeats > 1:
        fitting = int(limit // (total / amount.repeats))
        amount = replace(amount, repeats=max(1, fitting), most_repeats=0)
        notes.append(f"{amount.repeats} of {wanted.repeats} repeats")
        total = seconds(amount)
    most = max(wanted.tokens.values(), default=0)
    if total is not None and total > limit:
        for tokens in range(most - 1, (min_tokens or most) - 1, -1):
            amount = replace(
                amount, tokens={slug: min(tokens, n) for slug, n in wanted.tokens.items()}
            )
            total = seconds(amount)
            if total is not None and total <= limit:
                notes.append(f"{tokens} of {most} tokens")
                break
    if total is not None and total > limit:
        needed = math.ceil(total / (1 - RESERVE) / 60)
        least = f", of {min(min_tokens or most, most)} tokens," if most else ""
        raise ConfigError(
            f"one trial a variant{least} is predicted to take {_span(total)};"
            f" max_time is {_span(max_seconds)}",
            hint=f"raise max_time to {needed}m or more, or measure fewer variants",
        )
    return amount, total, notes


def _span(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3.5 h``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"
