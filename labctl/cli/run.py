"""``labctl run``."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from labctl.cli.ci_output import CiOutput, ci_options
from labctl.cli.complete import BOARD, RECIPE
from labctl.cli.lab import connect_board, lab_and_board, lab_or_own
from labctl.cli.output import note, result_options, tell
from labctl.cli.progress import ProgressView
from labctl.cli.root import Invocation
from labctl.cli.run_view import RunView
from labctl.config.lab import Board, LabFile
from labctl.config.recipe import Recipe, find_recipe
from labctl.errors import ConfigError, LabctlError
from labctl.records import GateRecord, RunRecord, TrialRecord
from labctl.records.events import AnyEvent, Contact
from labctl.results.gates import CompareGates, Parameters, comparing_gates
from labctl.runs import (
    Observer,
    RunRequest,
    read_recipe,
    run_with_failover,
)
from labctl.runs.record.directory import RunDirectory
from labctl.state import lab_state
from labctl.state.state import this_user


@click.command(epilog="Example: labctl run recipes/q8_latency.yaml --board rk1 --set tokens=8")
@click.option(
    "--board",
    "-b",
    shell_complete=BOARD,
    help="The board to run on; default: the lab's default board.",
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
    help="Nobody vouches for the recipe, as of a pull request: confine it to the present folder and"
    " to a board with `untrusted: true`.",
)
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
    result_format: str,
    output: Path | None,
    ci: CiOutput,
) -> int:
    """Run a recipe on a board and print its timing table.

    RECIPE is a file, or the name of a recipe of the lab or of labctl. Deploys missing files; builds
    only with --build. Writes raw logs and records to a new directory below the lab's runs/. Exit
    status 0: every variant has a result and every gate is met; 1: a program failed or a gate was
    missed; 3: host, link or board failed. Finished trials are kept, and `labctl resume` continues
    the run, also after Ctrl-C or a kill. With --spare the run continues on another board if it is
    equal: of the same kind, system and speed (by the probes of both).
    """
    root = lab_or_own(invocation).root
    workspace = None
    if untrusted:
        from labctl.runs.inputs.untrusted import Workspace

        if build or spares:
            raise ConfigError(
                "--untrusted goes with neither --build nor --spare",
                hint="build first: labctl build --untrusted",
            )
        workspace = Workspace.of(Path(recipe), root)
        path = Path(recipe)
    else:
        path = find_recipe(recipe, root)
    wanted = read_recipe(path, set_values, lab_root=root, workspace=workspace)
    lab, chosen = lab_and_board(invocation, board)
    health, by = lab_state(lab).health, this_user()
    health.require_work(chosen.name, by)
    others = [lab.board(name) for name in dict.fromkeys(spares) if name != chosen.name]
    for other in others:
        health.require_work(other.name, by)
    request = RunRequest(wanted, chosen, lab, compare=comparing_with(lab), untrusted=untrusted)
    note_missing(lab, wanted, chosen.name)
    return run_and_tell(request, others, result_format, output, ci, build=build)


def run_and_tell(
    request: RunRequest,
    spares: Sequence[Board],
    result_format: str,
    output: Path | None,
    ci: CiOutput,
    *,
    build: bool,
) -> int:
    """Run a recipe and print its result; the exit status.

    With ``build`` what it needs is built unless it is here as its build spec has it now: the agent
    when the board has told its machine, the rest before. Raises what
    :func:`labctl.runs.run_with_failover` raises.
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
                from labctl.farm.untrusted import run_untrusted

                outcome = run_untrusted(request, connect_board, observer)
            else:
                outcome = run_with_failover(
                    request, spares, connect_board, observer, ci.exit_status
                )
    except LabctlError as error:
        ci.write_failed(error, directory, request.recipe, request.board.name)
        raise
    return tell(outcome, result_format, output, ci)


def comparing_with(lab: LabFile) -> CompareGates:
    """Return what judges gates against the lab's baselines and its last runs."""

    def judge(
        run: RunRecord, trials: Sequence[TrialRecord], parameters: Parameters
    ) -> tuple[GateRecord, ...]:
        if not comparing_gates(run):
            return ()
        from labctl.compare.gates import judge_gates

        return judge_gates(lab, run, trials, parameters)

    return judge


def note_missing(lab: LabFile, recipe: Recipe, board: str) -> None:
    """Say before a run which of its gates have nothing to be compared with."""
    if any(gate.against is not None for gate in recipe.gates):
        from labctl.compare.gates import missing_references

        for line in missing_references(lab, recipe, board):
            note(f"note: {line}")
