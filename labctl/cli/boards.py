"""``labctl boards``."""

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from textwrap import wrap

import click

from labctl.board.status import BoardStatus, BoardUsage, board_status, board_usages
from labctl.cli.commands import Command
from labctl.cli.lab import connect_board, lab_of
from labctl.cli.output import json_option, note
from labctl.cli.root import Invocation, LazyGroup
from labctl.config.lab import LabFile
from labctl.errors import ExitStatus, InfraError, printable
from labctl.retry import in_threads
from labctl.transport.readiness import states_status

_AT_ONCE = 32
_WIDTH = 80


COMMANDS = {
    "list": Command("List the lab's boards and their state.", "boards:list_boards"),
    "add": Command("Add a board to devices.yaml.", "boards_edit"),
    "remove": Command("Remove boards from devices.yaml.", "boards_edit"),
    "probe": Command("Measure a board's memory, storage and compute rates.", "boards_probe"),
    "probes": Command("List the probes of all boards or of one, newest first.", "boards_probes"),
    "check": Command("Check the health of boards.", "boards_check"),
    "recover": Command("Bring a failing board back.", "boards_check"),
    "history": Command("Show what happened to a board.", "boards_health"),
    "good": Command("Put a board back to work.", "boards_health"),
    "maintenance": Command("Take boards out of work while somebody mends them.", "boards_health"),
    "retire": Command("Take boards out of work for good.", "boards_health"),
}


class BoardsGroup(LazyGroup):
    """Commands on boards beside their list."""

    lazy = COMMANDS


@click.group(cls=BoardsGroup, invoke_without_command=True, epilog="Example: labctl boards --json")
@json_option("Print names, states and facts as JSON.")
@click.pass_context
def boards(context: click.Context, as_json: bool) -> int:
    """List the lab's boards and their state.

    Without a command, contacts every board. Exit status 3 if one does not answer, 2 if one is wrong
    in devices.yaml.
    """
    if context.invoked_subcommand is not None:
        return ExitStatus.OK
    return _list(context.find_object(Invocation) or Invocation(), as_json=as_json)


@click.command("list", epilog="Example: labctl boards list --json")
@json_option("Print names, states and facts as JSON.")
@click.pass_obj
def list_boards(invocation: Invocation, as_json: bool) -> int:
    """List the lab's boards and their state.

    The same as `labctl boards`.
    """
    return _list(invocation, as_json=as_json)


def _list(invocation: Invocation, *, as_json: bool) -> int:
    known = lab_of(invocation).lab.boards.values()
    look = partial(board_status, connect=connect_board)
    states = in_threads(look, known, at_once=_AT_ONCE)
    # Also the exit status if nobody reads all output.
    status = invocation.status = states_status(state.state for state in states)
    uses = _uses(lab_of(invocation), states)
    if as_json:
        rows = [asdict(state) | uses[state.name].document() for state in states]
        click.echo(json.dumps(rows, indent=2))
    else:
        width = max((len(state.name) for state in states), default=0)
        for state in states:
            way = " ".join(dict.fromkeys((state.transport, state.address)))
            line = f"{state.name:{width}}  {state.state:12}  {state.target}  {way}"
            click.echo(printable(_with_detail(line, state.detail)))
            if text := uses[state.name].text:
                click.echo(
                    "\n".join(wrap(text, _WIDTH, initial_indent="    ", subsequent_indent="    "))
                )
        if not states:
            note("no boards yet: labctl boards add NAME HOST:PORT")
    return status


def _uses(lab: LabFile, states: Sequence[BoardStatus]) -> dict[str, BoardUsage]:
    """Return the users of boards. If the state is unreadable, print a note and leave them out."""
    try:
        return board_usages(lab, {one.name: one.state for one in states})
    except InfraError as error:
        note(f"the users of the boards are unknown: {error.message}")
        return {one.name: BoardUsage() for one in states}


def _with_detail(line: str, detail: str) -> str:
    """Put the detail after a line; on a terminal indented, or below if there is no space."""
    if not detail or not sys.stdout.isatty():
        return f"{line}  {detail}" if detail else line
    columns, indent = shutil.get_terminal_size().columns, len(line) + 2
    split = partial(wrap, detail, break_long_words=False, break_on_hyphens=False)
    if indent + max(map(len, detail.split())) <= columns:
        return f"{line}  " + f"\n{'':{indent}}".join(split(columns - indent))
    return "\n    ".join([line, *split(columns - 4)])
