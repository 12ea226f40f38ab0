"""``labctl hdc shell``."""

import click

from labctl.cli.hdc.target import Choice
from labctl.cli.output import write_output
from labctl.errors import ExitStatus

#: Used for "no time-out": poll() waits 24.8 days at most.
NO_LIMIT_SECONDS = 20 * 24 * 3600.0


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Example: labctl hdc -t dayu200 shell 'ps -ef | grep render'",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    help="Time-out in seconds; stops the command on the board too; default: none.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def shell(choice: Choice, command: tuple[str, ...], timeout: float | None) -> int:
    """Run a command, or open a shell.

    As with hdc and ssh, the words are joined with spaces and passed to the board's shell. Output is
    printed as it arrives, both streams as one; standard input is closed. Without a command: an
    interactive shell; leave it with Ctrl-]. Exit status: that of the command or shell, or 255 if
    labctl itself failed.
    """
    seconds = timeout or NO_LIMIT_SECONDS
    words = command[1:] if command[:1] == ("--",) else command
    if command[:1] == ("-b",):
        raise click.UsageError(
            "labctl does not take hdc's shell -b BUNDLE: application sandboxes cannot be reached."
            " To name a board: labctl hdc -b BOARD shell … or labctl shell -b BOARD -- …"
        )
    with choice.connected() as transport:
        if not words:
            from labctl.cli.hdc.terminal import converse

            device = transport.over_hdc("open a terminal")
            with device.interact(timeout=seconds) as remote:
                return converse(remote)
        choice.invocation.status = ExitStatus.SHELL_FAILURE  # if nobody reads
        return transport.stream(" ".join(words), timeout=seconds, write=write_output)
