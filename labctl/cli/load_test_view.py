"""Load tests as commands print them: the plan, progress, the table, other formats, the facts."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from labctl.cli.output import (
    CI_FORMATS,
    PAGE,
    TABLES,
    lead_nowhere,
    note,
    output_console,
    write_page,
    write_result,
)
from labctl.runs.record.directory import RunDirectory
from labctl.units import duration

if TYPE_CHECKING:
    from labctl.evaluation.serving.recipe import LoadTestRecipe
    from labctl.evaluation.serving.run import LoadTestOutcome


def check_load_test_format(result_format: str) -> None:
    """Raise UsageError for a format that a load test does not have."""
    if result_format not in (*TABLES, "json", "csv", *CI_FORMATS, PAGE):
        raise click.UsageError(
            "a load test is printed as a table, as csv, as json or for CI servers, and written as"
            " .html, .md, .pdf, .svg or .png"
        )


def show_load_plan(recipe: "LoadTestRecipe", *, as_json: bool) -> None:
    """Print the loads of a load test; contact no server."""
    from labctl.evaluation.serving.preview import load_plan

    plan = load_plan(recipe)
    if as_json:
        click.echo(json.dumps(plan.document(), indent=2))
        return
    from labctl.report.console import plain, print_lines, print_table

    console = output_console()
    console.print(f"[bold]{plain(recipe.name)}[/] on {plain(plan.server)}", highlight=False)
    rows = [
        (
            one.name,
            str(one.warm_up),
            "-" if one.requests is None else str(one.requests),
            duration(None if one.duration_s is None else one.duration_s * 1e9),
        )
        for one in plan.loads
    ]
    print_table(console, ("load", ">warm-up", ">requests", ">sent for"), rows)
    print_lines(console, map(plain, plan.notes))


def tell_load_test(outcome: "LoadTestOutcome", result_format: str, output: Path | None) -> int:
    """Print or write the results of a load test; return its exit status.

    Raises the load test's error, and HostError.
    """
    page = output if result_format == PAGE else None
    if page is not None:
        result_format, output = "table", None
    try:
        show_load_test(outcome.directory, result_format, output)
        if result_format in TABLES and output is None:
            click.echo(f"run directory: {outcome.directory.path}")
        if page is not None:
            write_page([outcome.directory.path], page)
        sys.stdout.flush()
    except BrokenPipeError:
        lead_nowhere(sys.stdout.fileno())  # the test's status counts even if nobody reads
    if outcome.state == "interrupted":
        note("interrupted; the results so far are kept")
    if outcome.error is not None:
        raise outcome.error
    return outcome.exit_status


def show_load_test(
    run: RunDirectory, result_format: str, output: Path | None, *, strict: bool = False
) -> None:
    """Print or write the results of a load test, in a format that was checked."""
    from labctl.evaluation.serving.directory import LoadTestDirectory
    from labctl.evaluation.serving.results import results_of
    from labctl.report.serving import load_test_text, print_load_test
    from labctl.report.status import run_status
    from labctl.report.tables import print_status

    directory = LoadTestDirectory(run.path)
    results, end = results_of(directory), directory.end()
    gates, status = end.gates if end else (), run_status(run)
    if result_format in TABLES and output is None:
        console, wide = output_console(), result_format == "wide"
        print_status(console, status)
        print_load_test(console, results, gates, wide=wide)
    else:
        form = "table" if result_format in TABLES else result_format
        write_result(load_test_text(form, results, gates, end, status, strict=strict), output)


def facts_of_load_test(run: RunDirectory, *, as_json: bool) -> None:
    """Print the record of a load test, one line for each fact."""
    from labctl.cli.evaluation_view import print_facts

    record = run.serving().model_dump(mode="json", exclude_none=True)
    print_facts(run, "serving", record, as_json=as_json)
