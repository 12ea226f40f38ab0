"""Standard output for results, standard error for the rest; the result of a run in all formats.

One rule for all commands: when standard output is no longer read (``| head -1``), the command ends
silently, with its exit status at that time. Writing there raises BrokenPipeError, which only
:mod:`labctl.cli.root` catches. Standard error never ends a command.
"""

import errno
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click

from labctl import interrupts
from labctl.errors import ConfigError, ExitStatus, HostError, printable

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from labctl.cli.ci_output import CiOutput
    from labctl.records.run import GateRecord, RunRecord
    from labctl.records.trial import TrialRecord
    from labctl.report.references import ReferenceRow
    from labctl.runs.runner import Outcome

F = TypeVar("F", bound=Callable[..., Any])
#: Formats of the result of a run.
FORMATS = ("table", "md", "csv", "json", "jsonl")
#: Formats for CI servers.
CI_FORMATS = ("junit", "summary", "github", "gitlab-metrics", "gitlab-code-quality")
#: Formats printed with the run directory and state below the result.
TABLES = ("table", "wide")
#: A report as a file, ``-o report.html``; not a value of ``--format``.
PAGE = "page"
#: Suffix of a file -> format, if ``--format`` is not given.
_BY_SUFFIX = {
    **dict.fromkeys(("", ".txt"), "table"),
    **{f".{form}": form for form in ("csv", "json", "jsonl")},
    ".xml": "junit",
    **dict.fromkeys((".html", ".htm", ".md", ".pdf", ".svg", ".png"), PAGE),
}


@dataclass
class Invocation:
    """Options of the root command; commands find it as ``ctx.obj``."""

    lab: "Path | None" = None
    debug: bool = False
    command: str | None = None
    #: Print results and errors only.
    quiet: bool = False
    #: Errors too are printed as JSON.
    as_json: bool = False
    #: The exit status if nobody reads the output to its end.
    status: int = ExitStatus.OK
    #: The run that this command has finished; an interrupt after it loses no result.
    finished_run: str | None = None

    @classmethod
    def current(cls) -> Self | None:
        """Return the options of the command that runs; None outside a command, as in a thread."""
        context = click.get_current_context(silent=True)
        return context.find_object(cls) if context else None


@contextmanager
def way_on(text: str) -> Iterator[None]:
    """Print ``text`` if the block is interrupted: what is kept, and how to continue."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        click.echo(text, err=True)
        interrupt.add_note(text)  # no other text on how to continue
        raise


def is_quiet() -> bool:
    """Return True if only results and errors are wanted."""
    invocation = Invocation.current()
    return invocation is not None and invocation.quiet


def note(text: str) -> None:
    """Print a line on standard error that is neither a result nor an error."""
    if not is_quiet():
        click.echo(printable(text), err=True)


def coloured(text: str, colour: str) -> str:
    """Return text in a colour, or unchanged if the user wants no colour (no-color.org)."""
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=colour)


def output_console() -> "Console":
    """Return a console on standard output. Raises BrokenPipeError when nobody reads.

    Control sequences in any text are escaped.
    """
    from rich import console as rich_console
    from rich.segment import Segment

    class OutputConsole(rich_console.Console):
        def render(self, *words: Any, **options: Any) -> Iterator[Segment]:
            for segment in super().render(*words, **options):
                yield segment if segment.control else segment._replace(text=printable(segment.text))

        def on_broken_pipe(self) -> None:  # rich itself would end the program, with status 1
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    return OutputConsole(emoji=False)


def json_option(help_text: str) -> Callable[[F], F]:
    """Make the option ``--json`` of a command; with it errors are JSON too."""

    def set_json(ctx: click.Context, _parameter: click.Parameter, value: bool) -> bool:
        if value:
            ctx.find_root().ensure_object(Invocation).as_json = True
        return value

    return click.option(
        "--json", "as_json", is_flag=True, is_eager=True, callback=set_json, help=help_text
    )


def print_command(text: str) -> None:
    """Print an external command on standard error, as ``sh -x`` does; a script's lines indented."""
    shown = printable(text).replace("\n", "\n    ")
    click.echo(f"+ {shown}", err=True)


