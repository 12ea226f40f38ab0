"""The group ``labctl hdc`` and the choice of its board."""

from pathlib import Path

import click

from labctl.cli.commands import Command
from labctl.cli.complete import BOARD
from labctl.cli.hdc.target import Choice, note_unprotected
from labctl.cli.root import Invocation, LazyGroup

COMMANDS = {
    "list": Command("List boards and their state.", "hdc.listing:list_boards"),
    "shell": Command("Run a command, or open a shell.", "hdc.shell"),
    "send": Command("Send a file or a directory, verified by its hash.", "hdc.files:send_"),
    "recv": Command("Receive a file or a directory, verified by its hash.", "hdc.files"),
    "forward": Command("Forward a port, until interrupted.", "hdc.ports"),
    "reboot": Command("Restart a board.", "hdc.power:reboot_"),
    "hilog": Command("Print the board's log, until interrupted.", "hdc.power"),
    "mount": Command("Make system partitions writable.", "hdc.power"),
    # hdc's own words, and adb's
    "file": Command("Send and receive files, with hdc's options and output.", "hdc.words"),
    "fport": Command("Forward a port of this host to the board, until interrupted.", "hdc.words"),
    "rport": Command("Forward a port of the board to this host, until interrupted.", "hdc.words"),
    "target": Command(
        "Restart a board, or make its system partitions writable, as hdc does.", "hdc.words"
    ),
    "tconn": Command("Check that a board answers at HOST:PORT.", "hdc.words"),
    "tmode": Command("Let the board's hdcd listen on USB or on a TCP port.", "hdc.words"),
    "version": Command("Show the version of labctl, whose hdc it is.", "hdc.words"),
    "push": Command("Send a file or a directory, verified by its hash.", "hdc.files:send_"),
    "pull": Command("Receive a file or a directory, verified by its hash.", "hdc.files:recv"),
}
#: Commands that only the official program has.
_OFFICIAL = (
    *("install", "uninstall", "sideload", "bm", "aa", "smode", "jpid", "track-jpid", "bugreport"),
    *("start", "kill", "checkserver", "keygen", "wait", "any", "discover"),
)


class HdcGroup(LazyGroup):
    """The commands of ``labctl hdc``."""

    lazy = COMMANDS

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words; ``-v`` alone prints the version, as with hdc."""
        return super().parse_args(ctx, ["version"] if args == ["-v"] else args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; refuse commands that only the official program has."""
        if args[0] in _OFFICIAL:
            board = ctx.params.get("board")
            way = f"-t {board} " if board else ""
            raise click.UsageError(
                f"labctl has no {args[0]}; the official program does: hdc {way}{' '.join(args)}",
                ctx,
            )
        return super().resolve_command(ctx, args)


@click.group(
    cls=HdcGroup,
    epilog="Example: labctl hdc -t 192.168.1.20:5555 shell uname -a",
)
@click.option(
    "-t",
    "--board",
    "-b",
    shell_complete=BOARD,
    help="A board of the lab, HOST:PORT of a board's hdcd, or its key at an hdc server; default:"
    " the lab's default board.",
)
@click.option("--server", "-s", help="Connect through the hdc server at HOST:PORT.")
@click.option(
    "--key-file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="The host key for boards; default: ~/.harmony/hdckey, else labctl's own.",
)
@click.option(
    "--wait-authorised",
    is_flag=True,
    help="Wait until somebody allows this host on the board's screen.",
)
@click.pass_context
def hdc(
    ctx: click.Context,
    *,
    board: str | None,
    server: str | None,
    key_file: Path | None,
    wait_authorised: bool,
) -> None:
    """Use a board over hdc, without hdc's own program.

    Connects to the board's hdcd on TCP, or through an hdc server. Exit statuses are the commands'
    own, and files are verified by their hashes on the board.
    """
    invocation = ctx.ensure_object(Invocation)
    invocation.command = f"hdc {ctx.invoked_subcommand}"
    if server is not None:
        note_unprotected(server)
    ctx.obj = Choice(invocation, board, server, key_file, wait_authorised)
