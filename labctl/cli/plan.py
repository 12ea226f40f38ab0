"""``labctl plan``."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from labctl.cli.complete import BOARD, RECIPE, TARGET
from labctl.cli.lab import connect_board, lab_and_board, lab_or_own
from labctl.cli.options import SIZE
from labctl.cli.output import json_option, output_console
from labctl.cli.progress import ProgressView
from labctl.cli.recipe_command import (
    Group,
    RecipeCommand,
    limit_option,
    refuse_foreign,
    with_limit,
)
from labctl.cli.root import Invocation
from labctl.cli.run_view import RunView
from labctl.compare.proven import proven
from labctl.config.recipe import find_recipe
from labctl.config.recipe_parts import recipe_kind
from labctl.config.yaml.document import Document
from labctl.evaluation.any_recipe import read_served
from labctl.report.console import print_lines, print_table
from labctl.runs.inputs.prepare import read_recipe
from labctl.runs.observer import Observer
from labctl.runs.plan import Preview, preview_expected, preview_run
from labctl.runs.run import RunRequest
from labctl.units import duration

_ONLY: Mapping[Group, tuple[str, ...]] = {
    "timing": ("board", "target", "memory", "ask"),
    "evaluation": ("limit",),
}


@click.command(
    cls=RecipeCommand,
    only=_ONLY,
    epilog="Examples: labctl plan recipes/q8_latency.yaml --board rk1;"
    " labctl plan q8_latency --target rk3568 --memory 4GB",
)
@click.option(
    "--board",
    "-b",
    shell_complete=BOARD,
    help="The board to plan for; default: the lab's default board.",
)
@click.option(
    "--target",
    shell_complete=TARGET,
    help="Plan for a board of this machine type that you do not have; needs no lab.",
)
@click.option("--memory", type=SIZE, help="Memory of that board, e.g. 4GB.")
@click.option(
    "--set",
    "set_values",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a key of the recipe; repeatable.",
)
@click.option("--ask", is_flag=True, help="Contact the board for its current facts.")
@limit_option
@json_option("Print the plan as JSON.")
@click.argument("recipe", shell_complete=RECIPE)
@click.pass_obj
def plan(
    invocation: Invocation,
    recipe: str,
    *,
    board: str | None,
    target: str | None,
    memory: int | None,
    set_values: tuple[str, ...],
    limit: int | None,
    ask: bool,
    as_json: bool,
) -> None:
    """Show what a recipe would do on a board, and how long it would take.

    Needs no board: uses the facts of the board's last probe (`labctl boards probe`) or run, and
    contacts it only if it was never seen, or with --ask. Times are predicted from the last probe,
    else from the target's expected rates. They are lower bounds, and close to the truth if the
    model does not fit in memory. Without a prediction, the time of the last trial of the same kind
    is shown.

    For an evaluation, shows the number of generations, for a load test the loads; contacts no
    server.

    With --target, plans for a board that does not exist yet: cores and rates are those expected of
    the target, and of --memory its system's own use is taken off if the target says it. Such a
    plan is marked EXPECTED, not measured.
    """
    root = lab_or_own(invocation).root
    document = Document.read(find_recipe(recipe, root))
    refuse_foreign(kind := recipe_kind(document))
    if kind != "timing":
        _plan_served(invocation, document, with_limit(set_values, limit), as_json=as_json)
        return
    if (memory is None) != (target is None):
        raise click.UsageError("--target and --memory belong together")
    if memory == 0:
        raise click.UsageError("--memory must be above 0, such as 4GB")
    if target is not None and memory is not None:
        if board is not None or ask:
            raise click.UsageError("--target is for a board that you do not have")
        _plan_expected(root, document, (*set_values, f"target={target}"), memory, as_json)
        return
    lab, chosen = lab_and_board(invocation, board)
    wanted = read_recipe(document, set_values, lab_root=lab.root)
    with ProgressView() as view:
        shown = RunView(view)
        request = RunRequest(wanted, chosen, lab)
        seen = preview_run(
            request,
            partial(connect_board, chosen),
            Observer(shown.show),
            ask=ask,
            proven=partial(proven, lab.root, chosen.name),
        )
        shown.end_step()
    _show(wanted.name, chosen.name, seen, as_json)


def _plan_served(
    invocation: Invocation, document: Document, settings: tuple[str, ...], *, as_json: bool
) -> None:
    """Show the plan of an evaluation or a load test."""
    from labctl.evaluation.recipe import EvaluationRecipe

    lab = lab_or_own(invocation)
    recipe = read_served(document, settings, lab_root=lab.root)
    if isinstance(recipe, EvaluationRecipe):
        from labctl.cli.evaluation_view import show_plan

        show_plan(recipe, lab, as_json=as_json)
    else:
        from labctl.cli.load_test_view import show_load_plan

        show_load_plan(recipe, as_json=as_json)


def _plan_expected(
    root: Path, document: Document, settings: tuple[str, ...], memory: int, as_json: bool
) -> None:
    wanted = read_recipe(document, settings, lab_root=root)
    with ProgressView() as view:
        shown = RunView(view)
        seen = preview_expected(wanted, root, memory, Observer(shown.show))
        shown.end_step()
    _show(wanted.name, f"an expected {wanted.target}", seen, as_json)


def _show(recipe: str, board: str, seen: Preview, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(seen.document(), indent=2))
        return
    _print(output_console(), recipe, board, seen)


_HEADINGS = ("variant", ">trials", ">tokens", ">per token", ">per trial", ">in all", "bound")


def _print(console: Console, recipe: str, board: str, seen: Preview) -> None:
    console.print(f"[bold]{escape(recipe)}[/] on {escape(board)}", highlight=False)
    rows = [
        (
            row.variant,
            str(row.trials) + (f" to {row.trials + row.optional}" if row.optional else ""),
            "-" if row.tokens is None else str(row.tokens),
            duration(trial.token_ns if (trial := row.predicted) and row.tokens else None),
            duration(None if row.seconds is None else row.seconds * 1e9),
            duration(None if row.seconds is None else row.seconds * row.trials * 1e9),
            trial.bound if trial else "as before" if row.measured else "-",
        )
        for row in seen.rows()
    ]
    print_table(console, _HEADINGS, rows)
    print_lines(console, map(escape, seen.messages()))
