"""``labctl index``: the index of the lab's runs."""

import click

from labctl.cli.lab import runs_folder
from labctl.cli.output import note
from labctl.cli.root import Invocation
from labctl.errors import printable_line
from labctl.runs.record.repository import RunRepository
from labctl.units import counted


@click.group(epilog="Example: labctl index rebuild")
def index() -> None:
    """Manage the index of the lab's runs."""


@index.command(epilog="Example: labctl index rebuild")
@click.option(
    "--all",
    "of_all_hosts",
    is_flag=True,
    help="Forget the runs of other hosts too; each adds its own with its next command.",
)
@click.pass_obj
def rebuild(invocation: Invocation, *, of_all_hosts: bool) -> None:
    """Make the index again from the run directories.

    It is seldom needed: a missing, damaged or outdated index is made again by itself. In a database
    that hosts share, the runs of other hosts stay; --all forgets those of a host that is gone.
    """
    folder = runs_folder(invocation, "latest")
    found = RunRepository(folder, note).rebuild(of_all_hosts=of_all_hosts)
    damaged = [one.run for one in found if one.run.damage]
    for run in damaged:
        note(f"damaged: {run.id}: {printable_line(run.damage or '')}")
    more = f", {len(damaged)} damaged" if damaged else ""
    click.echo(f"index of {counted(len(found), 'run')}{more}")
