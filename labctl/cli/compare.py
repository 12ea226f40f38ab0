"""``labctl compare``."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from labctl.cli.complete import COMPARED, FIGURE
from labctl.cli.lab import find_only_run, lab_or_own, runs_folder
from labctl.cli.output import json_option, note, output_console
from labctl.cli.recipe_command import Group, RecipeCommand, refuse_foreign
from labctl.cli.root import Invocation
from labctl.config.types import parse_share
from labctl.errors import ConfigError, ExitStatus, printable
from labctl.runs.record.directory import RunDirectory

#: ``--fail-on`` -> verdict
_FAILURES = {
    "slower": "slower",
    "suspected": "suspected",
    "unlike": "unlike",
    "cant-tell": "can't tell",
}
_ONLY: Mapping[Group, tuple[str, ...]] = {
    "timing": ("allow", "figures", "same_within", "practical", "fail_on", "markdown"),
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
    cls=RecipeCommand,
    only=_ONLY,
    epilog="Examples: labctl compare latest; labctl compare release-1.2 latest;"
    " labctl compare 16fc2f:q2_k latest:q8_0 --allow model",
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

    A, B are runs, variants of runs (RUN:VARIANT) or baselines. Timing runs are compared variant by
    variant; in a single run, each variant with the first. Default: the newest run.

    Verdicts: unlike, same, slower, faster, suspected, can't tell. `labctl docs comparing` explains
    them. The exit status is 0 for all verdicts, unless --fail-on names one of them.

    Of evaluations with the same questions and prompts, prints how far the answers of two servers of
    one model agree: the share of identical answers, the position of the first difference, and the
    difference in accuracy with its interval; in a single run, of two models of the same file.
    """
    words = names or ("latest",)
    if evaluations := _evaluations(invocation, words):
        refuse_foreign("evaluation")
        return _print_agreements(evaluations, as_json=as_json)
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


def _evaluations(invocation: Invocation, words: Sequence[str]) -> list[RunDirectory]:
    """Return the runs if all are evaluations; none if they are of another kind.

    Raises ConfigError if only some are evaluations.
    """
    found = []
    for word in words:
        try:
            found.append(find_only_run(invocation, word))
        except ConfigError:  # a variant, a baseline of several runs, or an unknown name
            continue
    asked = [directory for directory in found if directory.is_evaluation]
    if asked and len(asked) < len(words):
        raise ConfigError(
            f"run {asked[0].path.name} is an evaluation: it is compared with evaluations only",
            hint="`labctl runs --kind evaluation` lists them",
        )
    return asked


def _print_agreements(runs: Sequence[RunDirectory], *, as_json: bool) -> int:
    from labctl.evaluation.agreement import Answers, agreements
    from labctl.report.agreement import agreements_json, print_agreements

    first, *others = map(Answers.of, runs)
    found = [one for other in others or [first] for one in agreements(first, other)]
    if as_json:
        click.echo(agreements_json(found), nl=False)
    else:
        print_agreements(output_console(), found)
    return ExitStatus.OK
