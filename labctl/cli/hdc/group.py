"""The group ``labctl hdc`` and the choice of its board."""

from pathlib import Path

import click

from labctl.cli.complete import BOARD
from labctl.cli.hdc.target import Choice, note_unprotected
from labctl.cli.output import note
from labctl.cli.root import Invocation, LazyGroup

#: name -> (module, attribute, one line of help).
COMMANDS: dict[str, tuple[str, str, str]] = {
    "list": ("labctl.cli.hdc.listing", "list_boards", "List boards and their state."),
    "shell": ("labctl.cli.hdc.shell", "shell", "Run a command, or open a shell."),
    "send": ("labctl.cli.hdc.files", "send_", "Send a file or a directory, verified by its hash."),
    "recv": (
        "labctl.cli.hdc.files",
        "recv",
        "Receive a file or a directory, verified by its hash.",
    ),
    "forward": ("labctl.cli.hdc.ports", "forward", "Forward a port, until interrupted."),
    "reboot": ("labctl.cli.hdc.power", "reboot_", "Restart a board."),
    "hilog": ("labctl.cli.hdc.power", "hilog", "Print the board's log, until interrupted."),
    "mount": ("labctl.cli.hdc.power", "mount", "Make system partitions writable."),
    # hdc's own words, and adb's
    "file": (
        "labctl.cli.hdc.words",
        "file",
        "Send and receive files, with hdc's options and output.",
    ),
    "fport": (
        "labctl.cli.hdc.words",
        "fport",
        "Forward a port of this host to the board, until interrupted.",
    ),
    "rport": (
        "labctl.cli.hdc.words",
        "rport",
        "Forward a port of the board to this host, until interrupted.",
    ),
    "target": (
        "labctl.cli.hdc.words",
        "target",
        "Restart a board, or make its system partitions writable, as hdc does.",
    ),
    "tconn": ("labctl.cli.hdc.words", "tconn", "Check that a board answers at HOST:PORT."),
    "tmode": (
        "labctl.cli.hdc.words",
        "tmode",
        "Let the board's hdcd listen on USB or on a TCP port.",
    ),
    "version": ("labctl.cli.hdc.words", "version", "Show the version of labctl, whose hdc it is."),
    "push": ("labctl.cli.hdc.files", "send_", "Send a file or a directory, verified by its hash."),
    "pull": (
        "labctl.cli.hdc.files",
        "recv",
        "Receive a file or a directory, verified by its hash.",
    ),
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
@click.option("--target", hidden=True, help="Old name of --board.")
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
    target: str | None,
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
    if target is not None:
        if board is not None:
            raise click.UsageError("--target is the old name of --board; give one of them")
        note("note: --target is called --board now")
    if server is not None:
        note_unprotected(server)
    ctx.obj = Choice(
        invocation, target if board is None else board, server, key_file, wait_authorised
    )
