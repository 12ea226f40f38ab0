"""``labctl report``."""

from pathlib import Path

import click

from labctl.cli.ci_output import CiOutput, ci_options
from labctl.cli.complete import REFERENCE, RUN
from labctl.cli.lab import runs_folder
from labctl.cli.output import CI_FORMATS, TABLES, output_console, result_options, show_result
from labctl.cli.root import Invocation
from labctl.cli.run_list import print_runs
from labctl.cli.runs import LIMIT
from labctl.errors import ConfigError
from labctl.index import Filter
from labctl.runs.record.directory import find_run


@click.command(epilog="Example: labctl report latest --form experiment")
@click.argument("run", default="latest", shell_complete=RUN)
@click.option(
    "--form",
    type=click.Choice(["table", "experiment"]),
    default="table",
    show_default=True,
    help="table: a row for each variant; experiment: every token's time, with mean and ratio.",
)
@click.option(
    "--references",
    metavar="NAME,NAME|all",
    shell_complete=REFERENCE,
    help="Published figures of references.yaml to show; default: those that the recipe names.",
)
@click.option("--list", "list_all", is_flag=True, help="The same as `labctl runs`.")
@result_options
@ci_options
@click.pass_obj
def report(
    invocation: Invocation,
    *,
    run: str,
    form: str,
    references: str | None,
    list_all: bool,
    result_format: str,
    output: Path | None,
    ci: CiOutput,
) -> None:
    """Print the tables of a finished run.

    RUN is a run's id, the start or end of one, the path of its directory, or `latest`. All tables
    are computed again from the files in the run directory.
    """
    if form == "experiment" and result_format != "table":
        raise click.UsageError("--form experiment is a text; it has no other format")
    runs = runs_folder(invocation, run)
    if list_all:
        if output or form == "experiment" or result_format not in (*TABLES, "json"):
            raise click.UsageError("--list is printed as `labctl runs` has it, or with --json")
        print_runs(
            runs,
            Filter(),
            limit=LIMIT,
            wide=result_format == "wide",
            as_json=result_format == "json",
        )
        return
    directory = find_run(runs, run)
    record, trials = directory.run(), directory.trials()
    if not trials and not ci.files and result_format not in ("json", *CI_FORMATS):
        raise ConfigError(f"run {record.id} has no finished trial", hint=f"see {directory.path}")
    from rich.markup import escape

    from labctl.report import print_experiment

    console = output_console()
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
        references=[name for name in (references or "").split(",") if name],
    )
    if result_format not in TABLES or output is not None:
        return
    if end is None:
        console.print("[yellow]the run has not ended, or its controller died[/]")
    elif end.failure:
        console.print(f"[red]ended early[/] ({end.failure.blame}): {escape(end.failure.message)}")
    elif end.state == "interrupted":
        console.print("[yellow]interrupted[/]")
