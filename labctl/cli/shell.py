"""``labctl shell``."""

import click

from labctl.cli.complete import BOARD
from labctl.cli.lab import connect_board, lab_of
from labctl.cli.output import note, write_output
from labctl.cli.root import Invocation
from labctl.config.lab import Board, LabFile
from labctl.errors import ConfigError, ExitStatus
from labctl.transport.base import remote_words

#: Characters that only a shell interprets, in a word that is passed unchanged.
_OF_A_SHELL = (" ", "|", ";", "&", "<", ">", "$", "`")
#: The exit status of shells for a missing program.
_NOT_FOUND = 127
_SHELL_HINT = "hint: words reach the program unchanged; for pipes and variables: labctl shell … -- "


class _Command(click.Command):
    """A command that records if its words began after ``--``: then they name no board."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words; click removes a ``--`` in front of them."""
        before = list(args)
        rest = super().parse_args(ctx, args)
        words = ctx.params.get("words", ())
        ctx.params["only_command"] = before[len(before) - len(words) - 1 :][:1] == ["--"]
        return rest


@click.command(
    cls=_Command,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Example: labctl shell --board dayu200 -- ls -l /data/local/tmp",
)
@click.option(
    "--board", "-b", shell_complete=BOARD, help="The board; default: the lab's default board."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    help="Time-out in seconds; stops the command on the board too.",
)
@click.argument(
    "words",
    nargs=-1,
    type=click.UNPROCESSED,
    shell_complete=BOARD,
    metavar="[BOARD] -- COMMAND...",
)
@click.pass_obj
def shell(
    invocation: Invocation,
    *,
    board: str | None,
    timeout: float,
    words: tuple[str, ...],
    only_command: bool,
) -> int:
    """Run a command on a board.

    Each word reaches the command unchanged; for pipes and variables use sh -c 'TEXT'. Standard
    input is closed; standard output and error arrive as one stream. Exit status: the command's own,
    or 255 if labctl itself failed.
    """
    typed = words
    if board is None and not only_command and words:
        board, *rest = words
        words = tuple(rest[1:] if rest[:1] == ["--"] else rest)
    if not words:
        raise click.UsageError("no command given: labctl shell [--board BOARD] -- COMMAND...")
    lab = lab_of(invocation)
    with connect_board(_board(lab, board, typed if typed != words else ())) as transport:
        invocation.status = ExitStatus.SHELL_FAILURE  # if nobody reads
        status = transport.stream(remote_words(*words), timeout=timeout, write=write_output)
    if status == _NOT_FOUND and any(sign in words[0] for sign in _OF_A_SHELL):
        note(f"{_SHELL_HINT}{remote_words('sh', '-c', ' '.join(words))}")
    return status


def _board(lab: LabFile, name: str | None, typed: tuple[str, ...]) -> Board:
    """Return the board; ``typed``: all words, if the first is the name. Raises ConfigError."""
    try:
        return lab.board(name)
    except ConfigError as error:
        has_default = lab.lab.default_board is not None or len(lab.lab.boards) == 1
        if typed and "--" not in typed and has_default:
            command = f"for a command on {lab.board().name}:"
            command += f" labctl shell -- {remote_words(*typed)}"
            raise ConfigError(error.message, hint=f"{error.hint}; {command}") from error
        raise
