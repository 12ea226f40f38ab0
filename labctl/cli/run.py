"""``labctl run``."""

import json

import click
from rich.console import Console

from labctl.cli.lab import connect_board, lab_of
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
@click.option("--board", help="The board to run on; default: the lab's default board.")
@click.option(
    "--spare",
    "spares",
    multiple=True,
    metavar="BOARD",
    help="An equal board to go on with when the first one breaks; may be given several times.",
)
@click.option(
    "--set",
    "set_values",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a key of the recipe for this run; may be given several times.",
)
@click.option("--json", "as_json", is_flag=True, help="Print run, rows and records as JSON.")
@click.argument("recipe")
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

    RECIPE is a file, or the name of one of the lab's or of those that come with labctl. Deploys
    what the board lacks; never builds. Raw logs and records land in a new directory under the lab's
    runs/. Ends with 0 when every variant has a result and every gate held, 1 when a program failed
    or a gate was missed, 3 when host, link or board broke: what was finished by then is kept, and
    `labctl resume` goes on, as it does after Ctrl-C or a kill. With --spare the run goes on by
    itself on another board, if that is equal: of the same kind, system and speed (by the probes of
    both).
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
    return tell(invocation, outcome, as_json=as_json)


def tell(invocation: Invocation, outcome: Outcome, *, as_json: bool) -> int:
    """Print what a run came to; its exit status."""
    invocation.status = outcome.exit_status
    if as_json:
        document = run_document(outcome.run, outcome.trials, outcome.directory.path)
        click.echo(json.dumps(document, indent=2))
    else:
        print_timing_table(Console(), outcome.run, outcome.trials, outcome.gates)
        click.echo(f"run directory: {outcome.directory.path}")
    return outcome.exit_status
