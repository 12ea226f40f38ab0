"""The root command, its standard streams, and the one place where every error ends.

Commands are loaded only when used: ``labctl --help`` must cost little more than importing click.
Standard output reports write errors; standard error never ends a command.
"""

import importlib
import io
import os
import select
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

import click

from labctl import interrupts
from labctl.cli.commands import COMMANDS, GROUPS, Command
from labctl.cli.encoding import encoding_for, errors_for
from labctl.cli.error_output import print_error
from labctl.cli.output import Invocation, lead_nowhere, print_command
from labctl.distribution import labctl_version
from labctl.errors import ExitStatus, HostError, printable_line
from labctl.progress import reading_commands, reading_waits
from labctl.text_types import forget_relative

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Unfailing(io.FileIO):
    """A file descriptor that discards everything after the first failed write."""

    def write(self, piece: "ReadableBuffer", /) -> int:
        """Write as much as possible at once; discard everything if nobody reads any more."""
        try:
            while (written := super().write(piece)) is None:  # somebody made it non-blocking
                select.select([], [self], [])
        except OSError:  # a closed pipe, a terminal that vanished, a full disk
            lead_nowhere(self.fileno())
            return memoryview(piece).nbytes
        return written


class _Explaining(io.BufferedWriter):
    """Standard output: a failed write is an error of this host. Later writes are discarded.

    Not done in the raw file, because an interrupt as it returns would make it write bytes twice.
    """

    def write(self, piece: "ReadableBuffer", /) -> int:
        """Write or buffer. Raises HostError, or OSError if nobody reads."""
        with self._explained(), interrupts.waiting():
            return super().write(piece)

    def flush(self) -> None:
        """Write the buffered bytes. Raises the errors of :meth:`write`."""
        with self._explained(), interrupts.waiting():
            super().flush()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            lead_nowhere(self.fileno())  # also for Python's flush at exit
            raise HostError(f"cannot write standard output: {error.strerror}") from error


def explaining(stream: TextIO | None) -> TextIO:
    """Return a stream to the same file, whose failed writes raise HostError.

    A stream that was closed from the start (None) discards everything.
    """
    if stream is None:
        from pathlib import Path

        return Path(os.devnull).open("w", encoding="utf-8")
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:
        return stream
    raw = io.FileIO(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        _Explaining(raw),
        encoding_for(stream),
        errors_for(stream),
        line_buffering=stream.isatty(),
    )


def unfailing(stream: TextIO | None) -> TextIO | None:
    """Return a stream to the same file that discards everything when nobody reads it any more.

    A stream that was closed from the start (None), or has no file descriptor, is returned as it is.
    """
    if stream is None:
        return None
    with suppress(OSError):  # text that cannot be written is lost
        stream.flush()
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:
        return stream
    raw = _Unfailing(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding_for(stream), errors_for(stream), line_buffering=True
    )


__all__ = ["Invocation", "LazyGroup", "cli", "main", "run_cli", "version_line"]

#: Commands that return a remote exit status, and need a different one for their own failures.
_PASSING_STATUS = ("shell", "hdc shell")
#: Commands that keep finished work and continue from it.
_LASTING = ("run", "bench", "tune", "resume", "batch", "nightly", "deploy")


class NobodyReads(Exception):
    """Standard output is closed, as by ``labctl report | head``."""


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is used."""

    #: Name -> command, in the order that a new user needs them.
    lazy: Mapping[str, Command] = {}

    # If nobody reads, click would exit with 1, which means a failed program.

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        """Parse the words; this prints the texts of ``--help`` and ``--version``."""
        try:
            return super().make_context(*args, **options)
        except BrokenPipeError as error:
            raise NobodyReads from error

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        interrupts.check()
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise NobodyReads from error

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        module, function = self.lazy[cmd_name].module_and_function(cmd_name)
        command: click.Command = getattr(importlib.import_module(module), function)
        _let_verbosity_follow(command)
        return command

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the commands, in order."""
        return list(self.lazy)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the list of commands, without importing them."""
        for title, commands in self.groups.items():
            with formatter.section(title):
                formatter.write_dl([(name, one.text) for name, one in commands.items()])

    @property
    def groups(self) -> Mapping[str, Mapping[str, Command]]:
        """Titles in the help, with the commands below each."""
        return {"Commands": self.lazy}


class _Root(LazyGroup):
    lazy = COMMANDS
    groups = GROUPS


def _print_version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    click.echo(version_line())
    ctx.exit()


def version_line() -> str:
    """Return labctl's name and version."""
    return f"labctl {labctl_version()}"


