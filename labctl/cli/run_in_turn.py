"""``labctl run`` as a job of its own process: it waits for its turn and claims its board."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from labctl.cli.output import note
from labctl.config.lab import Board, LabFile
from labctl.errors import BoardBusy
from labctl.evaluation.any_recipe import AnyRecipe, longest_seconds
from labctl.farm.turn import Place, Turn
from labctl.runs.board.claim import in_use_by
from labctl.state.job import Job, NewJob
from labctl.state.lease import StateLease, busy
from labctl.state.state import lab_state
from labctl.units import duration

#: A context in which others may use the board.
Aside = Callable[[], AbstractContextManager[None]]
#: Arguments: the board, the job that has claimed it (None for a board in no lab), an Aside.
RunOn = Callable[[Board, Job | None, Aside], int]


def run_in_turn(
    lab: LabFile,
    recipe: AnyRecipe,
    pool: Sequence[Board],
    priority: int,
    run_on: RunOn,
    *,
    untrusted: bool,
    waits: bool,
) -> int:
    """Run on the first free board of equal boards; return the exit status.

    Raises what ``run_on`` raises. BoardBusy if a run lost its board, or if no board is free and
    ``waits`` is False.
    """
    if not lab.path.is_file():
        return _without_table(pool[0], run_on, waits=waits)
    names = {board.name: board for board in pool}
    job = NewJob(
        recipe.name,
        {"recipe": recipe.resolved()},
        tuple(names),
        "untrusted" if untrusted else "run",
        priority,
        max_seconds=longest_seconds(recipe, pool),
        runner="process",
    )

    def tell(place: Place) -> None:
        about = f", about {duration(place.seconds * 1e9)}" if place.seconds is not None else ""
        what = f"board {pool[0].name}" if len(pool) == 1 else f"one of {len(pool)} boards"
        note(
            f"waiting for {what}: place {place.number} of {place.of}{about};"
            f" job {job.id}; Ctrl-C leaves the queue"
        )

    def expected() -> float | None:
        from labctl.farm.expected import expected_seconds

        return expected_seconds(lab, recipe, tuple(names), untrusted=untrusted)

    def in_use(lease: StateLease) -> BoardBusy:
        return in_use_by(lab, lease.board, lease) or busy(lease)

    state = lab_state(lab)
    turn = Turn(state, lab.root, job, tell, note, expected=expected, in_use=in_use)
    aside = turn.aside if waits else nullcontext
    return turn.take(lambda job: run_on(names[str(job.board)], job, aside), BoardBusy, waits=waits)


def _without_table(board: Board, run_on: RunOn, *, waits: bool) -> int:
    """Run on a board that is in no lab, once nobody else uses it."""
    from labctl.runs.deploy import when_free

    said = False

    def wait(error: BoardBusy) -> None:
        nonlocal said
        if not waits or error.run is not None:
            raise error
        if not said:
            note(f"{error.message}; waiting until it is free (--no-wait does not)")
        said = True

    return when_free(lambda: run_on(board, None, nullcontext), wait)
