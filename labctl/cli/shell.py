"""``labctl shell``."""

import click

from labctl.cli.complete import BOARD
from labctl.cli.lab import connect_board, lab_of
from labctl.cli.output import write_output
from labctl.cli.root import Invocation
from labctl.errors import ExitStatus
from labctl.transport import remote_words


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Example: labctl shell dayu200 -- ls -l /data/local/tmp",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    help="Time-out in seconds; stops the command on the board too.",
)
@click.argument("board", shell_complete=BOARD)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_obj
def shell(invocation: Invocation, board: str, command: tuple[str, ...], timeout: float) -> int:
    """Run a command on a board.

    Each word reaches the command unchanged; for pipes and variables use sh -c 'TEXT'. Standard
    input is closed; standard output and error arrive as one stream. Exit status: the command's own,
    or 255 if labctl itself failed.
    """
    words = command[1:] if command[0] == "--" else command
    if not words:
        raise click.UsageError("there is no command after --")
    with connect_board(lab_of(invocation).board(board)) as transport:
        invocation.status = ExitStatus.SHELL_FAILURE  # if nobody reads: none is known
        return transport.stream(remote_words(*words), timeout=timeout, write=write_output)
