"""The root command and the one place where errors become words and exit statuses.

Commands are loaded only when used: ``labctl --help`` must cost little more than importing click.
"""

import importlib
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from labctl.errors import ExitStatus, LabctlError, printable

#: name -> (module, attribute, one line of help). A test holds the lines against the commands.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "init": ("labctl.cli.init", "init", "Write a first devices.yaml and recipe."),
    "doctor": ("labctl.cli.doctor", "doctor", "List what is missing on this host."),
    "build": ("labctl.cli.build", "build", "Build tools for a target."),
    "models": ("labctl.cli.models", "models", "Manage the lab's models."),
    "artifacts": (
        "labctl.cli.artifacts",
        "artifacts",
        "List, verify, compare and remove built artifacts.",
    ),
    "deploy": ("labctl.cli.deploy", "deploy", "Send tools and models to boards."),
    "store": ("labctl.cli.store", "store", "List, verify, prune and pin the files of boards."),
    "plan": (
        "labctl.cli.plan",
        "plan",
        "Show what a recipe would do on a board, and how long it would take.",
    ),
    "run": ("labctl.cli.run", "run", "Run a recipe on a board and print its timing table."),
    "resume": ("labctl.cli.resume", "resume", "Resume an unfinished run."),
    "watch": ("labctl.cli.watch", "watch", "Show a run that another process drives."),
    "report": ("labctl.cli.report", "report", "Print the tables of a finished run."),
    "boards": ("labctl.cli.boards", "boards", "List the lab's boards and their state."),
    "shell": ("labctl.cli.shell", "shell", "Run a command on a board."),
    "hdc": ("labctl.cli.hdc", "hdc", "Use a board over hdc, without hdc's own program."),
    "virtual-board": (
        "labctl.cli.virtual_board",
        "virtual_board",
        "Serve virtual boards until interrupted.",
    ),
    "schema": ("labctl.cli.schema", "schema", "Print the JSON Schema of a file format."),
    "completion": ("labctl.cli.completion", "completion", "Print a shell completion script."),
}

#: Commands that pass a remote exit status on, and need one of their own for their failures.
_PASSING_STATUS = ("shell", "hdc shell")
BUG_HINT = "this is a bug in labctl: please report it with the output of `labctl --debug ...`"


class NobodyReads(Exception):
    """Standard output is closed, as by ``labctl report | head``."""


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is used."""

    #: name -> (module, attribute, one line of help), in the order that a new user needs them.
    lazy = COMMANDS

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; click alone would end with 1, which says that a program failed."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise NobodyReads from error

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the commands, in order."""
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        module, attribute, _ = self.lazy[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first word names; otherwise suggest the nearest name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from labctl.config.names import did_you_mean

            near = did_you_mean(args[0], self.lazy)
            raise click.UsageError(f"{error.message.rstrip('.')}{near}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.lazy[name][2]) for name in self.list_commands(ctx)])


def _print_version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from importlib.metadata import version  # slow to import, seldom needed

    click.echo(f"labctl {version('labctl')}")
    ctx.exit()


@dataclass
class Invocation:
    """Options of the root command; commands find it as ``ctx.obj``."""

    lab: Path | None = None
    debug: bool = False
    command: str | None = None
    #: The exit status that holds though nobody reads the output to its end.
    status: int = ExitStatus.OK


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with `labctl doctor`, then `labctl init`.",
)
@click.option(
    "--lab",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="The lab's folder; default: the nearest parent with a devices.yaml.",
)
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.pass_context
def cli(ctx: click.Context, lab: Path | None, debug: bool) -> None:
    """Measure large language models on OpenHarmony edge boards."""
    invocation = ctx.ensure_object(Invocation)
    invocation.lab, invocation.debug, invocation.command = lab, debug, ctx.invoked_subcommand


def main(arguments: list[str] | None = None) -> None:
    """Run ``labctl`` and exit with its status; no traceback unless ``--debug``.

    Whatever asks it to end does so as Ctrl-C does: jobs on boards are stopped, runs say it.
    """
    from labctl.cli.output import unfailing

    sys.stderr = unfailing(sys.stderr)  # `labctl run 2>&1 | head` must not end the run
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup has SIGHUP ignored
            signal.signal(number, signal.default_int_handler)
    sys.exit(run_cli(sys.argv[1:] if arguments is None else arguments))


def run_cli(words: list[str]) -> int:
    """Run the command line ``words``; its exit status. A command may return its own."""
    invocation = Invocation()
    try:
        result = cli.main(args=words, prog_name="labctl", standalone_mode=False, obj=invocation)
    except NobodyReads:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return invocation.status
    except Exception as error:
        if invocation.debug:
            import traceback

            traceback.print_exc()
        status = _explain(error)
        failed_itself = not isinstance(error, click.exceptions.Exit | click.Abort)
        if invocation.command in _PASSING_STATUS and failed_itself:
            return ExitStatus.SHELL_FAILURE
        return status
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        return ExitStatus.INTERRUPTED
    return result if isinstance(result, int) else ExitStatus.OK


def _explain(error: Exception) -> int:
    """Say what happened; the exit status it means."""
    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case click.Abort():
            click.echo("interrupted", err=True)
            return ExitStatus.INTERRUPTED
        case click.ClickException():
            error.show()
            return ExitStatus.CONFIG
        case LabctlError():
            show_error(error)
            return error.exit_status
    import traceback

    where = traceback.extract_tb(error.__traceback__)[-1]
    click.echo(
        f"bug: {type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})\n"
        f"hint: {BUG_HINT}",
        err=True,
    )
    return ExitStatus.INFRA


def show_error(error: LabctlError) -> None:
    """Print an error: blame, message, evidence, what to do."""
    click.echo(f"{click.style('error', fg='red')} ({error.blame}): {error.message}", err=True)
    if error.details:
        for line in error.details.rstrip().splitlines():
            click.echo(f"  | {printable(line)}", err=True)
    if error.hint:
        click.echo(f"{click.style('hint', fg='cyan')}: {error.hint}", err=True)
