"""``labctl report``."""

from collections.abc import Sequence
from pathlib import Path

import click

from labctl.cli.ci_output import CiOutput, ci_options
from labctl.cli.complete import COMPARED, PICTURE, REFERENCE
from labctl.cli.lab import find_runs
from labctl.cli.output import (
    PAGE,
    TABLES,
    language_option,
    output_console,
    result_options,
    show_result,
    write_page,
)
from labctl.cli.root import Invocation
from labctl.runs.record.directory import RunDirectory


@click.command(epilog="Example: labctl report latest -o report.html")
@click.argument("names", metavar="[RUN]...", nargs=-1, shell_complete=COMPARED)
@click.option(
    "--form",
    type=click.Choice(["table", "experiment"]),
    default="table",
    show_default=True,
    help="table: a row for each variant; experiment: every token's time, with mean and ratio.",
)
@language_option
@click.option(
    "--figure",
    metavar="NAME",
    shell_complete=PICTURE,
    help="With -o FILE.svg or .png: only this figure; default: all, in FILE-NAME.svg.",
)
@click.option(
    "--references",
    metavar="NAME,NAME|all",
    shell_complete=REFERENCE,
    help="Published figures of references.yaml to show; default: those named by the recipe.",
)
@result_options
@ci_options
@click.pass_obj
def report(
    invocation: Invocation,
    *,
    names: Sequence[str],
    form: str,
    language: str | None,
    figure: str | None,
    references: str | None,
    result_format: str,
    output: Path | None,
    ci: CiOutput,
) -> None:
    """Print the tables of finished runs, or write a report on them.

    RUN is a run's id, the start or end of one, the path of its directory, a baseline's name for its
    runs, or `latest`, the default. `-o FILE.html` writes a page with figures, conditions and
    provenance that needs no network; `.md` and `.pdf` have the same content, `.svg` and `.png` the
    figures, one file each. `.csv`, `.json`, `.jsonl` and `.txt` are the same as with `--format`.
    Everything is computed again from the files in the run directories.
    """
    names = names or ("latest",)
    _check_options(form, language, figure, result_format, output)
    directories = [found for name in names for found in find_runs(invocation, name)]
    _check_runs(directories, form, result_format, output, ci)
    if len(directories) == 1 and _print_other(directories[0], result_format, output, ci):
        return
    quoted = [name for name in (references or "").split(",") if name]
    if result_format == PAGE and output is not None:
        paths = [directory.path for directory in directories]
        write_page(paths, output, language=language or "en", references=quoted, figure=figure)
        if ci.files and not _of_other_kinds(directories):
            only, end = directories[0], directories[0].end()
            ci.write(only, only.run(), only.trials(), end.gates if end else ())
        return
    for number, directory in enumerate(directories):
        if number:
            click.echo()
        _print(directory, form, result_format, output, references=quoted, ci=ci)


def _check_options(
    form: str,
    language: str | None,
    figure: str | None,
    result_format: str,
    output: Path | None,
) -> None:
    """Refuse options that do not go together."""
    if form == "experiment" and result_format != "table":
        raise click.UsageError("--form experiment is a text; it has no other format")
    if language and result_format != PAGE:
        raise click.UsageError("--language is for reports: -o FILE.html, .md, .pdf, .svg or .png")
    if figure and (output is None or output.suffix.lower() not in (".svg", ".png")):
        raise click.UsageError("--figure is for pictures: -o FILE.svg or FILE.png")


def _of_other_kinds(directories: Sequence[RunDirectory]) -> Sequence[RunDirectory]:
    return [one for one in directories if one.is_evaluation or one.is_load_test]


def _check_runs(
    directories: Sequence[RunDirectory],
    form: str,
    result_format: str,
    output: Path | None,
    ci: CiOutput,
) -> None:
    """Refuse options that do not go with these runs."""
    others = _of_other_kinds(directories)
    for_ci = (ci.files or ci.strict) and not all(one.is_load_test for one in others)
    if others and (form == "experiment" or for_ci):
        raise click.UsageError("the options of timing runs do not go with other kinds of runs")
    if len(directories) < 2:
        return
    if ci.files or ci.strict or result_format not in (*TABLES, PAGE):
        raise click.UsageError(
            "several runs: write a report with -o FILE.html, .md or .pdf; `labctl export` has rows"
        )
    if output and result_format != PAGE:
        raise click.UsageError("several runs: a table in a file is for one run")


def _print_other(
    directory: RunDirectory, result_format: str, output: Path | None, ci: CiOutput
) -> bool:
    """Print an evaluation or a load test. Return False for a timing run or a page."""
    if directory.is_load_test:
        from labctl.cli.load_test_view import check_load_test_format, show_load_test

        shown = () if result_format == PAGE else ((result_format, output),)
        for kind, file in (*ci.files, *shown):
            check_load_test_format(kind)
            show_load_test(directory, kind, file, strict=ci.strict)
        return result_format != PAGE
    if result_format == PAGE:
        return False
    if not directory.is_evaluation:
        return False
    from labctl.cli.evaluation_view import check_evaluation_format, show_evaluation

    check_evaluation_format(result_format, output)
    show_evaluation(directory, result_format)
    return True


def _print(
    directory: RunDirectory,
    form: str,
    result_format: str,
    output: Path | None,
    *,
    references: Sequence[str],
    ci: CiOutput,
) -> None:
    """Print or write the result of one run."""
    record, trials = directory.run(), directory.trials()
    from labctl.report.console import plain
    from labctl.report.tables import print_experiment

    console = output_console()
    if output is None and form == "table" and result_format in TABLES:
        origin = directory.origin()
        name = f"run {directory.path.resolve().name}"
        mark = f", IMPORTED from {origin.file}: not measured by this lab" if origin else ""
        console.print(f"[{'bold red' if origin else 'dim'}]{plain(f'{name}{mark}')}[/]")
    if form == "experiment":
        if output is None:
            print_experiment(console, record, trials)
            return
        result_format = form
    end = directory.end()
    gates = end.gates if end else ()
    ci.write(directory, record, trials, gates)
    show_result(
        record,
        trials,
        gates,
        directory.path,
        result_format=result_format,
        output=output,
        strict=ci.strict,
        references=references,
    )