def _set_quiet(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        ctx.find_root().ensure_object(Invocation).quiet = True


def _set_verbose(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        ctx.find_root().with_resource(reading_commands(print_command))


def _verbosity(*, hidden: bool) -> list[click.Option]:
    """Make the options ``-q`` and ``-v``; all commands accept them, the root's help shows them."""
    return [
        click.Option(
            list(names),
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=callback,
            help=text,
            hidden=hidden,
        )
        for names, callback, text in (
            (("-q", "--quiet"), _set_quiet, "Print results and errors only."),
            (
                ("-v", "--verbose"),
                _set_verbose,
                "Print each command that is run, here or on a board, on standard error.",
            ),
        )
    ]


def _let_verbosity_follow(command: click.Command) -> None:
    """Allow ``-q`` and ``-v`` after a command too.

    Except if the command has an option of that name, or passes its words to a board.
    """
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            _let_verbosity_follow(inner)
    taken = {name for parameter in command.params for name in parameter.opts}
    if not command.context_settings.get("ignore_unknown_options"):
        command.params += [o for o in _verbosity(hidden=True) if not taken & set(o.opts)]


@click.group(
    cls=_Root,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with `labctl doctor`, then `labctl init`.",
)
@click.option(
    "--lab",
    type=click.Path(file_okay=False, exists=True),
    envvar="LABCTL_LAB",
    show_envvar=True,
    help="The lab's folder; default: the nearest parent with a devices.yaml.",
)
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.option(
    "--version",
    "-V",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.pass_context
def cli(ctx: click.Context, lab: str | None, debug: bool) -> None:
    """Measure large language models on OpenHarmony edge boards."""
    invocation = ctx.ensure_object(Invocation)
    if lab is not None:
        from pathlib import Path

        invocation.lab = Path(lab).absolute()
    invocation.debug, invocation.command = debug, ctx.invoked_subcommand
    ctx.with_resource(reading_waits(partial(_tell_wait, invocation)))


def _tell_wait(invocation: Invocation, text: str, short: str) -> None:
    click.echo(printable_line(short if invocation.quiet else text), err=True)


cli.params += _verbosity(hidden=False)


def main(arguments: list[str] | None = None) -> None:
    """Run ``labctl`` and exit with its status; no traceback unless ``--debug``.

    Every termination signal has the effect of Ctrl-C: it stops jobs on boards and is recorded.
    """
    interrupts.install()
    sys.stderr = unfailing(sys.stderr)  # `labctl run 2>&1 | head` must not end the run
    sys.stdout = explaining(sys.stdout)
    status = run_cli(sys.argv[1:] if arguments is None else arguments)
    # CPython remembers an interrupt inside `exec`, as dataclasses use in a late import. `python -m`
    # would then end by SIGINT instead of with the status. Another `exec` clears the interrupt.
    exec("")  # noqa: S102 - nothing is run
    sys.exit(status)


def run_cli(words: list[str]) -> int:
    """Run the command line ``words``. Return the command's exit status; 0 if it returns none."""
    invocation = Invocation()
    forget_relative(os.environ)
    try:
        try:
            interrupts.begin()
            result = cli.main(args=words, prog_name="labctl", standalone_mode=False, obj=invocation)
            sys.stdout.flush()
        finally:
            interrupts.finish()
    except (NobodyReads, BrokenPipeError):
        lead_nowhere(sys.stdout.fileno())
        return invocation.status
    except (KeyboardInterrupt, click.Abort) as interrupt:
        command = invocation.command or next((word for word in words if word in COMMANDS), None)
        _print_interrupted(interrupt, command, invocation.finished_run)
        return ExitStatus.INTERRUPTED
    except Exception as error:
        if invocation.debug:
            import traceback

            traceback.print_exc()
        as_json = invocation.as_json or _asks_for_json(error, words)
        status = print_error(error, words, as_json=as_json)
        failed_itself = not isinstance(error, click.exceptions.Exit)
        if invocation.command in _PASSING_STATUS and failed_itself:
            return ExitStatus.SHELL_FAILURE
        return status
    return result if isinstance(result, int) else ExitStatus.OK


def _print_interrupted(
    interrupt: BaseException, command: str | None, finished_run: str | None
) -> None:
    """Print that the command was interrupted, and how to continue unless already printed.

    click replaces an interrupt with its own error, whose cause is the interrupt. A second Ctrl-C
    while the first one ends the run raises another interrupt, whose context is the first one.
    """
    way = ""
    if not _was_told(interrupt):
        if finished_run is not None:
            way = f"; the run has finished: labctl report {finished_run}"
        elif command in _LASTING:
            way = "; to continue: the same command again"
    click.echo(f"interrupted{way}", err=True)


def _was_told(interrupt: BaseException | None) -> bool:
    """Return True if this interrupt, or one before it, has a note on how to continue."""
    while interrupt is not None and not hasattr(interrupt, "__notes__"):
        interrupt = interrupt.__cause__ or interrupt.__context__
    return interrupt is not None


def _asks_for_json(error: Exception, words: Sequence[str]) -> bool:
    """Return True for wrong use of a command with ``--json``, if the words contain this option.

    click could not parse the words then. The error can also be in an option before the command.
    """
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None or "--json" not in words:
        return False
    command = context.command
    for word in words:
        if isinstance(command, click.Group):
            command = command.get_command(context, word) or command
    return any("--json" in parameter.opts for parameter in command.params)
