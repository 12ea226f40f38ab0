"""The recipe of a health check: an ordinary run, judged by earlier runs on the board."""

from collections.abc import Callable

from labctl.config.lab import Board, LabFile
from labctl.config.recipe import find_recipe
from labctl.errors import JobError
from labctl.index.filters import Filter
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.inputs.prepare import read_recipe
from labctl.runs.observer import Observer
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.repository import RunRepository
from labctl.runs.run import RunRequest, run_recipe
from labctl.transport.base import Transport

#: Number of good runs of the recipe to read: enough to find earlier programs, too.
_EARLIER_RUNS = 1000


def run_health_recipe(
    lab: LabFile,
    board: Board,
    connect: Callable[[Board], Transport],
    observer: Observer,
    recipe: str,
    *,
    use: BoardUse,
) -> str | None:
    """Run a recipe, as a part of a board's ``use``.

    Return the reason to blame the board; None if the board is not to blame.

    A failing program blames the board only if the same program passed there before, with the same
    recipe, models and files. Otherwise the recipe is to blame. Raises what
    :func:`labctl.runs.run.run_recipe` raises.
    """
    wanted = read_recipe(find_recipe(recipe, lab.root), (), lab_root=lab.root)
    repository = RunRepository(lab.root / "runs", observer.note)
    ran_well = repository.query(
        Filter(recipe=wanted.name, board=board.name, verdict="passed"), limit=_EARLIER_RUNS
    )
    try:
        request = RunRequest(wanted, board, lab, use=use)
        outcome = run_recipe(request, connect, observer)
    except JobError as error:  # nothing has run on the board yet
        observer.note(f"note: recipe {wanted.name} cannot run: {error.message}")
        return None
    if outcome.exit_status == 0:
        return None
    run = outcome.run.id
    earlier = [RunDirectory(lab.root / "runs" / one.run.id) for one in ran_well]
    if not any(_is_same_work(outcome.directory, one) for one in earlier):
        observer.note(
            f"note: recipe {wanted.name} fails on {board.name}. Its current version never passed"
            f" there, so the board is not blamed (run {run})"
        )
        return None
    return f"recipe {wanted.name} fails, but passed before (run {run})"


def _is_same_work(run: RunDirectory, earlier: RunDirectory) -> bool:
    """Return True if two runs still exist and ran the same bytes in the same way."""
    return run.is_planned and earlier.is_planned and _work(run) == _work(earlier)


def _work(run: RunDirectory) -> tuple[object, ...]:
    record, plan = run.run(), run.plan()
    return (
        record.recipe_resolved,
        [artifact.key for artifact in record.artifacts],
        [model.sha256 for model in record.models],
        (plan.program_sha256, plan.prompt_sha256, plan.files_sha256),
    )
