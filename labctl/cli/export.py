"""``labctl export``."""

from collections.abc import Sequence
from pathlib import Path

import click

from labctl.cli.complete import RUN
from labctl.cli.lab import runs_folder
from labctl.cli.output import note, output_option, write_result
from labctl.cli.root import Invocation
from labctl.cli.run_filters import filter_options
from labctl.index import Filter
from labctl.runs.record.directory import find_run
from labctl.runs.record.repository import RunRepository
from labctl.units import counted


@click.command(epilog="Example: labctl export --board rk1 --since 30d --format csv -o trials.csv")
@click.argument("names", metavar="[RUN]...", nargs=-1, shell_complete=RUN)
@filter_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "jsonl"]),
    default="csv",
    show_default=True,
    help="csv: a cell for each value; jsonl: an object on each line.",
)
@output_option
@click.pass_obj
def export(
    invocation: Invocation,
    names: Sequence[str],
    *,
    wanted: Filter,
    form: str,
    output: Path | None,
) -> None:
    """Write a row for each trial of the runs that are named, or that meet the conditions.

    Without either, of all runs. Warm-ups have repeat 0. In CSV a text that a spreadsheet could take
    for a formula gets a ' before it; JSON Lines have every text as it is.
    """
    from dataclasses import replace

    from labctl.report.trial_export import trials_csv, trials_jsonl

    runs = runs_folder(invocation, names[0] if names else "latest")
    ids = tuple(find_run(runs, name).path.resolve().name for name in names)
    repository = RunRepository(runs, note)
    wanted = replace(wanted, ids=ids)
    found = repository.trials(wanted)
    for one in repository.query(Filter(ids=ids, states=("damaged",))):
        note(f"left out, damaged: {one.run.id}")
    text = (trials_csv if form == "csv" else trials_jsonl)(found)
    write_result(text, output)
    if output is not None:
        note(f"wrote {counted(len(found), 'trial')} to {output}")
