"""``labctl run``."""

import json
import sys
from contextlib import redirect_stdout

import click

from labctl.cli.complete import BOARD, RECIPE
from labctl.cli.lab import connect_board, lab_of
from labctl.cli.output import json_option, output_console, unfailing
from labctl.cli.progress import ProgressView
from labctl.cli.root import Invocation
from labctl.cli.run_view import RunView
from labctl.config.recipe import find_recipe
from labctl.report import print_timing_table
from labctl.report.document import run_document
from labctl.runs import (
    Observer,
    Outcome,
    RunRequest,
    read_recipe,
    run_with_failover,
)


@click.command(epilog="Example: labctl run recipes/q8_latency.yaml --board rk1 --set tokens=8")
@click.option(
    "--board", shell_complete=BOARD, help="The board to run on; default: the lab's default board."
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
@json_option("Print run, rows and records as JSON.")
@click.argument("recipe", shell_complete=RECIPE)
@click.pass_obj
def run(
    invocation: Invocation,
    recipe: str,
    *,
    board: str | None,
    spares: tuple[str, ...],
    set_values: tuple[str, ...],
    as_json: bool,
) -> int:
    """Run a recipe on a board and print its timing table.

    RECIPE is a file, or the name of a recipe of the lab or of labctl. Deploys missing files; never
    builds. Writes raw logs and records to a new directory below the lab's runs/. Exit status 0:
    every variant has a result and every gate is met; 1: a program failed or a gate was missed; 3:
    host, link or board failed. Finished trials are kept, and `labctl resume` continues the run,
    also after Ctrl-C or a kill. With --spare the run continues on another board if it is equal: of
    the same kind, system and speed (by the probes of both).
    """
    lab = lab_of(invocation)
    chosen = lab.board(board)
    wanted = read_recipe(find_recipe(recipe, lab.root), set_values, lab_root=lab.root)
    others = [lab.board(name) for name in dict.fromkeys(spares) if name != chosen.name]
    with ProgressView() as view:
        outcome = run_with_failover(
            RunRequest(wanted, chosen, lab),
            others,
            connect_board,
            Observer(RunView(view).show),
        )
    return tell(outcome, as_json=as_json)


def tell(outcome: Outcome, *, as_json: bool) -> int:
    """Print what a run came to; its exit status."""
    with redirect_stdout(unfailing(sys.stdout)):  # its status holds though nobody reads
        if as_json:
            document = run_document(outcome.run, outcome.trials, outcome.directory.path)
            click.echo(json.dumps(document, indent=2))
        else:
            print_timing_table(output_console(), outcome.run, outcome.trials, outcome.gates)
            click.echo(f"run directory: {outcome.directory.path}")
    return outcome.exit_status
