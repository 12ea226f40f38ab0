"""``labctl state``: the state of a lab, which cannot be computed again: backups, audit log."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from labctl.cli.audit import audit
from labctl.cli.lab import lab_or_own
from labctl.cli.output import confirm, json_option, note
from labctl.cli.root import Invocation
from labctl.state.damaged import damaged_rows, remove_damaged
from labctl.state.events import this_user
from labctl.state.state import lab_state
from labctl.units import counted


@click.group(epilog="Example: labctl state backup -o /media/usb/lab.sqlite")
def state() -> None:
    """Back up, restore and audit the lab's state: baselines, leases, queue, health, tokens.

    Reservations, the boards' history and the audit log are part of it; runs are not. labctl makes
    automatic backups before the first change of a day and before a change of its tables.
    """


state.add_command(audit)


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


@state.command(epilog="Example: labctl state damaged --remove 3f2a90c1d2e4 --reason 'disk error'")
@click.option("--remove", "ids", multiple=True, metavar="ID", help="Remove this row; repeatable.")
@click.option("--reason", metavar="TEXT", help="Reason, for the audit log; --remove needs one.")
@json_option("Print the rows as JSON.")
@click.pass_obj
def damaged(
    invocation: Invocation, *, ids: tuple[str, ...], reason: str | None, as_json: bool
) -> None:
    """List the rows of the lab's state that cannot be read, and why.

    A board with a damaged lease, hold, health or job counts as kept until somebody removes the row.
    Contacts no board.
    """
    lab = lab_state(lab_or_own(invocation))
    if ids and not (reason or "").strip():
        raise click.UsageError("--remove needs --reason TEXT")
    found = remove_damaged(lab, ids, by=this_user(), reason=reason or "") if ids else ()
    found = found or damaged_rows(lab)
    if as_json:
        click.echo(json.dumps([asdict(one) for one in found], indent=2))
        return
    for one in found:
        click.echo(f"{'removed: ' if ids else ''}{one.id}  {one.table}  {one.damaged}")
    if not ids:
        note(f"{counted(len(found), 'damaged row')}; to remove one: --remove ID --reason TEXT")
