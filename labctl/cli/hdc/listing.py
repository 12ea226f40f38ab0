"""``labctl hdc list``."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from labctl.cli.hdc.target import Choice
from labctl.cli.output import json_option, note
from labctl.errors import LabctlError, LinkRefused, printable
from labctl.retry import in_threads
from labctl.transport.base import OpenOptions, Transport
from labctl.transport.hdc import find_server
from labctl.transport.readiness import board_state, boot_id, states_status

if TYPE_CHECKING:
    from labctl.config.lab import LabFile

_TIMEOUT_SECONDS = 10.0
_AT_ONCE = 32
#: A server's words for states. In other states (Unknown: in transition) a board is not usable.
_SERVER_STATES = {
    "Connected": "connected",
    "Offline": "offline",
    "Unauthorized": "unauthorised",
}
_HDC_STATES = {ours: hdcs for hdcs, ours in _SERVER_STATES.items()}
_CONNECTIONS = ("USB", "TCP", "UART")


@dataclass(frozen=True)
class Listed:
    """A board as the list shows it.

    ``target`` is the value for ``-t``, ``way`` the link, or USB, TCP or UART for a server's boards.
    ``detail`` is the board's name, or why it does not answer. ``key`` is hdc's name of the board,
    ``name`` the board's own name.
    """

    target: str
    state: str
    way: str
    detail: str = ""
    key: str = ""
    name: str = ""

    def as_hdc(self, *, verbose: bool) -> list[str] | None:
        """Return the columns of ``hdc list targets``; None if hdc has no line for it."""
        state = _HDC_STATES.get(self.state, "Unknown")
        if verbose:
            way = self.way if self.way in _CONNECTIONS else "TCP" if ":" in self.key else "USB"
            name = self.target if self.target != self.key else self.name or "unknown..."
            return [self.key, "", way, state, name]
        ends: dict[str, list[str]] = {"Connected": [], "Unauthorized": ["Unauthorized"]}
        return [self.key, *ends[state]] if state in ends else None


@click.command("list", epilog="Example: labctl hdc --server 127.0.0.1:8710 list")
@json_option("Print the list as JSON.")
@click.argument("what", required=False, type=click.Choice(["targets"]), metavar="[targets]")
@click.option("-v", "verbose", is_flag=True, help="With targets: all boards, in four columns.")
@click.pass_obj
def list_boards(choice: Choice, what: str | None, *, verbose: bool, as_json: bool) -> int:
    """List boards and their state; `list targets` prints them as hdc does.

    Contacts the lab's hdc boards, or the one that -b names. With --server, lists that server's
    boards and their state there; without a lab, those of this host's server, if one runs. Exit
    status 3 if one does not answer, 2 if one is wrong in devices.yaml.
    """
    if verbose and what is None:
        raise click.UsageError(
            "hdc's form is: list targets -v; to see commands: labctl hdc list --verbose"
        )
    if choice.board is not None:
        found = [_asked(choice.board, choice.connected, choice.key)]
    elif choice.server is not None:
        found = _of_server(choice.server)
    elif (lab := choice.lab()) is not None:
        found = _of_lab(lab, choice.key_file)
    else:
        found = _of_this_host()
    # Also the exit status if nobody reads all output.
    status = choice.invocation.status = states_status(listed.state for listed in found)
    if as_json:
        click.echo(json.dumps([asdict(listed) for listed in found], indent=2))
        return status
    if what is not None:
        lines = [line for one in found if (line := one.as_hdc(verbose=verbose)) is not None]
        for columns in lines or [["[Empty]"]]:
            click.echo("\t".join(printable(c.replace("\t", " ")) for c in columns))
        return status
    width = max((len(listed.target) for listed in found), default=0)
    for listed in found:
        text = f"{listed.target:{width}}  {listed.state:12}  {listed.way}  {listed.detail}"
        click.echo(printable(text.rstrip()))
    return status


def _of_lab(lab: "LabFile", key_file: Path | None) -> list[Listed]:
    from labctl.cli.lab import connect_board

    options = OpenOptions(key_file=key_file)
    boards = [board for board in lab.lab.boards.values() if board.transport.kind == "hdc"]
    return in_threads(
        lambda board: _asked(
            board.name, lambda: connect_board(board, options), board.transport.location
        ),
        boards,
        at_once=_AT_ONCE,
    )


def _of_this_host() -> list[Listed]:
    from labctl.transport.hdc import HDC_SERVER

    try:
        return _of_server(HDC_SERVER)
    except LinkRefused:
        note(f"no lab here, and no hdc server at {HDC_SERVER}: for a board on TCP use -t HOST:PORT")
        return []


def _of_server(server: str) -> list[Listed]:
    boards = find_server(server).list_targets(timeout=_TIMEOUT_SECONDS)
    return [
        Listed(
            board.key,
            _SERVER_STATES.get(board.state, "failing"),
            board.connection,
            board.name,
            key=board.key,
            name=board.name,
        )
        for board in boards
    ]


def _asked(target: str, way: Callable[[], AbstractContextManager[Transport]], key: str) -> Listed:
    """Ask a board itself for its state."""
    label, failure, name = "", None, None
    try:
        with way() as transport:
            label = transport.label
            boot_id(transport, timeout=_TIMEOUT_SECONDS)
            name = transport.name
    except LabctlError as error:
        failure = error
    state, why = board_state(failure), failure.message if failure else ""
    return Listed(target, state, label, why, key=key, name=name or "")
