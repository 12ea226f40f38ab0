"""``labctl run``."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from labctl.cli.ci_output import CiOutput, ci_options
from labctl.cli.complete import BOARD, RECIPE
from labctl.cli.lab import connect_board, lab_and_board, lab_of, lab_or_own
from labctl.cli.output import note, result_options, tell
from labctl.cli.progress import ProgressView
from labctl.cli.recipe_command import RecipeCommand, limit_option, refuse_foreign, with_limit
from labctl.cli.root import Invocation
from labctl.cli.run_view import RunView
from labctl.config.lab import Board, LabFile
from labctl.config.recipe import Recipe, find_recipe
from labctl.config.recipe_parts import recipe_kind
from labctl.config.yaml.document import Document
from labctl.errors import ConfigError, LabctlError, LeaseLost
from labctl.records.events import AnyEvent, Contact
from labctl.records.run import GateRecord, RunRecord
from labctl.records.trial import TrialRecord
from labctl.results.gates import CompareGates, Parameters, comparing_gates
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.inputs.prepare import find_files, read_recipe
from labctl.runs.observer import Observer
from labctl.runs.record.directory import RunDirectory
from labctl.runs.run import RunRequest, run_recipe
from labctl.runs.runner import Outcome
from labctl.state.events import this_user
from labctl.state.job import Job
from labctl.state.state import lab_state

if TYPE_CHECKING:
    from labctl.cli.run_in_turn import Aside
    from labctl.runs.inputs.untrusted_recipe import Workspace


@click.command(
    cls=RecipeCommand,
    only={
        "board": ("board", "on", "no_wait", "detach", "priority"),
        "timing": ("spares", "build", "untrusted", "junit", "written", "strict"),
        "evaluation": ("limit",),
    },
    epilog="Examples: labctl run recipes/q8_latency.yaml --board rk1 --set tokens=8;"
    " labctl run arithmetic --limit 10",
)
@click.option(
    "--board",
    "-b",
    shell_complete=BOARD,
    help="The board to use; default: the lab's default board.",
)
@click.option(
    "--spare",
    "spares",
    shell_complete=BOARD,
    multiple=True,
    metavar="BOARD",
    help="An equal board to continue on if the first one fails; repeatable.",
)
@click.option(
    "--set",
    "set_values",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a key of the recipe for this run; repeatable.",
)
@click.option("--build", is_flag=True, help="Build what is missing, damaged or of an older source.")
@click.option(
    "--untrusted",
    is_flag=True,
    help="The recipe is not trusted, such as a pull request: confine it to the current folder and"
    " to a board with `untrusted: true`.",
)
@click.option(
    "--on",
    metavar="SELECTOR",
    help="Run on the first free one of these boards, e.g. target=rk3568,tag=fast.",
)
@click.option("--no-wait", is_flag=True, help="End with 3 if the board is in use.")
@click.option(
    "--detach", is_flag=True, help="Put the run into the lab's queue, print its job, and end."
)
@click.option(
    "--priority",
    type=click.IntRange(-100, 100),
    default=0,
    help="Priority in the queue; the highest comes first. Default: 0.",
)
@limit_option
@result_options
@ci_options
@click.argument("recipe", shell_complete=RECIPE)
@click.pass_obj
def run(
    invocation: Invocation,
    recipe: str,
    *,
    board: str | None,
    spares: tuple[str, ...],
    set_values: tuple[str, ...],
    build: bool,
    untrusted: bool,
    on: str | None,
    no_wait: bool,
    detach: bool,
    priority: int,
    limit: int | None,
    result_format: str,
    output: Path | None,
    ci: CiOutput,
) -> int:
    """Run a recipe and print its result.

    RECIPE is a file, or the name of a recipe of the lab or of labctl. A timing recipe (it has an
    `engine`) measures programs on a board; an evaluation (`dataset`) asks models questions; a load
    test (`endpoint`) loads a server. A server that has a `url` needs no board. Deploys missing
    files; builds only with --build. Writes raw logs and records to a new directory below the lab's
    runs/. Exit status 0: there is a result for everything, and every gate is met; 1: a program
    failed, a question was refused or a gate was missed; 3: host, link, board or server failed.
    Finished trials and answers are kept, and `labctl resume` continues the run, also after Ctrl-C
    or a kill; a load test keeps its results, and begins anew. With --spare the run continues on
    another board if it is equal: of the same kind, system and speed (by the probes of both).

    If the board is in use, waits in the lab's fair queue; see `labctl queue`.
    """
    if detach and (build or no_wait or spares):
        raise click.UsageError("--detach cannot be used with --build, --no-wait or --spare")
    if on is not None and board is not None:
        raise click.UsageError("name the board with --board, or boards with --on; not both")
    root = lab_or_own(invocation).root
    if untrusted and (build or spares):
        raise ConfigError(
            "--untrusted cannot be used with --build or --spare",
            hint="build first: labctl build --untrusted",
        )
    workspace = _workspace(invocation, recipe, root) if untrusted else None
    document = Document.read(find_recipe(recipe, root) if workspace is None else Path(recipe))
    refuse_foreign(kind := recipe_kind(document))
    if kind != "timing":
        from labctl.cli.served_run import Turns, run_served

        turns = Turns(board, on, waits=not no_wait, detach=detach, priority=priority)
        settings = with_limit(set_values, limit)
        return run_served(
            invocation, document, settings, turns, result_format=result_format, output=output
        )
    wanted = read_recipe(document, set_values, lab_root=root, workspace=workspace)
    lab, pool = _boards(invocation, wanted, board, on, untrusted=untrusted)
    if detach:
        from labctl.cli.run_detached import submit

        return submit(lab, wanted, pool, priority, untrusted=untrusted)

    others = [lab.board(name) for name in dict.fromkeys(spares)]
    return run_on_board(
        lab,
        wanted,
        pool,
        (result_format, output),
        ci,
        others=others,
        build=build,
        untrusted=untrusted,
        priority=priority,
        waits=not no_wait,
    )


def run_on_board(
    lab: LabFile,
    wanted: Recipe,
    pool: Sequence[Board],
    shown: tuple[str, Path | None],
    ci: CiOutput,
    *,
    others: Sequence[Board] = (),
    build: bool = False,
    untrusted: bool = False,
    priority: int = 0,
    waits: bool = True,
) -> int:
    """Run a timing recipe on the first free board of a pool, in its turn; return the exit status.

    ``shown``: format and file of the result. ``others``: boards on which the run may continue.
    """
    state, by = lab_state(lab), this_user()
    working = state.health.working([one.name for one in pool], by, untrusted=untrusted)
    pool = [one for one in pool if one.name in working]
    for one in others:
        state.health.working([one.name], by)

    def run_on(chosen: Board, job: Job | None, aside: "Aside") -> int:
        request = RunRequest(wanted, chosen, lab, compare=comparing_with(lab), untrusted=untrusted)
        if job is not None:
            request = replace(request, use=BoardUse(job=job.id, attempt=job.attempts))
        if not others:  # with spares, the run may move to another board
            request = replace(request, aside=aside)
        left = [one for one in others if one.name != chosen.name]
        return run_and_tell(request, left, *shown, ci, build=build)

    note_missing(lab, wanted, pool[0].name)
    if not build:  # with --build, the program may still be missing
        try:
            find_files(wanted, pool[0], lab.root, untrusted=untrusted)
        except LabctlError as error:  # fail before waiting for a board
            ci.write_failed(error, None, wanted, pool[0].name)
            raise
    from labctl.cli.run_in_turn import run_in_turn

    return run_in_turn(lab, wanted, pool, priority, run_on, untrusted=untrusted, waits=waits)


def _workspace(invocation: Invocation, recipe: str, root: Path) -> "Workspace":
    """Return the folder that an untrusted recipe may not leave. Raises ConfigError."""
    from labctl.runs.inputs.untrusted_recipe import Workspace

    return Workspace.of(Path(recipe), root, invocation.lab)


def _boards(
    invocation: Invocation, recipe: Recipe, board: str | None, on: str | None, *, untrusted: bool
) -> tuple[LabFile, list[Board]]:
    """Return the lab and the possible boards; the run uses the first free board."""
    if on is None:
        lab, chosen = lab_and_board(invocation, board)
        return lab, [chosen]
    from labctl.cli.board_choice import equal_boards

    lab = lab_of(invocation)
    return lab, equal_boards(lab, f"{on},untrusted=yes" if untrusted else on, recipe)


def run_and_tell(
    request: RunRequest,
    spares: Sequence[Board],
    result_format: str,
    output: Path | None,
    ci: CiOutput,
    *,
    build: bool,
) -> int:
    """Run a recipe and print its result; return the exit status.

    With ``build``, makes missing and outdated builds: the agent once the board's machine is known,
    the rest before. Raises what :func:`labctl.runs.failover.run_with_failover` raises.
    """
    directory: RunDirectory | None = None

    def remember(event: AnyEvent) -> None:
        nonlocal directory
        if isinstance(event, Contact):
            directory = RunDirectory(request.lab.root / "runs" / event.run)

    try:
        with ProgressView() as view:
            if build:
                from labctl.cli.build import BuildView, build_missing

                build_missing(view, request.recipe, request.lab.root)
                request = replace(request, build=BuildView(view).build)
            observer = Observer(RunView(view).show, remember)
            if request.untrusted:
                from labctl.farm.untrusted_run import run_untrusted

                outcome = run_untrusted(request, connect_board, observer)
            elif spares:
                from labctl.runs.failover import run_with_failover

                outcome = run_with_failover(
                    request, spares, connect_board, observer, ci.exit_status
                )
            else:
                outcome = _run_to_its_end(request, observer, ci)
    except LabctlError as error:
        ci.write_failed(error, directory, request.recipe, request.board.name)
        raise
    return tell(outcome, result_format, output, ci)


def _run_to_its_end(request: RunRequest, observer: Observer, ci: CiOutput) -> Outcome:
    """Run a recipe; if the lab's database is down for longer than a lease, resume afterwards."""
    try:
        return run_recipe(request, connect_board, observer, ci.exit_status)
    except LeaseLost as lost:
        if not lost.is_of_host or lost.run is None:
            raise
        from labctl.runs.resume import ResumeRequest, resume

        observer.note(f"{lost.message}; the run continues when it answers")
        board, lab = request.board, request.lab
        directory = RunDirectory(lab.root / "runs" / lost.run)
        again = ResumeRequest(directory, board, lab, request.build, request.compare, request.use)
        job = lab_state(lab).jobs.get(request.use.job or "")  # waits for the database
        if job is None or (job.state, job.attempts) != ("running", request.use.attempt):
            again = replace(again, use=replace(request.use, job=None, attempt=None))
        return resume(again, partial(connect_board, board), observer, ci.exit_status)


def comparing_with(lab: LabFile) -> CompareGates:
    """Return a function that judges gates by the lab's baselines and last runs."""

    def judge(
        run: RunRecord, trials: Sequence[TrialRecord], parameters: Parameters
    ) -> tuple[GateRecord, ...]:
        if not comparing_gates(run):
            return ()
        from labctl.compare.gates import judge_gates

        return judge_gates(lab, run, trials, parameters)

    return judge


def note_missing(lab: LabFile, recipe: Recipe, board: str) -> None:
    """Print a note for each gate of a planned run that has nothing to compare with."""
    if any(gate.against is not None for gate in recipe.gates):
        from labctl.compare.gates import missing_references

        for line in missing_references(lab, recipe, board):
            note(f"note: {line}")
