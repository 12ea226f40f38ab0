"""``labctl eval``: run an evaluation, and print its plan, result and facts."""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from labctl.cli.complete import RECIPE
from labctl.cli.lab import lab_or_own
from labctl.cli.output import TABLES, json_option, lead_nowhere, output_console, way_on
from labctl.cli.root import Invocation
from labctl.config.lab import LabFile
from labctl.config.recipe import find_recipe
from labctl.config.recipe_parts import is_evaluation
from labctl.config.yaml.document import Document
from labctl.errors import printable_line
from labctl.runs.record.directory import RunDirectory
from labctl.units import counted, duration

if TYPE_CHECKING:
    from labctl.evaluation.recipe import EvaluationRecipe
    from labctl.evaluation.run import EvaluationOutcome


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
    from labctl.cli.lab import connect_board
    from labctl.cli.progress import ProgressView
    from labctl.cli.run_view import RunView

    lab = lab_or_own(invocation)
    settings = (*set_values, *([f"dataset.limit={limit}"] if limit else []))
    wanted = read_evaluation(recipe, lab.root, settings)
    if dry_run:
        show_plan(wanted, lab, as_json=as_json)
        return 0
    from labctl.evaluation.run import EvaluationRequest, run_evaluation
    from labctl.runs.observer import Observer

    with ProgressView() as view:
        request = EvaluationRequest(wanted, lab, connect_board)
        outcome = run_evaluation(request, Observer(RunView(view).show))
    return tell_outcome(outcome, as_json=as_json)


def read_evaluation(name: str, root: Path, settings: Iterable[str]) -> "EvaluationRecipe":
    """Read an evaluation recipe given by path or name. Raises ConfigError."""
    from labctl.evaluation.recipe import load_evaluation

    return load_evaluation(find_recipe(name, root), tuple(settings), lab_root=root)


def names_evaluation(name: str, root: Path) -> bool:
    """Return True if a name is that of an evaluation recipe. Raises ConfigError."""
    return is_evaluation(Document.read(find_recipe(name, root)))


def show_plan(recipe: "EvaluationRecipe", lab: LabFile, *, as_json: bool) -> None:
    """Print the plan of an evaluation, with its time if known."""
    from labctl.evaluation.preview import preview

    seen = preview(recipe, lab)
    if as_json:
        click.echo(json.dumps(seen.document(), indent=2))
        return
    from labctl.report.details import print_lines, print_table

    console = output_console()
    console.print(f"[bold]{recipe.name}[/]: {counted(seen.questions, 'question')}", highlight=False)
    headings = ("variant", ">generations", "limits", "answers within smaller limits")
    rows = [(row.variant, str(row.generations), row.limits, row.smaller) for row in seen.rows]
    print_table(console, headings, rows)
    lines = [f"{counted(seen.generations, 'generation')} in all"]
    if seen.checks:
        lines.append(f"and up to {seen.checks} more to check truncated answers against real limits")
    if seen.seconds is not None:
        lines.append(f"at most {duration(seen.seconds * 1e9)}, {seen.seconds_from}")
    print_lines(console, lines)


def check_format(result_format: str, output: Path | None) -> bool:
    """Return True if an evaluation is printed as JSON; else it is printed as a table.

    Raises UsageError.
    """
    if result_format not in (*TABLES, "json") or output is not None:
        raise click.UsageError(
            "an evaluation is printed as a table or with --json; `labctl report` writes .html,"
            " .md, .pdf, .svg or .png, `labctl export` its answers"
        )
    return result_format == "json"


def tell_outcome(outcome: "EvaluationOutcome", *, as_json: bool) -> int:
    """Print the result of an evaluation; return its exit status, even if nobody reads."""
    try:
        with way_on(f"the evaluation has finished: labctl report {outcome.directory.id}"):
            show_evaluation(outcome.directory.run, as_json=as_json)
            if not as_json:
                click.echo(f"run directory: {outcome.directory.path}")
            sys.stdout.flush()
    except BrokenPipeError:
        lead_nowhere(sys.stdout.fileno())
    return outcome.exit_status


def show_evaluation(run: RunDirectory, *, as_json: bool, wide: bool = False) -> None:
    """Print the accuracies of an evaluation, and its end. Raises ConfigError."""
    from labctl.evaluation.directory import EvaluationDirectory
    from labctl.evaluation.results import document, table_of
    from labctl.report.accuracy_table import gate_lines, print_accuracies
    from labctl.report.details import plain, print_lines

    directory = EvaluationDirectory(run)
    record, end, table = directory.record(), directory.end(), table_of(directory)
    if as_json:
        click.echo(json.dumps(document(record, end, table), indent=2))
        return
    console = output_console()
    print_accuracies(console, record, table, end, wide=wide)
    if end is None:
        run_id = run.path.resolve().name
        lines = [f"[yellow]not ended, or its controller died: `labctl watch {run_id}`[/]"]
    else:
        lines = list(gate_lines(end))
        if end.failure is not None:
            why = plain(end.failure.message)
            lines.append(f"[red]ended early[/] ({end.failure.blame}): {why}")
        elif end.state == "interrupted":
            lines.append("[yellow]interrupted[/]")
    print_lines(console, lines)


def facts_of_evaluation(run: RunDirectory, *, as_json: bool) -> None:
    """Print the record of an evaluation, one line for each fact."""
    record = run.evaluation().model_dump(mode="json", exclude_none=True)
    print_facts(run, "evaluation", record, as_json=as_json)


def print_facts(run: RunDirectory, kind: str, record: dict[str, object], *, as_json: bool) -> None:
    """Print a record, a line for each fact; ``kind`` is the name of its file."""
    if as_json:
        from labctl.report.facts import record_document

        click.echo(json.dumps(record_document(run, kind, record), indent=2))
        return
    click.echo(printable_line(str(run.path)))
    click.echo(f"{kind}.json")
    for name, value in _flat("", record):
        click.echo(printable_line(f"  {name}: {value}"))


def _flat(name: str, value: object) -> Iterable[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}" if name else key, inner)
    elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
        for number, inner in enumerate(value):
            yield from _flat(f"{name}[{number}]", inner)
    elif isinstance(value, list):
        yield name, _shortened(value)
    else:
        yield name, str(value)


def _shortened(values: Sequence[object]) -> str:
    shown = ", ".join(map(str, values[:10]))
    return f"{shown} … ({len(values)} in all)" if len(values) > 10 else shown
