"""``labctl hold`` and ``labctl release``: boards for people."""

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

_USUAL = format_duration(HOLD_SECONDS)


class LocalTime(click.ParamType[float]):
    """A time of day, a date with a time, or ``now``; without an offset, in this host's zone."""

    name = "when"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the time in s since 1970."""
        try:
            return parse_local_time(str(value), datetime.now(UTC))
        except (ValueError, OverflowError) as error:
            self.fail(str(error), param, ctx)


@click.command(
    epilog='Examples: labctl hold rk1 --for 2h --reason "look at the fan";'
    " labctl hold rk1 --from 14:00 --for 2h --reason demo"
)
@click.option("--for", "seconds", type=USE_TIME, help=f"Time until it ends; default: {_USUAL}.")
@click.option(
    "--from",
    "begins",
    type=LocalTime(),
    metavar="WHEN",
    help="Begin then: 14:00, 2026-11-22T14:00, now. Needs --for. Default: at once.",
)
@click.option("--user", metavar="NAME", help="With --from: for USER or USER@HOST; default: you.")
@click.option("--maintenance", is_flag=True, help="With --from: nobody starts work then.")
@click.option("--list", "lists", is_flag=True, help="List holds and reservations.")
@click.option("--cancel", metavar="ID", help="Cancel this reservation.")
@click.option("--force", is_flag=True, help="Cancel another user's reservation; needs --reason.")
@click.option("--reason", metavar="TEXT", help="Reason, for others.")
@json_option("Print holds and reservations as JSON, times in seconds since 1970.")
@click.argument("boards", metavar="[BOARD]...", nargs=-1, shell_complete=BOARD)
@click.pass_obj
def hold(
    invocation: Invocation,
    boards: Sequence[str],
    *,
    seconds: float | None,
    begins: float | None,
    user: str | None,
    maintenance: bool,
    lists: bool,
    cancel: str | None,
    force: bool,
    reason: str | None,
    as_json: bool,
) -> None:
    """Keep boards for yourself, from now on or from a later time.

    Meanwhile commands of other users are refused; your own (same user, same host) work. Contacts no
    board. Holding a board again changes the time. Exit status 3 if another user has it.

    With --from, reserves them: other users' work that may still run at that time does not begin; a
    run counts with its max_time. A run in progress at the begin ends its trial and begins no other
    one.
    """
    _check_hold(boards, seconds, begins, user or maintenance, lists=lists, cancel=cancel)
    lab = lab_of(invocation)
    state, by, names = lab_state(lab), this_user(), _names(lab, boards)
    if lists:
        found = [one for one in state.reservations.list() if not names or one.board in names]
    elif cancel is not None:
        found = [state.reservations.cancel(cancel, by=by, force=force, reason=reason)]
    elif begins is None:
        length = seconds or HOLD_SECONDS
        found = [state.holds.hold(name, by=by, reason=reason, seconds=length) for name in names]
    else:
        ends = begins + (seconds or 0.0)
        found = [
            state.reservations.add(
                name,
                begins,
                ends,
                holder=user or by,
                by=by,
                kind="maintenance" if maintenance else "reservation",
                reason=reason,
            )
            for name in names
        ]
    if as_json:
        click.echo(json.dumps([asdict(one) for one in found], indent=2))
    elif lists or cancel is not None or begins is not None:
        _print(found, "cancelled: " if cancel else "")
    else:
        for one in found:
            click.echo(f"{one.board} is yours until {local_time(one.ends)}")
        note(f"to release earlier: labctl release {' '.join(names)}")


def _print(found: Sequence[Reservation], before: str) -> None:
    for one in found:
        click.echo(printable_line(f"{before}{line(one)}"))
    if not found:
        note("no holds and no reservations")


def _check_hold(
    boards: Sequence[str],
    seconds: float | None,
    begins: float | None,
    is_for_others: object,
    *,
    lists: bool,
    cancel: str | None,
) -> None:
    """Refuse options that do not go together. Raises UsageError."""
    if cancel is not None and (boards or lists or begins is not None):
        raise click.UsageError("--cancel takes an ID, and no board or time")
    if cancel is None and not lists and not boards:
        raise click.UsageError("name a BOARD; --list shows who keeps which")
    if begins is None and is_for_others:
        raise click.UsageError("--user and --maintenance need --from WHEN")
    if begins is not None and seconds is None:
        raise click.UsageError("a reservation needs its length: --for 2h")


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


def line(one: Reservation) -> str:
    """Return a reservation on one line."""
    if one.damaged:
        return f"{one.id}  {one.board}  {one.kind}  {one.damaged}"
    why = f": {one.reason}" if one.reason else ""
    times = f"{local_time(one.begins)} to {local_time(one.ends)}"
    return f"{one.id}  {one.board}  {times}  {one.kind}  {one.holder}{why}"


def _names(lab: LabFile, boards: Sequence[str]) -> list[str]:
    return [lab.board(name).name for name in dict.fromkeys(boards)]
