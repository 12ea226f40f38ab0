"""The result of a run: in which format, and where it goes."""

import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from labctl.cli.output import Invocation, json_option, output_console, unfailing
from labctl.files import write_atomic

if TYPE_CHECKING:
    from labctl.records import GateRecord, RunRecord, TrialRecord
    from labctl.runs.runner import Outcome

FORMATS = ("table", "md", "csv", "json", "jsonl")
#: What is printed with run directory and state below it: as ``--format`` has it, or ``--wide``.
TABLES = ("table", "wide")


def result_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--format``, ``--wide``, ``--json`` and ``-o``; the command gets ``result_format`` and
    ``output``.
    """

    @wraps(command)
    def with_format(
        *words: Any, as_json: bool, wide: bool, result_format: str, **options: Any
    ) -> Any:
        chosen = "json" if as_json else result_format
        if wide and chosen != "table":
            raise click.UsageError(f"--wide is for tables; {chosen} has everything anyway")
        return command(*words, result_format="wide" if wide else chosen, **options)

    def set_json(ctx: click.Context, _parameter: click.Parameter, value: str) -> str:
        if value == "json":
            ctx.find_root().ensure_object(Invocation).as_json = True
        return value

    decorated: Callable[..., Any] = with_format
    for option in (
        click.option(
            "-o",
            "--output",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Write the result to this file instead of standard output.",
        ),
        click.option(
            "--wide", is_flag=True, help="Print all columns, and the tables of the details."
        ),
        json_option("Print run, rows and records as JSON; the same as --format json."),
        click.option(
            "--format",
            "result_format",
            type=click.Choice(FORMATS),
            default="table",
            show_default=True,
            is_eager=True,
            callback=set_json,
            help="Format of the result; csv has a line for each variant, jsonl for each trial.",
        ),
    ):
        decorated = option(decorated)
    return decorated


def tell(outcome: "Outcome", result_format: str, output: Path | None) -> int:
    """Print or write the result of a run; its exit status."""
    run, trials, where = outcome.run, outcome.trials, outcome.directory.path
    with redirect_stdout(unfailing(sys.stdout)):  # its status holds though nobody reads
        show_result(run, trials, outcome.gates, where, result_format=result_format, output=output)
        if result_format in TABLES and output is None:
            click.echo(f"run directory: {where}")
    return outcome.exit_status


def show_result(
    run: "RunRecord",
    trials: Sequence["TrialRecord"],
    gates: Sequence["GateRecord"],
    directory: Path,
    *,
    result_format: str,
    output: Path | None,
) -> None:
    """Print or write the result of a run. Raises HostError."""
    if result_format in TABLES and output is None:
        from labctl.report import print_timing_table

        print_timing_table(output_console(), run, trials, gates, wide=result_format == "wide")
        return
    from labctl.report.formats import result_text

    text = result_text(result_format, run, trials, gates, directory)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_atomic(output, text)
