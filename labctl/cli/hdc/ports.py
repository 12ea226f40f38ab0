"""``labctl hdc forward``."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from labctl.cli.hdc.shell import NO_LIMIT_SECONDS
from labctl.cli.hdc.target import Choice
from labctl.cli.output import json_option
from labctl.errors import BoardError, CommandTimeout, DeviceLost, LinkError
from labctl.interrupts import finishing
from labctl.retry import wait_until
from labctl.transport.base import Transport

if TYPE_CHECKING:
    from labctl.transport.hdc import Forwarded

#: Interval (s) of checks of a rule without traffic.
_LOOK_SECONDS = 2.0
_ANSWER_SECONDS = 5.0


@click.command(epilog="Example: labctl hdc -t dayu200 forward 8080 80")
@click.option("--reverse", "-r", is_flag=True, help="REMOTE listens on the board, LOCAL answers.")
@json_option("Print the line as a JSON object.")
@click.argument("local")
@click.argument("remote")
@click.pass_obj
def forward(choice: Choice, local: str, remote: str, reverse: bool, as_json: bool) -> None:
    """Forward a port, until interrupted.

    Forwards connections to LOCAL on this host to REMOTE on the board; with --reverse, connections
    to REMOTE on the board to LOCAL here. Each is a TCP port (LOCAL may be 0: a free one) or a node
    in hdc's notation: tcp:8080, localabstract:NAME, localfilesystem:PATH. Listens on loopback only.

    A line on standard output says that it is ready; earlier connections wait.
    """
    listen, connect = (remote, local) if reverse else (local, remote)
    ends = ("the board", "this host") if reverse else ("this host", "the board")

    def ready(listen: str) -> str:
        if as_json:
            from labctl.transport.hdc import forward_document

            return json.dumps(forward_document(listen, _node(connect), reverse=reverse))
        return f"{listen} of {ends[0]} goes to {_node(connect)} of {ends[1]}; Ctrl-C ends it"

    forward_until_interrupted(choice, listen, connect, reverse=reverse, ready=ready)


def forward_until_interrupted(
    choice: Choice, listen: str, connect: str, *, reverse: bool, ready: Callable[[str], str]
) -> None:
    """Forward connections until interrupted; print ``ready`` once the port listens."""
    listen, connect = _node(listen), _node(connect)
    with (
        finishing(),  # so that an hdc server's rule is removed
        choice.connected() as transport,
        transport.over_hdc(f"forward {listen}").forward(
            listen, connect, reverse=reverse
        ) as forwarded,
    ):
        click.echo(ready(forwarded.listen))
        wait_until(
            lambda: is_over(transport, forwarded),
            timeout=NO_LIMIT_SECONDS,
            interval=_LOOK_SECONDS,
        )
        raise forwarded.failure or DeviceLost(
            f"{transport.label}: the board no longer answers; nothing is forwarded",
            hint="check power and cable; ",
        )


def is_over(transport: Transport, forwarded: "Forwarded") -> bool:
    """Return True if it is certain that nothing is forwarded any more.

    Silence proves nothing: data that a slow client has not read yet delays the board's answer.
    """
    if forwarded.failure is not None:
        return True
    try:
        transport.run(":", timeout=_ANSWER_SECONDS)
    except CommandTimeout:
        return forwarded.failure is not None
    except (LinkError, BoardError):
        return True
    return False


def _node(text: str) -> str:
    return f"tcp:{text}" if text.isascii() and text.isdigit() else text
