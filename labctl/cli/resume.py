"""``labctl resume``."""

from functools import partial
from pathlib import Path

import click

from labctl.cli.ci_output import CiOutput, ci_options
from labctl.cli.complete import BOARD, UNFINISHED
from labctl.cli.lab import connect_board, lab_and_board, lab_or_own, runs_folder
from labctl.cli.output import result_options, tell
from labctl.cli.progress import ProgressView
from labctl.cli.recipe_command import RecipeCommand, refuse_foreign
from labctl.cli.root import Invocation
from labctl.cli.run import comparing_with
from labctl.cli.run_view import RunView
from labctl.errors import LabctlError
from labctl.runs.observer import Observer
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.lookup import find_run, find_unfinished
from labctl.runs.record.under_way import last_board
from labctl.runs.resume import ResumeRequest
from labctl.runs.resume import resume as resume_run
from labctl.state.events import this_user
from labctl.state.state import lab_state


@click.command(
    cls=RecipeCommand,
    only={"timing": ("board", "junit", "written", "strict")},
    epilog="Example: labctl resume latest",
)
@click.option(
    "--board", "-b", shell_complete=BOARD, help="Another, equal board; default: the run's own."
)
@result_options
@ci_options
@click.argument("run", required=False, shell_complete=UNFINISHED)
@click.pass_obj
def resume(
    invocation: Invocation,
    *,
    run: str | None,
    board: str | None,
    result_format: str,
    output: Path | None,
    ci: CiOutput,
) -> int:
    """Resume an unfinished run.

    RUN is a timing run or an evaluation: its id, the start or end of one, or `latest`; default: the
    only unfinished run. If there are several, they are listed. Works after Ctrl-C, a kill, a lost
    link or a restart of the board: finished trials and answers stay, a job that still runs or has
    ended on the board is taken over, and the rest follows. Refused if programs, models, prompt,
    files or board have changed. With --board the run moves to another board of the same
    kind, system and speed (by the probes of both); an incomplete round of repeats is measured again
    there, so that variants are compared on one board. Exit status as with `labctl run`.
    """
    runs = runs_folder(invocation, run or "latest")
    directory = find_run(runs, run) if run else find_unfinished(runs)
    directory.refuse_if_finished()  # before looking for its board
    if directory.is_evaluation:
        refuse_foreign("evaluation")
        return _resume_evaluation(invocation, directory, result_format, output)
    lab, on = lab_and_board(invocation, board or last_board(directory))
    lab_state(lab).health.require_work(on.name, this_user())
    try:
        with ProgressView() as view:
            outcome = resume_run(
                ResumeRequest(directory, on, lab, compare=comparing_with(lab)),
                partial(connect_board, on),
                Observer(RunView(view).show),
                ci.exit_status,
            )
    except LabctlError as error:
        ci.write_failed(error, directory)
        raise
    return tell(outcome, result_format, output, ci)


def _resume_evaluation(
    invocation: Invocation, directory: RunDirectory, result_format: str, output: Path | None
) -> int:
    """Resume an evaluation; return its exit status."""
    from labctl.cli.evaluation_view import check_evaluation_format, tell_evaluation
    from labctl.evaluation.run import resume_evaluation

    check_evaluation_format(result_format, output)
    with ProgressView() as view:
        shown = Observer(RunView(view).show)
        outcome = resume_evaluation(directory, lab_or_own(invocation), connect_board, shown)
    return tell_evaluation(outcome, result_format, output)
