"""``labctl eval``."""

import click

from labctl.cli.complete import RECIPE
from labctl.cli.eval_view import read_evaluation, show_plan, tell_outcome
from labctl.cli.lab import connect_board, lab_or_own
from labctl.cli.output import json_option
from labctl.cli.progress import ProgressView
from labctl.cli.root import Invocation
from labctl.cli.run_view import RunView


@click.command(
    "eval",
    epilog="Examples: labctl eval recipes/gsm8k_budgets.yaml --limit 100;"
    " labctl eval gsm8k_budgets --dry-run",
)
@click.option(
    "--set",
    "set_values",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a key of the recipe for this run; repeatable.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help="Number of questions; the same as --set dataset.limit=N.",
)
@click.option("--dry-run", is_flag=True, help="Print only the plan; contact no server.")
@json_option("Print run, accuracies and gates as JSON; with --dry-run the plan.")
@click.argument("recipe", shell_complete=RECIPE)
@click.pass_obj
def eval_(
    invocation: Invocation,
    recipe: str,
    *,
    set_values: tuple[str, ...],
    limit: int | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Ask models the questions of a recipe, and print how many answers are right.

    RECIPE is a file, or the name of a recipe of the lab or of labctl. Each answer is written to a
    new directory below the lab's runs/ before it counts: after Ctrl-C or a kill, `labctl resume`
    asks only the open questions. Exit status 0: every gate is met, by all questions or by those
    asked until max_time or stop_when; 1: a gate was missed, or a question was refused; 3: a server
    failed.
    """
    lab = lab_or_own(invocation)
    settings = (*set_values, *([f"dataset.limit={limit}"] if limit else []))
    wanted = read_evaluation(recipe, lab.root, settings)
    if dry_run:
        show_plan(wanted, lab, as_json=as_json)
        return 0
    from labctl.evaluation.run import EvaluationRequest, run_evaluation
    from labctl.runs import Observer

    with ProgressView() as view:
        request = EvaluationRequest(wanted, lab, connect_board)
        outcome = run_evaluation(request, Observer(RunView(view).show))
    return tell_outcome(outcome, as_json=as_json)
