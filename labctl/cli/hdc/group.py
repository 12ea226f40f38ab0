"""The group ``labctl hdc`` and which board its commands mean."""

from pathlib import Path

import click

from labctl.cli.hdc.target import Choice
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
}


class HdcGroup(LazyGroup):
    """The commands of ``labctl hdc``."""

    lazy = COMMANDS


@click.group(
    cls=HdcGroup,
    epilog="Example: labctl hdc -t 192.168.1.20:5555 shell uname -a",
)
@click.option(
    "-t",
    "--board",
    help="A board of the lab, HOST:PORT of a board's hdcd, or its key with --server; default: the"
    " lab's default board.",
)
@click.option("--target", hidden=True, help="Old name of --board.")
@click.option("--server", help="Connect through the hdc server at HOST:PORT.")
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
    ctx.obj = Choice(
        invocation, target if board is None else board, server, key_file, wait_authorised
    )
