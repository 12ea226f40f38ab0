"""Evaluations as commands print them: the plan, the accuracies, the facts."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from labctl.cli.output import PAGE, TABLES, lead_nowhere, output_console, write_page
from labctl.config.lab import LabFile
from labctl.errors import printable_line
from labctl.runs.record.directory import RunDirectory
from labctl.units import counted, duration

if TYPE_CHECKING:
    from pathlib import Path

    from labctl.evaluation.recipe import EvaluationRecipe
    from labctl.evaluation.run import EvaluationOutcome


def show_plan(recipe: "EvaluationRecipe", lab: LabFile, *, as_json: bool) -> None:
    """Print the plan of an evaluation, with its time if known."""
    from labctl.evaluation.preview import preview

    seen = preview(recipe, lab)
    if as_json:
        click.echo(json.dumps(seen.document(), indent=2))
        return
    from labctl.report.console import print_lines, print_table

    console = output_console()
    console.print(f"[bold]{recipe.name}[/]: {counted(seen.questions, 'question')}", highlight=False)
    headings = ("variant", ">generations", "limits", "answers within smaller limits")
    rows = [(row.variant, str(row.generations), row.limits, row.smaller) for row in seen.rows]
    print_table(console, headings, rows)
    lines = [f"{counted(seen.generations, 'generation')} in all"]
    if seen.checks:
        lines.append(f"and up to {seen.checks} more to check truncated answers against real limits")
    if seen.seconds is not None:
        lines.append(f"at most {duration(seen.seconds * 1e9)}, {seen.seconds_from}")
    print_lines(console, lines)


def check_evaluation_format(result_format: str, output: "Path | None") -> None:
    """Raise UsageError for a format that an evaluation does not have."""
    if result_format != PAGE and (result_format not in (*TABLES, "json") or output is not None):
        raise click.UsageError(
            "an evaluation is printed as a table or with --json, and written as .html, .md, .pdf,"
            " .svg or .png; `labctl export` writes its answers"
        )


def tell_evaluation(outcome: "EvaluationOutcome", result_format: str, output: "Path | None") -> int:
    """Print the result of an evaluation, and write a report if ``result_format`` is one.

    Return its exit status, even if nobody reads. Raises HostError if a file cannot be written.
    """
    page = output if result_format == PAGE else None
    try:
        show_evaluation(outcome.directory.run, result_format if page is None else "table")
        if result_format != "json":
            click.echo(f"run directory: {outcome.directory.path}")
        if page is not None:
            write_page([outcome.directory.path], page)
        sys.stdout.flush()
    except BrokenPipeError:
        lead_nowhere(sys.stdout.fileno())
    return outcome.exit_status


def show_evaluation(run: RunDirectory, result_format: str = "table") -> None:
    """Print the accuracies and the end of an evaluation as ``table``, ``wide`` or ``json``.

    Raises ConfigError.
    """
    from labctl.evaluation.directory import EvaluationDirectory
    from labctl.evaluation.results import document, table_of
    from labctl.report.accuracy_table import gate_lines, print_accuracies
    from labctl.report.console import print_lines
    from labctl.report.status import run_status
    from labctl.report.tables import print_status

    directory = EvaluationDirectory(run)
    record, end, table = directory.record(), directory.end(), table_of(directory)
    if result_format == "json":
        click.echo(json.dumps(document(record, end, table), indent=2))
        return
    console = output_console()
    print_status(console, run_status(run))
    print_accuracies(console, record, table, end, wide=result_format == "wide")
    print_lines(console, gate_lines(end) if end else [])


def facts_of_evaluation(run: RunDirectory, *, as_json: bool) -> None:
    """Print the record of an evaluation, one line for each fact."""
    record = run.evaluation().model_dump(mode="json", exclude_none=True)
    print_facts(run, "evaluation", record, as_json=as_json)


def print_facts(run: RunDirectory, kind: str, record: dict[str, object], *, as_json: bool) -> None:
    """Print a record, a line for each fact; ``kind`` is the name of its file."""
    if as_json:
        from labctl.report.facts import record_document

        click.echo(json.dumps(record_document(run, kind, record), indent=2))
        return
    click.echo(printable_line(str(run.path)))
    click.echo(f"{kind}.json")
    for name, value in _flat("", record):
        click.echo(printable_line(f"  {name}: {value}"))


def _flat(name: str, value: object) -> Iterable[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}" if name else key, inner)
    elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
        for number, inner in enumerate(value):
            yield from _flat(f"{name}[{number}]", inner)
    elif isinstance(value, list):
        yield name, _shortened(value)
    else:
        yield name, str(value)


def _shortened(values: Sequence[object]) -> str:
    shown = ", ".join(map(str, values[:10]))
    return f"{shown} … ({len(values)} in all)" if len(values) > 10 else shown
