"""``labctl runs``: the lab's runs."""

import click

from labctl.cli.lab import runs_folder
from labctl.cli.output import json_option
from labctl.cli.root import Invocation
from labctl.cli.run_filters import filter_options
from labctl.cli.run_list import print_runs
from labctl.index import Filter

#: Runs that a list shows where nothing else is said.
LIMIT = 50


@click.group(invoke_without_command=True, epilog="Example: labctl runs --board rk1 --since 7d")
@filter_options
@click.option(
    "-n",
    "limit",
    type=click.IntRange(min=0),
    default=LIMIT,
    show_default=True,
    help="Number of runs to list, newest first; 0: all.",
)
@click.option("--wide", is_flag=True, help="Print full ids and all columns.")
@json_option("Print the list as JSON, times in ns.")
@click.pass_context
def runs(ctx: click.Context, *, wanted: Filter, limit: int, wide: bool, as_json: bool) -> None:
    """List the lab's runs, newest first.

    Without a command it lists; conditions are joined by "and". The token time is each variant's
    estimate, from the fastest variant to the slowest. The exit status is 0 also where nothing is
    found.
    """
    if ctx.invoked_subcommand is not None:
        return
    invocation: Invocation = ctx.obj
    print_runs(
        runs_folder(invocation, "latest"), wanted, limit=limit or None, wide=wide, as_json=as_json
    )
