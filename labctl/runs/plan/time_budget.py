"""The time of a run: what is left of ``max_time``, and what that leaves for a trial."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from labctl.records import TrialLimit, TrialPrediction, TrialRecord, TrialState
from labctl.runs.plan.timeouts import MAX_TIME, measured_limit
from labctl.runs.plan.trials import PlannedTrial

#: A trial that had so many times what the one before took, hangs.
_HANGS = 2
#: One that had this share of the whole time of its run had its chance.
_CHANCE = 0.5
#: The agent holds no shorter limit to any use.
_LEAST_SECONDS = 1.0


def trial_seconds(record: TrialRecord, looked_s: float | None = None) -> float:
    """How long a trial took, from its start to its record.

    Waiting for the board is no part of it. A trial that was taken over was looked at for a part of
    its time only. ``looked_s``: as long as that was, by a better clock than the record's.
    """
    if looked_s is None:
        looked_s = (record.finished - record.started).total_seconds()
    ran = record.job.wall_ns / 1e9 if record.job else 0.0
    return max(looked_s - (record.waited_ns or 0) / 1e9, ran)


@dataclass
class RunClock:
    """Holds a run to ``max_seconds``: no trial starts or goes on after that.

    ``limits`` are the trials' own, by variant; ``foretold`` gives a trial's prediction, if any.
    """

    max_seconds: float
    limits: Mapping[str, TrialLimit]
    foretold: Callable[[PlannedTrial], TrialPrediction | None]
    _began: float = field(init=False)
    _took: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._began = time.monotonic()

    @property
    def spent(self) -> float:
        """Seconds of the run that are over, an earlier controller's included."""
        return time.monotonic() - self._began

    @property
    def left(self) -> float:
        """Seconds that are left; below 0 when it is over."""
        return self.max_seconds - self.spent

    def remember(self, record: TrialRecord) -> None:
        """A trial that an earlier controller finished."""
        self._began -= trial_seconds(record) + (record.waited_ns or 0) / 1e9
        self.note(record)

    def note(self, record: TrialRecord, looked_s: float | None = None) -> None:
        """What a good trial took is what the next one of its variant will take."""
        if record.state is TrialState.OK:
            self._took[record.variant] = trial_seconds(record, looked_s)

    def took(self, trial: PlannedTrial) -> float | None:
        """What the last trial of its variant took, if there was one."""
        return self._took.get(trial.variant.slug)

    def expected(self, trial: PlannedTrial) -> float | None:
        """What a trial takes: as the last one of its variant, else at least what is foretold."""
        if (took := self.took(trial)) is not None:
            return took
        prediction = self.foretold(trial)
        return prediction.trial_ns / 1e9 if prediction else None

    def longest_wait(self, trial: PlannedTrial) -> float:
        """How long a trial may wait for the board: not into what it needs itself."""
        expected = self.expected(trial)
        return max(0.0, self.left / 2 if expected is None else self.left - expected)

    def limit(self, trial: PlannedTrial) -> TrialLimit:
        """How long a trial may run that starts now."""
        slug = trial.variant.slug
        own = measured_limit(self.limits[slug], self._took, slug)
        if own.seconds <= self.left:
            return own
        return TrialLimit(
            seconds=max(_LEAST_SECONDS, self.left), source=f"{MAX_TIME}: what was left of it"
        )

    def reason_to_skip(self, trial: PlannedTrial) -> str | None:
        """Why there is no time for a trial; None when there is."""
        expected = self.expected(trial) or 0.0
        if self.left > expected:
            return None
        left = f"max_time: {max(self.left, 0):.1f} s left"
        if self.took(trial) is not None:
            return f"{left}, the last such trial took {expected:.1f} s"
        return f"{left}, such a trial takes {expected:.1f} s at least" if expected else left

    def reason_cut_short(self, trial: PlannedTrial, limit: TrialLimit) -> str | None:
        """Why a trial that was stopped says nothing about its program; None if it does.

        The end of the run's time stopped it then, before anybody can say that it hangs.
        """
        if not limit.source.startswith(MAX_TIME):
            return None
        stopped = f"max_time: stopped after {limit.seconds:.1f} s"
        if (took := self.took(trial)) is not None:
            before = f"{stopped}, the one before took {took:.1f} s"
            return before if limit.seconds < took * _HANGS else None
        if (prediction := self.foretold(trial)) is not None:
            # It had less than its own limit, which is what tells a hang from a lower bound.
            return f"{stopped}, such a trial takes {prediction.trial_ns / 1e9:.1f} s at least"
        return stopped if limit.seconds < self.max_seconds * _CHANCE else None
