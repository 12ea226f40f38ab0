"""The recipe of a health check: an ordinary run, judged by what the board did with it before."""

from collections.abc import Callable

from labctl.config.lab import Board, LabFile
from labctl.config.recipe import find_recipe
from labctl.errors import JobError
from labctl.index import Filter
from labctl.runs import Observer, RunRequest, read_recipe, run_recipe
from labctl.runs.record.repository import RunRepository
from labctl.transport import Transport


def run_health_recipe(
    lab: LabFile,
    board: Board,
    connect: Callable[[Board], Transport],
    observer: Observer,
    recipe: str,
) -> str | None:
    """Run a recipe; return why it speaks against the board, None if it does not.

    A program that fails speaks against a board on which the same recipe ran well before: the
    program is the same. On another it speaks against the recipe. Raises what
    :func:`labctl.runs.run_recipe` raises.
    """
    wanted = read_recipe(find_recipe(recipe, lab.root), (), lab_root=lab.root)
    repository = RunRepository(lab.root / "runs", observer.note)
    ran_well = repository.query(
        Filter(recipe=wanted.name, board=board.name, verdict="passed"), limit=1
    )
    try:
        outcome = run_recipe(RunRequest(wanted, board, lab), connect, observer)
    except JobError as error:  # before anything ran on the board
        observer.note(f"note: recipe {wanted.name} cannot run: {error.message}")
        return None
    run = outcome.run.id
    if outcome.exit_status == 0:
        return None
    if not ran_well:
        observer.note(
            f"note: recipe {wanted.name} fails on {board.name}, and never ran well there: that says"
            f" nothing about the board (run {run})"
        )
        return None
    return f"recipe {wanted.name} fails, and ran well before (run {run})"
