"""How long a trial may run before it is stopped, and where that limit comes from.

A prediction is a lower bound, so the limit is many times as long: it ends what hangs, never what is
slow. Too long a limit costs little, since no trial outlasts the run's ``max_time``.
"""

from collections.abc import Mapping, Sequence

from labctl.config.recipe import Recipe
from labctl.errors import ProgramTimeout
from labctl.records import TrialLimit
from labctl.runs.plan.forecast import Foresight
from labctl.runs.plan.trials import PlannedTrial
from labctl.units import duration

#: No limit that labctl chooses is shorter.
LEAST_SECONDS = 600.0
#: Where storage or arithmetic was measured, or a trial itself, times are near: what is left is a
#: clock held back (to a fifth, on a hot board), or a board that is busy.
NEAR = 10
#: From DRAM alone: arithmetic that was not measured takes several times as long as that.
FAR = 50

RECIPE = "the recipe's timeouts.trial"
#: The recipe's, or the board's where that is less.
MAX_TIME = "max_time"


def planned_limits(
    recipe: Recipe, trials: Sequence[PlannedTrial], foresight: Foresight, max_seconds: float
) -> dict[str, TrialLimit]:
    """The limit of each variant's trials, by slug."""
    return {
        trial.variant.slug: _planned(recipe.timeouts.trial, trial, foresight, max_seconds)
        for trial in trials
    }


def _planned(
    wanted: float | None, trial: PlannedTrial, foresight: Foresight, max_seconds: float
) -> TrialLimit:
    if wanted is not None:
        return TrialLimit(seconds=wanted, source=RECIPE)
    predicted, longest = foresight.of(trial), foresight.longest(trial)
    if predicted is None or longest is None:
        return TrialLimit(seconds=max_seconds, source=f"{MAX_TIME}: nothing foretells this trial")
    factor = FAR if predicted.bound == "dram" else NEAR
    told = f"the predicted {duration(longest * 1e9)} ({predicted.source})"
    return _at_least(factor, longest, told)


def measured_limit(planned: TrialLimit, took: Mapping[str, float], slug: str) -> TrialLimit:
    """The limit now that trials of some variants are known to take so many seconds.

    What the recipe asks for stays.
    """
    if planned.source == RECIPE or slug not in took:
        return planned
    told = f"the {duration(took[slug] * 1e9)} of the trial before it"
    return _at_least(NEAR, took[slug], told)


def _at_least(factor: int, seconds: float, told: str) -> TrialLimit:
    source = f"{factor} times {told}"
    if seconds * factor < LEAST_SECONDS:
        source = f"the least that labctl gives; {source} are less"
    return TrialLimit(seconds=max(LEAST_SECONDS, seconds * factor), source=source)


def timed_out(error: ProgramTimeout, limit: TrialLimit | None) -> ProgramTimeout:
    """The error of a trial that was stopped at its limit, with where the limit comes from."""
    if limit is None:
        return error
    return ProgramTimeout(
        f"{error.message}; its limit was {duration(limit.seconds * 1e9)}, {limit.source}",
        hint="if it only needs longer, raise max_time or ask for fewer tokens"
        if limit.source.startswith(MAX_TIME)
        else "if it only needs longer, set timeouts.trial: `--set timeouts.trial=2h`",
        details=error.details,
    )
