"""``labctl shell``."""

import sys

import click

from labctl.cli.lab import connect_board, lab_of
from labctl.cli.root import Invocation
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
    help="Seconds without an end after which the command is stopped, on the board too.",
)
@click.option(
    "-c",
    "--command",
    "as_script",
    is_flag=True,
    help="COMMAND is one piece of shell text for the board: pipes and variables work.",
)
@click.argument("board")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_obj
def shell(
    invocation: Invocation, board: str, command: tuple[str, ...], timeout: float, as_script: bool
) -> int:
    """Run a command on a board.

    Each word reaches the command as it is; with -c the board's shell reads the text. Standard input
    is closed; standard output and error come as one stream. Ends with the command's own exit
    status, or with 255 when labctl itself failed.
    """
    text = " ".join(command) if as_script else remote_words(*command)
    with connect_board(lab_of(invocation).board(board)) as transport:
        result = transport.run(text, timeout=timeout)
    sys.stdout.buffer.write(result.output)
    sys.stdout.buffer.flush()
    return result.exit_status
