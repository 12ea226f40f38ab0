"""``labctl state audit``: who did what in the lab."""

import json
from dataclasses import asdict
from datetime import datetime

import click

from labctl.cli.complete import BOARD
from labctl.cli.lab import lab_of
from labctl.cli.output import json_option, note
from labctl.cli.root import Invocation
from labctl.cli.run_filters import Moment
from labctl.errors import printable_line
from labctl.state.audit import AuditEntry
from labctl.state.state import lab_state
from labctl.units import local_time


@click.command(epilog="Example: labctl state audit --board rk1 --since 7d")
@click.option("--since", type=Moment(), help="Only since then: 2026-11-22, 7d, 12h.")
@click.option("--actor", metavar="USER", help="Only what USER, or USER@HOST, did.")
@click.option("--board", "-b", shell_complete=BOARD, help="Only what was done to a board.")
@click.option(
    "-n",
    "limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Entries to show.",
)
@json_option("Print the entries as JSON, times in seconds since 1970.")
@click.pass_obj
def audit(
    invocation: Invocation,
    *,
    since: datetime | None,
    actor: str | None,
    board: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Print who held, released, reserved or changed what, and why.

    Oldest first. Read from the lab's state; contacts no board.
    """
    found = lab_state(lab_of(invocation)).audit.list(
        since=since.timestamp() if since else None, actor=actor, subject=board, limit=limit
    )
    if as_json:
        click.echo(json.dumps([asdict(one) for one in found], indent=2))
        return
    for one in found:
        click.echo(printable_line(_line(one)))
    if not found:
        note("no actions yet")


def _line(one: AuditEntry) -> str:
    if one.damaged:
        return f"{one.actor}  {one.action}  {one.subject}  {one.damaged}"
    why = f": {one.reason}" if one.reason else ""
    return f"{local_time(one.at)}  {one.actor}  {one.action}  {one.subject}{why}  ({one.via})"
