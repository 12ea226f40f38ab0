"""``labctl compare``."""

import json
from dataclasses import replace
from typing import Any

import click

from labctl.cli.complete import COMPARED, FIGURE
from labctl.cli.lab import lab_or_own, runs_folder
from labctl.cli.output import json_option, note, output_console
from labctl.cli.root import Invocation
from labctl.config.types import parse_share
from labctl.errors import ExitStatus, printable

#: ``--fail-on`` -> verdict
_FAILURES = {
    "slower": "slower",
    "suspected": "suspected",
    "unlike": "unlike",
    "cant-tell": "can't tell",
}


class Share(click.ParamType[float]):
    """A share: ``3%`` or ``0.03``."""

    name = "share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the share."""
        try:
            return parse_share(float(value) if _is_number(value) else value)
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


def _is_number(value: object) -> bool:
    try:
        float(str(value))
    except ValueError:
        return False
    return True


@click.command(
    epilog="Examples: labctl compare latest; labctl compare release-1.2 latest;"
    " labctl compare 16fc2f:q2_k latest:q8_0 --allow model"
)
@click.option(
    "--allow",
    multiple=True,
    metavar="KEY",
    help="Compare even if this key differs; repeatable. The output names the difference.",
)
@click.option(
    "--figure",
    "figures",
    multiple=True,
    metavar="NAME",
    shell_complete=FIGURE,
    help="Figure to compare, by its name in gates, such as ttft_ms; repeatable."
    " Default: token time, TTFT and prompt rate.",
)
@click.option(
    "--same-within",
    type=Share(),
    help="Largest difference that counts as the same, such as 3%; default: the recipe's.",
)
@click.option(
    "--practical",
    type=Share(),
    help="Smallest difference that counts as slower or faster, such as 2%; default: the recipe's.",
)
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice(list(_FAILURES)),
    help="End with status 1 where a row has this verdict; repeatable.",
)
@click.option("--markdown", is_flag=True, help="Print Markdown, for a page of a CI system.")
@json_option("Print the comparison as JSON, times in ns.")
@click.argument("names", metavar="[A] [B]...", nargs=-1, shell_complete=COMPARED)
@click.pass_obj
def compare(
    invocation: Invocation,
    names: tuple[str, ...],
    *,
    allow: tuple[str, ...],
    figures: tuple[str, ...],
    same_within: float | None,
    practical: float | None,
    fail_on: tuple[str, ...],
    markdown: bool,
    as_json: bool,
) -> int:
    """Compare runs, variants or baselines with the first of them.

    A, B are runs, variants of runs (RUN:VARIANT) or baselines. Runs are compared variant by
    variant; in a single run, each variant with the first. Default: the newest run.

    Verdicts: unlike, same, slower, faster, suspected, can't tell. `labctl docs comparing` explains
        them. The exit status is 0 for all verdicts, unless --fail-on names one of them.
    """
    if markdown and as_json:
        raise click.UsageError("give either --json or --markdown")
    from labctl.compare.figures import checked_names
    from labctl.compare.selecting import find_pairs
    from labctl.compare.session_noise import board_history
    from labctl.compare.thresholds import Thresholds
    from labctl.compare.verdicts import compare as judge
    from labctl.report.comparison import (
        comparison_document,
        comparison_markdown,
        print_comparison,
    )
    from labctl.runs.record.repository import RunRepository

    words = names or ("latest",)
    checked = checked_names(figures)
    folder = runs_folder(invocation, words[0])
    pairs = find_pairs(words, lab_or_own(invocation), folder, note)
    limits = pairs[0][0].thresholds or Thresholds.of_recipe({})
    limits = replace(
        limits,
        same_within=same_within or limits.same_within,
        practical=practical or limits.practical,
    )
    history = board_history(RunRepository(folder, note))
    found = judge(pairs, figures=checked, thresholds=limits, allow=allow, history=history)
    failed = any(row.verdict == _FAILURES[one] for row in found.rows for one in fail_on)
    invocation.status = ExitStatus.JOB if failed else ExitStatus.OK
    if as_json:
        click.echo(json.dumps(comparison_document(found), indent=2))
    elif markdown:
        click.echo(printable(comparison_markdown(found)), nl=False)
    else:
        print_comparison(output_console(), found)
    return invocation.status
