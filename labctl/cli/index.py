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
    help="Also remove the runs of other hosts; each host adds its own with its next command.",
)
@click.pass_obj
def rebuild(invocation: Invocation, *, of_all_hosts: bool) -> None:
    """Rebuild the index from the run directories.

    This is seldom needed: a missing, damaged or outdated index is rebuilt automatically. In a
    database shared by several hosts, the runs of other hosts stay; --all removes the entries of a
    host that is gone.
    """
    folder = runs_folder(invocation, "latest")
    found = RunRepository(folder, note).rebuild(of_all_hosts=of_all_hosts)
    damaged = [one.run for one in found if one.run.damage]
    for run in damaged:
        note(f"damaged: {run.id}: {printable_line(run.damage or '')}")
    more = f", {len(damaged)} damaged" if damaged else ""
    click.echo(f"index of {counted(len(found), 'run')}{more}")
