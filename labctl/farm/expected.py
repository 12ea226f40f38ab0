"""Expected times of runs: the queue's estimates, and the order of a batch."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from statistics import median

from labctl.config.lab import LabFile
from labctl.config.recipe import Recipe
from labctl.config.target import load_target
from labctl.errors import ConfigError
from labctl.evaluation.any_recipe import AnyRecipe
from labctl.index.filters import Filter
from labctl.index.rows import RunRow
from labctl.performance.prediction import board_rates
from labctl.progress import silent
from labctl.runs.inputs.prepare import recipe_files
from labctl.runs.planning.forecast import make_forecast, plan_trials
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.history import last_seen
from labctl.runs.record.repository import RunRepository

#: Number of a recipe's last runs to read, then as many with its first parameters.
_RUNS = 10


def expected_seconds(
    lab: LabFile, recipe: AnyRecipe, boards: tuple[str, ...], *, untrusted: bool = False
) -> float | None:
    """Return the expected time (s) of a run of a recipe on one of these boards.

    This is the time of the last such runs, else the prediction of ``labctl plan``, else by the
    trials of its last runs with other settings, else the recipe's ``max_time``: a run of unknown
    length is then not started last. None if the recipe has no ``max_time``. An ``untrusted`` recipe
    may have its own program. Fetches nothing and contacts no board. Raises ConfigError, HostError.
    """
    if (recorded := recorded_seconds(lab, recipe, boards)) is not None:
        return recorded
    if isinstance(recipe, Recipe) and (seen := last_seen(lab.root, boards[0])) is not None:
        prepared = recipe_files(recipe, lab.root, untrusted=untrusted).for_plan(silent)
        rates = board_rates(lab.root, boards[0], load_target(recipe.target, lab.root))
        forecast = make_forecast(prepared, seen.facts, rates)
        predicted = plan_trials(recipe, forecast, recipe.max_time).predicted_seconds
        if predicted is not None:
            return predicted
    if isinstance(recipe, Recipe):
        return _by_trials(lab, recipe, boards) or recipe.max_time
    return recipe.max_time


def _by_trials(lab: LabFile, recipe: Recipe, boards: tuple[str, ...]) -> float | None:
    """Return the time (s) of as many trials as planned, each as long as in the last runs."""
    wanted = Filter(recipe=recipe.name, states=("finished",), kind=recipe.kind)
    found = [
        seconds / row.trials_recorded
        for row, seconds in _ended(lab, boards, wanted)
        if row.trials_recorded
    ]
    if not found:
        return None
    trials = len(recipe.variants()) * (recipe.warm_up + recipe.repeats)
    return min(trials * median(found), recipe.max_time)


def recorded_seconds(lab: LabFile, recipe: AnyRecipe, boards: tuple[str, ...]) -> float | None:
    """Return the median time in s of the last runs of just this recipe on such boards.

    None without such runs. Raises HostError.
    """
    wanted = Filter(recipe=recipe.name, states=("finished",), kind=recipe.kind)
    if not isinstance(recipe, Recipe):
        seconds = _recorded(lab, recipe, boards, wanted)
        return median(seconds) if seconds else None
    parameters = recipe.variants()[0].parameters
    # A recipe may run with many parameters: its last runs may all have other parameters.
    just_this = tuple((name, str(value)) for name, value in parameters.items())
    seconds = _recorded(lab, recipe, boards, wanted)
    if not seconds and just_this:
        seconds = _recorded(lab, recipe, boards, replace(wanted, parameters=just_this))
    return median(seconds) if seconds else None


def _recorded(
    lab: LabFile, recipe: AnyRecipe, boards: tuple[str, ...], wanted: Filter
) -> Sequence[float]:
    """Return the times (s) of the last runs that match a filter and ran exactly this recipe."""
    found = []
    for row, seconds in _ended(lab, boards, wanted):
        ran = recipe if isinstance(recipe, Recipe) else recipe.on_board(str(row.board))
        try:
            record = RunDirectory(lab.root / "runs" / row.id).any_record()
        except ConfigError:
            continue  # damaged since it was listed
        if record.recipe_resolved == ran.resolved():
            found.append(seconds)
    return found


def _ended(lab: LabFile, boards: tuple[str, ...], wanted: Filter) -> Iterator[tuple[RunRow, float]]:
    """Yield the last runs that match a filter, on boards like these, each with its time (s)."""
    targets = {lab.board(name).target for name in boards}
    for found in RunRepository(lab.root / "runs").query(wanted, limit=_RUNS):
        row = found.run
        board = lab.lab.boards.get(row.board or "")
        if (row.target or (board and board.target)) not in targets or row.finished is None:
            continue
        took = datetime.fromisoformat(row.finished) - datetime.fromisoformat(row.started)
        if took >= timedelta():  # else the host's clock was set back
            yield row, took.total_seconds()
