"""``labctl hold``, ``labctl release`` and ``labctl reserve``: boards for people."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from labctl.cli.complete import BOARD
from labctl.cli.lab import lab_of
from labctl.cli.options import USE_TIME
from labctl.cli.output import json_option, note
from labctl.cli.root import Invocation
from labctl.config.lab import LabFile
from labctl.config.types import format_duration
from labctl.errors import printable_line
from labctl.state.events import this_user
from labctl.state.holds import HOLD_SECONDS, ended_document
from labctl.state.reservations import Reservation
from labctl.state.state import lab_state
from labctl.units import local_time, parse_local_time


class LocalTime(click.ParamType[float]):
    """A time of day, a date with a time, or ``now``; without an offset on this host's clock."""

    name = "when"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return it in s since 1970."""
        try:
            return parse_local_time(str(value), datetime.now(UTC))
        except (ValueError, OverflowError) as error:
            self.fail(str(error), param, ctx)


@click.command(epilog='Example: labctl hold rk1 --for 2h --reason "look at the fan"')
@click.option(
    "--for",
    "seconds",
    type=USE_TIME,
    default=format_duration(HOLD_SECONDS),
    show_default=True,
    help="Time until it ends.",
)
@click.option("--reason", metavar="TEXT", help="Reason, for others.")
@json_option("Print the holds as JSON, times in seconds since 1970.")
@click.argument("boards", metavar="BOARD...", nargs=-1, required=True, shell_complete=BOARD)
@click.pass_obj
def hold(
    invocation: Invocation,
    boards: Sequence[str],
    *,
    seconds: float,
    reason: str | None,
    as_json: bool,
) -> None:
    """Keep boards for yourself from now on.

    Meanwhile commands of other users are refused; your own (same user, same host) work. Contacts no
    board. Holding a board again changes the time. Exit status 3 if another user has it.
    """
    lab = lab_of(invocation)
    holds, by = lab_state(lab).holds, this_user()
    made = [holds.hold(name, by=by, reason=reason, seconds=seconds) for name in _names(lab, boards)]
    if as_json:
        click.echo(json.dumps([asdict(one) for one in made], indent=2))
        return
    for one in made:
        click.echo(f"{one.board} is yours until {local_time(one.ends)}")
    note(f"to release earlier: labctl release {' '.join(one.board for one in made)}")


@click.command(epilog='Example: labctl release rk1 --force --reason "she is on holiday"')
@click.option("--force", is_flag=True, help="Also end another user's hold and the current lease.")
@click.option("--reason", metavar="TEXT", help="Reason, for the audit log; --force needs one.")
@json_option("Print what was ended as JSON.")
@click.argument("boards", metavar="BOARD...", nargs=-1, required=True, shell_complete=BOARD)
@click.pass_obj
def release(
    invocation: Invocation,
    boards: Sequence[str],
    *,
    force: bool,
    reason: str | None,
    as_json: bool,
) -> None:
    """Release boards that you hold.

    With --force, a run of any user loses its board: it records nothing more, its finished trials
    stay, and `labctl resume` continues it.
    """
    lab = lab_of(invocation)
    holds, by = lab_state(lab).holds, this_user()
    ended = {
        name: holds.release(name, by=by, force=force, reason=reason) for name in _names(lab, boards)
    }
    if as_json:
        click.echo(json.dumps(ended_document(ended)))
        return
    for name, what in ended.items():
        text = f"ended {', '.join(what)}" if what else "nobody held it"
        click.echo(printable_line(f"{name}: {text}"))


@click.command(epilog="Example: labctl reserve rk1 --from 14:00 --for 2h --reason demo")
@click.option(
    "--from",
    "begins",
    type=LocalTime(),
    metavar="WHEN",
    help="Begin: 14:00, 2026-11-23T09:00 (on this host's clock), 2026-11-23T09:00+01:00.",
)
@click.option("--for", "seconds", type=USE_TIME, help="Length, such as 2h.")
@click.option("--user", metavar="USER", help="For USER or USER@HOST; default: you.")
@click.option("--maintenance", is_flag=True, help="Nobody starts work then.")
@click.option("--cancel", metavar="ID", help="Cancel a reservation.")
@click.option("--force", is_flag=True, help="Cancel another user's reservation; needs --reason.")
@click.option("--reason", metavar="TEXT", help="Reason, for others and the audit log.")
@json_option("Print the reservations as JSON, times in seconds since 1970.")
@click.argument("boards", metavar="[BOARD]...", nargs=-1, shell_complete=BOARD)
@click.pass_obj
def reserve(
    invocation: Invocation,
    boards: Sequence[str],
    *,
    begins: float | None,
    seconds: float | None,
    user: str | None,
    maintenance: bool,
    cancel: str | None,
    force: bool,
    reason: str | None,
    as_json: bool,
) -> None:
    """Reserve boards for a time; without --from, list the reservations.

    Other users' work that may still run at that time does not begin: a run counts with its
    max_time. A run in progress at the begin ends its trial and begins no other one.
    """
    lab = lab_of(invocation)
    state, by = lab_state(lab), this_user()
    names = _names(lab, boards)
    if cancel is not None:
        if names or begins is not None:
            raise click.UsageError("--cancel takes an ID, and no board or time")
        found = [state.reservations.cancel(cancel, by=by, force=force, reason=reason)]
    elif begins is None:
        if seconds is not None or maintenance or user:
            raise click.UsageError("the begin is missing: --from WHEN")
        found = [one for one in state.reservations.list() if not names or one.board in names]
    else:
        if seconds is None or not names:
            raise click.UsageError("a reservation needs a BOARD, and its length: --for 2h")
        found = [
            state.reservations.add(
                name,
                begins,
                begins + seconds,
                holder=user or by,
                by=by,
                kind="maintenance" if maintenance else "reservation",
                reason=reason,
            )
            for name in names
        ]
    if as_json:
        click.echo(json.dumps([asdict(one) for one in found], indent=2))
        return
    for one in found:
        click.echo(printable_line(f"{'cancelled: ' if cancel else ''}{line(one)}"))
    if not found:
        note("no reservations")


def line(one: Reservation) -> str:
    """Return a reservation on one line."""
    if one.damaged:
        return f"{one.id}  {one.board}  {one.kind}  {one.damaged}"
    why = f": {one.reason}" if one.reason else ""
    times = f"{local_time(one.begins)} to {local_time(one.ends)}"
    return f"{one.id}  {one.board}  {times}  {one.kind}  {one.holder}{why}"


def _names(lab: LabFile, boards: Sequence[str]) -> list[str]:
    return [lab.board(name).name for name in dict.fromkeys(boards)]
