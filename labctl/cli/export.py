"""``labctl export``."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from labctl.cli.complete import COMPARED
from labctl.cli.lab import find_runs, runs_folder
from labctl.cli.output import note, output_option, write_result
from labctl.cli.root import Invocation
from labctl.cli.run_filters import filter_options, unknown_names
from labctl.errors import printable
from labctl.index.filters import Filter
from labctl.index.index import IndexedTrial
from labctl.runs.record.repository import RunRepository
from labctl.units import counted

if TYPE_CHECKING:
    from labctl.runs.record.directory import RunDirectory

_OF_LLAMA_BENCH = ("llama-bench-json", "llama-bench-sql")
_LM_EVAL = "lm-eval"
#: Maximum number of runs that a line names.
_MOST_NAMED = 3
FORMATS = ("csv", "jsonl", "parquet", *_OF_LLAMA_BENCH, _LM_EVAL)
#: Suffix of an output file -> format.
_BY_SUFFIX = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".sql": "llama-bench-sql",
}


@click.command(epilog="Example: labctl export --board rk1 --since 30d --format csv -o trials.csv")
@click.argument("names", metavar="[RUN]...", nargs=-1, shell_complete=COMPARED)
@filter_options
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    show_default="by the name of the output file, else csv",
    help="csv: a cell for each value; jsonl: an object on each line; parquet: typed columns;"
    " llama-bench-json and llama-bench-sql: as llama-bench prints its tests; lm-eval: samples of"
    " evaluations, as lm-evaluation-harness has them.",
)
@partial(output_option, folders=True)
@click.pass_obj
def export(
    invocation: Invocation,
    names: Sequence[str],
    *,
    wanted: Filter,
    form: str | None,
    output: Path | None,
) -> None:
    """Write a row for each trial of the named runs, or of those that meet the conditions.

    Default: all runs. Warm-ups have repeat 0. In CSV, a text that a spreadsheet could read as a
    formula begins with a '; JSON Lines have every text unchanged. The formats of llama-bench
    have a row for each llama-bench test and for each text completion of llama.cpp; llama.cpp's
    compare-llama-bench.py reads them.

    An evaluation gives a line for each graded answer: csv, or samples of
    lm-evaluation-harness. If -o is a folder, it gets the harness's files, one for each model,
    prompt and budget, with results beside them.

    A load test gives a row for each request. If -o is a folder, it gets requests and loads.
    """
    from dataclasses import replace

    named = [found for name in names for found in find_runs(invocation, name)]
    if any(run.is_load_test for run in named):
        _export_load_test(named, form, output)
        return
    if any(run.is_evaluation for run in named):
        _export_evaluation(named, form, output)
        return
    form = _form_of_trials(form, output)
    runs = runs_folder(invocation, names[0] if names else "latest")
    ids = tuple(dict.fromkeys(one.path.resolve().name for one in named))
    repository = RunRepository(runs, note)
    found = repository.trials(replace(wanted, ids=ids))
    if wanted.kind is None and (others := _without_trials(repository, replace(wanted, ids=ids))):
        note(f"left out, they have no trials; name one to export it: {', '.join(others)}")
    if not found:
        for line in unknown_names(repository, wanted):
            note(line)
    for one in repository.query(Filter(ids=ids, states=("damaged",))):
        note(f"left out, damaged: {one.run.id}")
    result, count = _result(runs, found, form)
    if output is None and isinstance(result, str) and sys.stdout.isatty():
        result = printable(result.replace("\r\n", "\n"))
    write_result(result, output)
    if output is not None:
        note(f"wrote {count} to {output}")


def _without_trials(repository: RunRepository, wanted: Filter) -> list[str]:
    """Return the load tests and evaluations that meet the conditions, a few by name."""
    ids = [one.run.id for one in repository.query(wanted) if one.run.kind != "timing"]
    return [*ids[:_MOST_NAMED], *([f"… (+{len(ids) - _MOST_NAMED})"] if ids[_MOST_NAMED:] else [])]


def _export_evaluation(
    named: "Sequence[RunDirectory]", form: str | None, output: Path | None
) -> None:
    """Write the graded answers of one evaluation."""
    from labctl.files import write_named
    from labctl.report.evaluation_export import (
        answers_csv,
        lm_eval_files,
        read_evaluation,
        samples_of,
    )

    if len(named) > 1:
        raise click.UsageError("answers are exported one evaluation at a time; name one")
    if form is None:
        form = "csv" if output is not None and output.suffix.lower() == ".csv" else _LM_EVAL
    if form not in ("csv", "jsonl", _LM_EVAL):
        raise click.UsageError(f"{form} is for timed trials; an evaluation has csv and lm-eval")
    found = read_evaluation(named[0])
    if form != "csv" and output is not None and (output.is_dir() or not output.suffix):
        files = list(lm_eval_files(found))
        for path, text in files:
            write_named(output / path, text)
        note(f"wrote {counted(len(files), 'file')} to {output}")
        return
    if output is not None and output.is_dir():
        raise click.UsageError(f"{output} is a folder; name a file")
    if form == "csv":
        write_result(answers_csv(found), output)
    else:
        write_result("".join(task.jsonl(named=True) for task in samples_of(found)), output)
    if output is not None:
        note(f"wrote {counted(sum(len(c.grades) for c in found.table.cells), 'grade')} to {output}")


def _export_load_test(
    named: "Sequence[RunDirectory]", form: str | None, output: Path | None
) -> None:
    """Write the requests of one load test; to a folder its loads too."""
    from labctl.evaluation.serving.directory import LoadTestDirectory
    from labctl.files import write_named
    from labctl.report.load_export import load_test_exports

    if len(named) > 1:
        raise click.UsageError("requests are exported one load test at a time; name one")
    form = form or _form_of(output)
    if form not in ("csv", "jsonl", "parquet"):
        raise click.UsageError(f"{form} is not for load tests; they have csv, jsonl and parquet")
    _refuse_terminal(form, output)
    found = load_test_exports(LoadTestDirectory(named[0].path), form)
    if output is not None and (output.is_dir() or not output.suffix):
        for name, (content, _) in found.items():
            write_named(output / f"{name}.{form}", content)
        note(f"wrote {' and '.join(counted(n, k[:-1]) for k, (_, n) in found.items())} to {output}")
        return
    content, count = found["requests"]
    write_result(content, output)
    if output is not None:
        note(f"wrote {counted(count, 'request')} to {output}")


def _refuse_terminal(form: str, output: Path | None) -> None:
    """Raise a usage error for Parquet on a terminal."""
    if form == "parquet" and output is None and sys.stdout.isatty():
        raise click.UsageError("Parquet is not text; name a file: -o rows.parquet")


def _form_of_trials(form: str | None, output: Path | None) -> str:
    """Return the format asked for, or that of a file's name. Raises UsageError."""
    if form == _LM_EVAL:
        raise click.UsageError("lm-eval is the format of evaluations: name one (`labctl runs`)")
    form = form or _form_of(output)
    if output is not None and output.is_dir():
        raise click.UsageError(f"{output} is a folder; name a file")
    _refuse_terminal(form, output)
    return form


