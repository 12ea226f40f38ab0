"""``labctl hdc list``."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from labctl.cli.hdc.target import Choice
from labctl.errors import InfraError, LinkRefused, NotAuthorised, printable
from labctl.transport import OpenOptions, Transport, boot_id, find_server

if TYPE_CHECKING:
    from labctl.config.lab import LabFile

_TIMEOUT_SECONDS = 10.0
_AT_ONCE = 32


@dataclass(frozen=True)
class Listed:
    """A board as the list shows it.

    ``target`` is what ``-t`` takes, ``way`` how it is reached: over which link, or (of a server's
    boards) USB, TCP or UART. ``detail`` is its name, or why it is not there.
    """

    target: str
    state: str
    way: str
    detail: str = ""


@click.command("list", epilog="Example: labctl hdc --server 127.0.0.1:8710 list")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@click.pass_obj
def list_boards(choice: Choice, as_json: bool) -> None:
    """List boards and their state.

    Contacts the lab's hdc boards, or the one that -b names. With --server, lists that server's
    boards and their state there; without a lab, those of this host's server, if one runs.
    """
    if choice.board is not None:
        found = [_asked(choice.board, choice.connected())]
    elif choice.server is not None:
        found = _of_server(choice.server)
    elif (lab := choice.lab()) is not None:
        found = _of_lab(lab, choice.key_file)
    else:
        found = _of_this_host()
    if as_json:
        click.echo(json.dumps([asdict(listed) for listed in found], indent=2))
        return
    width = max((len(listed.target) for listed in found), default=0)
    for listed in found:
        line = f"{listed.target:{width}}  {listed.state:12}  {listed.way}  {listed.detail}"
        click.echo(printable(line.rstrip()))


def _of_lab(lab: "LabFile", key_file: Path | None) -> list[Listed]:
    from labctl.cli.lab import connect_board

    options = OpenOptions(key_file=key_file)
    boards = [board for board in lab.lab.boards.values() if board.transport.kind == "hdc"]
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        return list(
            pool.map(
                lambda board: _asked(board.name, connect_board(board, options)),
                boards,
            )
        )


def _of_this_host() -> list[Listed]:
    from labctl.transport.hdc import HDC_SERVER

    try:
        return _of_server(HDC_SERVER)
    except LinkRefused:
        click.echo(
            f"no lab here, and no hdc server at {HDC_SERVER}: a board on TCP is reached with"
            " -t HOST:PORT",
            err=True,
        )
        return []


def _of_server(server: str) -> list[Listed]:
    boards = find_server(server).list_targets(timeout=_TIMEOUT_SECONDS)
    return [Listed(board.key, board.state, board.connection, board.name) for board in boards]


def _asked(target: str, way: AbstractContextManager[Transport]) -> Listed:
    """Ask a board itself for its state, in hdc's words."""
    state, detail, label = "Connected", "", ""
    try:
        with way as transport:
            label = transport.label
            boot_id(transport, timeout=_TIMEOUT_SECONDS)
    except NotAuthorised as error:
        state, detail = "Unauthorized", error.message
    except LinkRefused as error:
        state, detail = "Offline", error.message
    except InfraError as error:
        state, detail = "Unknown", error.message
    return Listed(target, state, label, detail)
