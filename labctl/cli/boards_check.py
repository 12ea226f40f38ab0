"""``labctl boards check`` and ``labctl boards recover``."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from labctl.cli.complete import BOARD
from labctl.cli.lab import connect_board, lab_of
from labctl.cli.output import json_option, note
from labctl.cli.progress import ProgressView
from labctl.cli.root import Invocation
from labctl.cli.run_view import RunView
from labctl.errors import BoardBusy, ExitStatus, LeaseLost, printable_line
from labctl.runs.observer import Observer

if TYPE_CHECKING:
    from labctl.farm.health.checking import CheckResult


@click.command(epilog="Example: labctl boards check --due")
@click.option("--due", is_flag=True, help="Check only boards whose check is due; for a timer.")
@json_option("Print the results as JSON.")
@click.argument("boards", metavar="[BOARD]...", nargs=-1, shell_complete=BOARD)
@click.pass_obj
def check(invocation: Invocation, boards: Sequence[str], *, due: bool, as_json: bool) -> int:
    """Check the health of boards: contact, probe, and the recipe of health checks.

    Default: all boards except retired ones and those in maintenance. Holds each board's lease for
    about half a minute. A failing board is recovered by its switches; if that fails, its health
    is bad. Exit status 3 if a board is not fit for work. Skips boards in use.
    """
    from labctl.farm.health.checking import check as check_board
    from labctl.farm.health.checks_due import due as boards_due
    from labctl.state.health import BY_PEOPLE
    from labctl.state.state import lab_state

    lab = lab_of(invocation)
    names = [lab.board(name).name for name in dict.fromkeys(boards)]
    if not names:
        state = lab_state(lab)
        names = [n for n in lab.lab.boards if state.health.get(n).health not in BY_PEOPLE]
    if due:
        waiting = {one.board: one.reason for one in boards_due(lab)}
        names = [name for name in names if name in waiting]
        for name in names:
            note(printable_line(f"{name}: {waiting[name]}"))
        if not names:
            note("no check is due")
    found: list[CheckResult] = []
    unfit = False
    for name in names:
        try:
            result = _shown(partial(check_board, lab, lab.board(name), connect_board))
        except (BoardBusy, LeaseLost) as error:
            note(printable_line(f"{name} is not checked: {error.message}"))
            continue
        found.append(result)
        unfit |= not result.health.may_work
        if not as_json:
            health = result.health
            click.echo(
                printable_line(
                    f"{name} is {health.health}; check: {result.verdict.finding}:"
                    f" {result.verdict.reason}"
                )
            )
            if console := result.verdict.evidence.get("console"):
                click.echo(printable_line(f"{name}: the console {console}"))
    if as_json:
        click.echo(json.dumps([one.document() for one in found], indent=2))
    return ExitStatus.INFRA if unfit else ExitStatus.OK


@click.command(epilog="Example: labctl boards recover rk1")
@json_option("Print what was tried as JSON.")
@click.argument("board", required=False, shell_complete=BOARD)
@click.pass_obj
def recover(invocation: Invocation, board: str | None, *, as_json: bool) -> int:
    """Bring a failing board back by its switches, from the mildest to the strongest.

    Stops at the first one that helps. Does not change the board's health: `labctl boards check`
    does. Exit status 3 if nothing helped.
    """
    from labctl.farm.recovery.ladder import recover as climb
    from labctl.state.events import this_user
    from labctl.state.state import lab_state

    lab = lab_of(invocation)
    chosen, by = lab.board(board), this_user()
    lab_state(lab).audit.record(by, "cli", "recover", chosen.name)
    found = _shown(
        lambda observer: climb(lab, chosen, connect_board, observer, why="by hand", by=by)
    )
    if as_json:
        click.echo(json.dumps(found.outcome_document(), indent=2))
    else:
        for step in found.steps:
            word = "helped" if step.helped else f"did not help: {step.reason}"
            click.echo(printable_line(f"{chosen.name}: {step.rung} {word}"))
    return ExitStatus.OK if found.helped else ExitStatus.INFRA


def _shown(work: Callable[[Observer], Any]) -> Any:
    with ProgressView() as view:
        shown = RunView(view)
        result = work(Observer(shown.show))
        shown.end_step()
    return result
