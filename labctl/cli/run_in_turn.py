"""``labctl run`` on a board in use: waiting in the lab's queue."""

from collections.abc import Callable, Sequence

from labctl.cli.output import note
from labctl.config.lab import Board, LabFile
from labctl.config.recipe import Recipe
from labctl.errors import BoardBusy
from labctl.farm.expected import expected_seconds, longest_seconds
from labctl.farm.turn import Place, Turn
from labctl.state import NewJob, lab_state
from labctl.units import duration


def run_in_turn(
    lab: LabFile,
    recipe: Recipe,
    pool: Sequence[Board],
    priority: int,
    run_on: Callable[[Board], int],
    *,
    untrusted: bool = False,
) -> int:
    """Wait in the queue, run on the first free one of equal boards; return its exit status.

    Raises what ``run_on`` raises; BoardBusy only if that broke off a run.
    """
    state, names = lab_state(lab), tuple(board.name for board in pool)
    expected = expected_seconds(lab, recipe, names, untrusted=untrusted)
    request = {"recipe": recipe.resolved()}
    longest = longest_seconds(recipe, pool)
    job = NewJob(recipe.name, request, names, "foreground", priority, expected, longest)

    def tell(place: Place) -> None:
        about = f", about {duration(place.seconds * 1e9)}" if place.seconds is not None else ""
        what = f"board {names[0]}" if len(names) == 1 else f"one of {len(names)} boards"
        note(
            f"waiting for {what}: place {place.number} of {place.of}{about};"
            f" job {job.id}; Ctrl-C leaves the queue"
        )

    turn = Turn(state, lab.root, job, tell, note, untrusted=untrusted)
    return turn.take(lambda name: run_on(_named(pool, name)), BoardBusy)


def _named(pool: Sequence[Board], name: str) -> Board:
    return next(board for board in pool if board.name == name)
