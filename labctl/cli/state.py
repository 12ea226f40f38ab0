"""``labctl state``: backups of the state of a lab, which cannot be computed again."""

from pathlib import Path

import click

from labctl.cli.lab import lab_or_own
from labctl.cli.output import confirm
from labctl.cli.root import Invocation
from labctl.state import lab_state


@click.group(epilog="Example: labctl state backup -o /media/usb/lab.sqlite")
def state() -> None:
    """Back up and restore the lab's state: baselines, leases, queue, health, tokens.

    Reservations, the boards' history and the audit log are part of it; runs are not. labctl makes
    automatic backups before the first change of a day and before a change of its tables.
    """


@state.command(epilog="Example: labctl state backup -o /media/usb/lab.sqlite")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="New file; default: one in the lab's folder backups/.",
)
@click.pass_obj
def backup(invocation: Invocation, output: Path | None) -> None:
    """Copy the lab's state to a SQLite file."""
    click.echo(lab_state(lab_or_own(invocation)).backup(output))


@state.command(epilog="Example: labctl state restore /media/usb/lab.sqlite --yes")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--force", is_flag=True, help="Restore even while workers or runs are active.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.pass_obj
def restore(invocation: Invocation, file: Path, *, yes: bool, force: bool) -> None:
    """Replace the lab's state by a backup.

    The present state is backed up first. A labctl.sqlite is a backup too: use it to move a lab's
    state into a PostgreSQL, or out of it. Refused while a worker is alive or somebody uses a board.
    """
    if not yes:
        confirm(f"replace the lab's state by {file}")
    lab_state(lab_or_own(invocation)).restore(file, force=force)