def _form_of(output: Path | None) -> str:
    """Return the format for the name of a file. Raises a usage error for JSON."""
    suffix = output.suffix.lower() if output else ""
    if suffix in (".json", ".sqlite", ".db"):
        raise click.UsageError(
            f"{output}: choose a --format: jsonl for all values, llama-bench-json or"
            " llama-bench-sql for llama.cpp's tools"
        )
    return _BY_SUFFIX.get(suffix, "csv")


def _result(runs: Path, found: Sequence[IndexedTrial], form: str) -> tuple[str | bytes, str]:
    """Return trials in a format, and their number."""
    if form == "parquet":
        from labctl.report.trial_parquet import trials_parquet

        return trials_parquet(found), counted(len(found), "trial")
    if form not in _OF_LLAMA_BENCH:
        from labctl.report.trial_export import trials_csv, trials_jsonl

        text = (trials_csv if form == "csv" else trials_jsonl)(found)
        return text, counted(len(found), "trial")
    from labctl.engines.llama_cpp.bench_results import json_text, sql_text
    from labctl.exchange.llama_bench_export import bench_results

    rows = bench_results(runs, found, note)
    for execution in sorted({one.trial.execution for one in found} - {"board", "unknown"}):
        note(f"{execution.upper()}: llama-bench's format does not show it")
    text = (json_text if form == "llama-bench-json" else sql_text)(rows)
    return text, counted(len(rows), "test")
