"""``labctl boards history``, and decisions of people about a board's health."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

import click

from labctl.cli.complete import BOARD
from labctl.cli.lab import lab_of
from labctl.cli.output import json_option, note
from labctl.cli.root import Invocation
from labctl.errors import printable_line
from labctl.state.events import BoardEvent
from labctl.state.health import Health
from labctl.state.state import lab_state
from labctl.units import local_time

_LAST = 50


@click.command(epilog="Example: labctl boards history rk1 --since 7d")
@click.option("--since", metavar="WHEN", help="Only since then: 2026-11-22, 7d, 12h; default: all.")
@click.option(
    "-n",
    "limit",
    type=click.IntRange(min=1),
    default=_LAST,
    show_default=True,
    help="Number of events to show.",
)
@json_option("Print what happened as JSON, times in seconds since 1970.")
@click.argument("board", required=False, shell_complete=BOARD)
@click.pass_obj
def history(
    invocation: Invocation, board: str | None, *, since: str | None, limit: int, as_json: bool
) -> None:
    """Show what happened to a board: health, state, firmware, checks, recoveries.

    Oldest first. Contacts no board.
    """
    lab = lab_of(invocation)
    name, state = lab.board(board).name, lab_state(lab)
    events = state.health.history(name, since=_moment(since), limit=limit)
    if as_json:
        click.echo(json.dumps([asdict(event) for event in events], indent=2))
        return
    for event in events:
        click.echo(printable_line(_line(event)))
    health = state.health.get(name)
    if not events:
        note(f"nothing is known about {name}; check it: `labctl boards check {name}`")
    else:
        note(printable_line(f"{name} is {health.health}: {health.reason}"))


def _decision(health: Health, example: str, text: str) -> click.Command:
    """Make a command by which people decide the health of boards."""

    @click.command(help=text, epilog=f"Example: labctl boards {example}")
    @click.option("--reason", required=True, metavar="TEXT", help="Reason, for the history.")
    @json_option("Print the boards' health as JSON.")
    @click.argument("boards", metavar="BOARD...", nargs=-1, required=True, shell_complete=BOARD)
    @click.pass_obj
    def decide(
        invocation: Invocation, boards: Sequence[str], *, reason: str, as_json: bool
    ) -> None:
        _decide(invocation, boards, health, reason, as_json=as_json)

    return decide


good = _decision(
    Health.GOOD,
    'good rk1 --reason "new fan"',
    """Put boards back to work, whatever their health was.

    The next check judges them again, by the same history.
    """,
)
maintenance = _decision(
    Health.MAINTENANCE,
    'maintenance rk1 --reason "new fan"',
    """Take boards out of work while somebody mends them.

    Running work continues. No check ends this; `labctl boards good` does.
    """,
)
retire = _decision(
    Health.RETIRED,
    'retire rk1 --reason "eMMC worn out"',
    """Take boards out of work for good; their runs and history stay.

    Running work continues. No check ends this; `labctl boards good` does.
    """,
)


def _decide(
    invocation: Invocation, boards: Sequence[str], health: Health, reason: str, *, as_json: bool
) -> None:
    from labctl.state.audit import checked_reason
    from labctl.state.events import this_user

    if not reason.strip():
        raise click.UsageError("--reason must not be empty")
    reason = checked_reason(reason) or ""
    lab = lab_of(invocation)
    state, by = lab_state(lab), this_user()
    names = [lab.board(name).name for name in dict.fromkeys(boards)]
    found = []
    for name in names:
        before = state.health.get(name).health
        found.append(state.health.set(name, health, reason=reason, by=by))
        details = {"before": before.value}
        state.audit.record(by, "cli", f"health {health}", name, reason, details=details)
    if as_json:
        click.echo(json.dumps([asdict(one) for one in found], indent=2))
        return
    for one in found:
        click.echo(printable_line(f"{one.board} is {one.health}: {one.reason}"))


def _line(event: BoardEvent) -> str:
    if event.damaged:
        return f"{event.kind:8}  {event.damaged}"
    reason = f": {event.reason}" if event.reason else ""
    return f"{local_time(event.at)}  {event.kind:8}  {event.value}{reason}  ({event.made_by})"


def _moment(since: str | None) -> float | None:
    if since is None:
        return None
    from labctl.index.filters import parse_moment

    moment: datetime = parse_moment(since)
    return moment.timestamp()