def confirm(what: str, warnings: Sequence[str] = ()) -> None:
    """Ask for confirmation on the terminal. Exit with status 1 if the answer is no.

    Raises ConfigError if nobody can be asked.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigError(
            f"{what}: cannot ask for confirmation here",
            hint="use --yes",
            details="\n".join(warnings) or None,
        )
    with interrupts.waiting():
        is_wanted = click.confirm("\n".join([*warnings, f"{what}; continue?"]), err=True)
    if not is_wanted:
        click.echo("cancelled", err=True)
        raise click.exceptions.Exit(ExitStatus.JOB)


def write_output(piece: bytes) -> None:
    """Print bytes at once. Raises BrokenPipeError when nobody reads."""
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


language_option = click.option(
    "--language",
    type=click.Choice(["en", "zh"]),
    show_default="en",
    help="Language of a report that is written as .html, .md, .pdf, .svg or .png.",
)


def output_option(command: F, *, folders: bool = False) -> F:
    """Add ``-o``; the command gets ``output``, None for standard output."""
    from pathlib import Path

    def checked(
        _ctx: click.Context, _parameter: click.Parameter, value: "Path | None"
    ) -> "Path | None":
        """Check before any work that the file can be written. Raises ConfigError."""
        from labctl.files import check_named

        if value is None or str(value) == "-":
            return None
        check_named(value)
        return value

    return click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path, dir_okay=folders, allow_dash=True),
        metavar="FILE",
        callback=checked,
        help="Write to this file instead of standard output, which is -.",
    )(command)


def _by_name(options: Mapping[str, Any]) -> str:
    """Return the format for the name of the output. Raises ConfigError."""
    output: Path | None = options["output"]
    if output is None or options.get("print_recipe"):
        return "table"
    form = _BY_SUFFIX.get(output.suffix.lower())
    if form is None:
        known = ", ".join(filter(None, _BY_SUFFIX))
        raise ConfigError(
            f"nothing can be written as {output.name}: unknown file type {output.suffix}",
            hint=f"name it with one of {known}, or use --format",
        )
    if form == PAGE:
        from labctl.report.page.files import check_report

        check_report(output)
    return form


def result_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of results; the command gets ``result_format`` and ``output``."""

    @wraps(command)
    def with_format(
        *words: Any, as_json: bool, wide: bool, result_format: str | None, **options: Any
    ) -> Any:
        if as_json and result_format not in (None, "json"):
            raise click.UsageError(f"--json is --format json, not {result_format}")
        chosen = "json" if as_json else result_format or _by_name(options)
        if wide and chosen != "table":
            raise click.UsageError(f"--wide is for tables; {chosen} has everything anyway")
        return command(*words, result_format="wide" if wide else chosen, **options)

    def set_json(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
        if value == "json":
            ctx.find_root().ensure_object(Invocation).as_json = True
        return value

    decorated: Callable[..., Any] = with_format
    for option in (
        output_option,
        click.option(
            "--wide", is_flag=True, help="Print all columns, and the tables of the details."
        ),
        json_option("Print run, rows and records as JSON; the same as --format json."),
        click.option(
            "--format",
            "result_format",
            type=click.Choice((*FORMATS, *CI_FORMATS)),
            show_default="table",
            is_eager=True,
            callback=set_json,
            help="Format of the result; csv has a line for each variant, jsonl for each trial. From"
            " junit on: for CI servers. Default: by the name of FILE.",
        ),
    ):
        decorated = option(decorated)
    return decorated


def tell(
    outcome: "Outcome", result_format: str, output: "Path | None", ci: "CiOutput | None" = None
) -> int:
    """Print or write the result of a run, and the files for CI servers; return its exit status."""
    run, trials, where = outcome.run, outcome.trials, outcome.directory.path
    page = output if result_format == PAGE else None
    if page is not None:  # a person who asks for a report also wants the answer
        result_format, output = "table", None
    status = ci.exit_status(outcome) if ci else outcome.exit_status
    try:
        if ci:
            ci.write(outcome.directory, run, trials, outcome.gates)
        strict = ci is not None and ci.strict
        show_result(
            run,
            trials,
            outcome.gates,
            where,
            result_format=result_format,
            output=output,
            strict=strict,
        )
        if result_format in TABLES and output is None:
            from labctl.report.tables import print_sparklines

            print_sparklines(output_console(), run, trials)
            click.echo(f"run directory: {where}")
        if page is not None:
            write_page([where], page)
        sys.stdout.flush()
    except BrokenPipeError:
        lead_nowhere(sys.stdout.fileno())  # the run's status counts even if nobody reads
    except HostError as error:
        error.hint = f"`labctl report {where.name}` prints the result"
        if status == ExitStatus.OK:
            raise
        click.echo(f"note: {error.message}; {error.hint}", err=True)
    return status


def show_result(
    run: "RunRecord",
    trials: Sequence["TrialRecord"],
    gates: Sequence["GateRecord"],
    directory: "Path",
    *,
    result_format: str,
    output: "Path | None",
    references: Sequence[str] = (),
    strict: bool = False,
) -> None:
    """Print or write the result of a run, with the named published figures.

    Raises HostError, and ConfigError for an unknown reference.
    """
    if result_format == PAGE and output is not None:
        write_page([directory], output, references=references)
        return
    from labctl.report.status import run_status
    from labctl.runs.record.directory import RunDirectory

    status = run_status(RunDirectory(directory))
    quoted: Sequence[ReferenceRow] = ()
    if references or run.recipe_resolved.get("references"):
        from labctl.report.references import references_of

        quoted = references_of(run, directory, references)
    if result_format in TABLES and output is None:
        from labctl.report.tables import print_timing_table

        console, wide = output_console(), result_format == "wide"
        if (search := RunDirectory(directory).tuning()) is not None:
            from labctl.compare.tuned import tuned
            from labctl.report.tuning import print_search

            print_search(console, run, tuned(run, trials, search), status, wide=wide)
            if not wide:
                return
        print_timing_table(console, run, trials, gates, wide=wide, references=quoted, status=status)
        return
    from labctl.report.formats import result_text

    text = result_text(
        result_format,
        run,
        trials,
        gates,
        directory,
        references=quoted,
        status=status,
        strict=strict,
    )
    write_result(text, output)
    if output is not None:
        note(f"wrote {output}")


def write_page(
    directories: "Sequence[Path]",
    output: "Path",
    *,
    language: str = "en",
    references: Sequence[str] = (),
    figure: str | None = None,
) -> None:
    """Write the report on runs to a file. Raises ConfigError and HostError."""
    from labctl.report.page.files import write_report
    from labctl.report.page.language import Language
    from labctl.runs.record.directory import RunDirectory

    runs = [RunDirectory(path) for path in directories]
    words = Language("zh" if language == "zh" else "en")
    for path in write_report(runs, output, words=words, references=references, figure=figure):
        note(f"wrote {path}")


def write_result(result: str | bytes, output: "Path | None") -> None:
    """Write a result to a file, None for standard output.

    If writing fails, the text is printed and the HostError says so. On a terminal, control
    sequences in the text are escaped.
    """
    shown = result
    if isinstance(result, str) and sys.stdout.isatty():
        shown = printable(result.replace("\r\n", "\n"))
    if output is None:
        click.echo(shown, nl=False)
        return
    from labctl.files import write_named

    try:
        write_named(output, result)
    except HostError as error:
        if isinstance(result, bytes):
            raise
        click.echo(shown, nl=False)
        message = f"{error.message}; the result is on standard output instead"
        raise HostError(message, hint=error.hint) from error


def lead_nowhere(descriptor: int) -> None:
    """Discard everything that is still written to a file descriptor."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
