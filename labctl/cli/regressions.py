"""``labctl regressions``."""

import json

import click

from labctl.cli.ci_output import CiOutput, ci_options
from labctl.cli.lab import runs_folder
from labctl.cli.output import json_option, note
from labctl.cli.root import Invocation
from labctl.cli.run_filters import filter_options, unknown_names
from labctl.compare.figures import FIGURES
from labctl.errors import ConfigError, ExitStatus, printable_line
from labctl.index.filters import Filter


@click.command(epilog="Example: labctl regressions --board rk1 --since 30d")
@filter_options
@click.option(
    "--figure",
    "figures",
    multiple=True,
    type=click.Choice(list(FIGURES)),
    help="Figure; repeatable; default: the time of a token.",
)
@json_option("Print all series with their nights and changes as JSON, times in ns.")
@ci_options
@click.pass_obj
def regressions(
    invocation: Invocation,
    *,
    wanted: Filter,
    figures: tuple[str, ...],
    as_json: bool,
    ci: CiOutput,
) -> int:
    """Find changes of results over time, and their commits.

    In a series everything agrees except the source: recipe, variant, board, model, target, build. A
    step in it is a suspicion. It is confirmed when the sources before and after it are measured
    again, alternately; the output names the commands. --since is the time of the step; earlier
    nights are read too. Exit status 1: a confirmed regression that still exists; with --strict,
    also a suspected one.
    """
    from labctl.compare.regressions import lab_changes
    from labctl.report.ci.regressions import regressions_suite
    from labctl.report.regressions import false_steps, regressions_document, series_lines
    from labctl.runs.record.repository import RunRepository

    ci.check_cases_only()
    folder = runs_folder(invocation, "latest")
    found, without = lab_changes(folder, wanted, figures, note=note)
    if not found and not without:
        for line in unknown_names(RunRepository(folder), wanted):
            raise ConfigError(line)  # a misspelt name must not give a green result
    suite = regressions_suite(found, without, strict=ci.strict)
    ci.write_suite(suite)
    if as_json:
        click.echo(json.dumps(regressions_document(found, without), indent=2))
    for judged in [] if as_json else found:
        for line in series_lines(judged):
            click.echo(printable_line(line))
    for one in [] if as_json else without:
        click.echo(printable_line(str(one)))
    if not as_json and any(judged.changes for judged in found):
        click.echo(false_steps())
    if not found and not without:
        note("no such runs" if not wanted.is_empty else "no runs with a result")
    return ExitStatus.JOB if suite.failed else ExitStatus.OK
