"""Load tests as commands print them: the table, other formats, the facts."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from labctl.cli.output import TABLES, lead_nowhere, note, output_console, write_result
from labctl.errors import ConfigError
from labctl.runs.record.directory import RunDirectory

if TYPE_CHECKING:
    from labctl.evaluation.serving.run import LoadTestOutcome

#: End of a file's name -> format.
_FORMATS = {"": "table", ".txt": "table", ".csv": "csv", ".json": "json"}


def chosen_format(output: Path | None, *, as_json: bool) -> str:
    """Return the format given by the options and the file's name. Raises ConfigError."""
    if as_json or output is None:
        return "json" if as_json else "table"
    form = _FORMATS.get(output.suffix.lower())
    if form is None:
        raise ConfigError(
            f"a load test cannot be written as {output.name}: unknown file type {output.suffix}",
            hint="name it .csv, .json or .txt",
        )
    return form


def tell_load_test(
    outcome: "LoadTestOutcome", form: str, output: Path | None, *, wide: bool
) -> None:
    """Print or write the results of a load test. Raises its error, and HostError."""
    try:
        _print(outcome.directory, form, output, wide=wide)
        if form == "table" and output is None:
            click.echo(f"run directory: {outcome.directory.path}")
        sys.stdout.flush()
    except BrokenPipeError:
        lead_nowhere(sys.stdout.fileno())  # its status counts even if nobody reads
    if outcome.state == "interrupted":
        note("interrupted; the results so far are kept")
    if outcome.error is not None:
        raise outcome.error


def report_load_test(run: RunDirectory, result_format: str, output: Path | None) -> None:
    """Print or write the results of a load test, as ``labctl report`` does.

    Raises UsageError for formats that a load test does not have.
    """
    if result_format not in (*TABLES, "json", "csv"):
        raise click.UsageError("a load test is printed as a table, as csv or as json")
    form = "table" if result_format in TABLES else result_format
    _print(run, form, output, wide=result_format == "wide")


def _print(run: RunDirectory, form: str, output: Path | None, *, wide: bool) -> None:
    from labctl.evaluation.serving.directory import LoadTestDirectory
    from labctl.evaluation.serving.results import results_of
    from labctl.report.serving import load_test_text, print_load_test

    directory = LoadTestDirectory(run.path)
    results, end = results_of(directory), directory.end()
    gates = end.gates if end else ()
    if form == "table" and output is None:
        print_load_test(output_console(), results, gates, end, wide=wide)
    else:
        write_result(load_test_text(form, results, gates, end), output)


def facts_of_load_test(run: RunDirectory, *, as_json: bool) -> None:
    """Print the record of a load test, one line for each fact."""
    from labctl.cli.eval import print_facts

    record = run.serving().model_dump(mode="json", exclude_none=True)
    print_facts(run, "serving", record, as_json=as_json)
