"""``labctl run`` of an evaluation or a load test.

If its servers are started on a board, it waits for that board in the lab's queue, like a timing
run. A server with a `url`, or on this host, needs no board and no queue.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from labctl.cli.evaluation_view import check_evaluation_format, tell_evaluation
from labctl.cli.lab import connect_board, lab_or_own
from labctl.cli.load_test_view import check_load_test_format, tell_load_test
from labctl.cli.progress import ProgressView
from labctl.cli.recipe_command import refuse_options
from labctl.cli.root import Invocation
from labctl.cli.run_view import RunView
from labctl.config.lab import Board, LabFile
from labctl.config.yaml.document import Document
from labctl.evaluation.any_recipe import read_served
from labctl.evaluation.recipe import EvaluationRecipe
from labctl.evaluation.serving.recipe import LoadTestRecipe
from labctl.runs.board.lab_lease import SERVE, BoardUse
from labctl.runs.observer import Observer
from labctl.state.events import this_user
from labctl.state.job import Job
from labctl.state.state import lab_state


@dataclass(frozen=True)
class Turns:
    """Options of ``labctl run`` on the board of a run and on the queue."""

    board: str | None
    on: str | None
    waits: bool
    detach: bool
    priority: int


def run_served(
    invocation: Invocation,
    document: Document,
    settings: Sequence[str],
    turns: Turns,
    *,
    result_format: str,
    output: Path | None,
) -> int:
    """Run a recipe and print its result; return the exit status. Raises its errors."""
    lab = lab_or_own(invocation)
    recipe = read_served(document, settings, lab_root=lab.root)
    if isinstance(recipe, EvaluationRecipe):
        check_evaluation_format(result_format, output)
    else:
        check_load_test_format(result_format)
    if (number := len(recipe.board_servers())) != 1:
        started = "several servers" if number else "no server"
        refuse_options("board", f"this recipe starts {started} on a board")
        return _run(recipe, lab, SERVE, result_format, output)
    pool = _pool(lab, turns, recipe)
    if turns.detach:
        from labctl.cli.run_detached import submit

        return submit(lab, recipe, pool, turns.priority)

    def run_on(board: Board, job: Job | None, _aside: object) -> int:
        use = SERVE if job is None else BoardUse(job=job.id, attempt=job.attempts)
        return _run(recipe.on_board(board.name), lab, use, result_format, output)

    from labctl.cli.run_in_turn import run_in_turn

    working = lab_state(lab).health.working([board.name for board in pool], this_user())
    pool = [board for board in pool if board.name in working]
    return run_in_turn(
        lab, recipe, pool, turns.priority, run_on, untrusted=False, waits=turns.waits
    )


def _pool(lab: LabFile, turns: Turns, recipe: EvaluationRecipe | LoadTestRecipe) -> list[Board]:
    """Return the possible boards; the run uses the first free board. Raises ConfigError."""
    if turns.on is not None:
        from labctl.cli.board_choice import equal_boards

        return equal_boards(lab, turns.on, recipe)
    return recipe.boards(lab) if turns.board is None else [lab.board(turns.board)]


def _run(
    recipe: EvaluationRecipe | LoadTestRecipe,
    lab: LabFile,
    use: BoardUse,
    result_format: str,
    output: Path | None,
) -> int:
    if isinstance(recipe, EvaluationRecipe):
        from labctl.evaluation.run import EvaluationRequest, run_evaluation

        with ProgressView() as view:
            request = EvaluationRequest(recipe, lab, connect_board, use)
            evaluated = run_evaluation(request, Observer(RunView(view).show))
        return tell_evaluation(evaluated, result_format, output)
    from labctl.evaluation.serving.run import run_load_test

    with ProgressView() as view:
        observer = Observer(RunView(view).show)
        loaded = run_load_test(recipe, lab, observer, connect_board, use=use)
    return tell_load_test(loaded, result_format, output)
