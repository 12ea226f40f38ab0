"""``labctl deploy``."""

import json
from collections.abc import Callable, Sequence

import click

from labctl.cli.complete import RECIPE
from labctl.cli.deploy_view import BoardsView, preview_lines, result_text
from labctl.cli.lab import connect_board, lab_of
from labctl.cli.options import RATE, choose_boards, several_boards
from labctl.cli.output import confirm, json_option
from labctl.cli.progress import ProgressView
from labctl.cli.root import Invocation
from labctl.config.lab import Board, LabFile
from labctl.config.recipe import find_recipe
from labctl.deploy.send import Pace
from labctl.errors import ConfigError, ExitStatus, printable_line
from labctl.runs.deploy import BoardTask, Fleet
from labctl.runs.inputs.deploy_inputs import Wanted, nothing_to_deploy
from labctl.runs.inputs.prepare import find_files, read_recipe
from labctl.units import counted, size

#: Ask the user before sending more bytes than this.
ASK_BYTES = 1_000_000_000


@click.command(
    epilog="Examples: labctl deploy --board rk1 recipes/q8_latency.yaml; labctl deploy --all --plan"
)
@several_boards
@click.option(
    "--set",
    "set_values",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a key of the named recipes; repeatable.",
)
@click.option(
    "--plan",
    "only_plan",
    is_flag=True,
    help="Show the files to send and the time needed; send nothing.",
)
@click.option("--limit-rate", type=RATE, help="Transfer limit for all boards together, e.g. 5MB/s.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option("Print the result as JSON.")
@click.argument("recipes", nargs=-1, shell_complete=RECIPE)
@click.pass_obj
def deploy(
    invocation: Invocation,
    *,
    recipes: tuple[str, ...],
    boards: tuple[str, ...],
    tags: tuple[str, ...],
    every: bool,
    set_values: tuple[str, ...],
    only_plan: bool,
    limit_rate: int | None,
    no_wait: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Send tools and models to boards.

    Sends what the RECIPES need; without any, what all recipes of the lab for the board's target
    need. Checks the boards first, then downloads and quantizes. Lists missing files, too little
    space and all other problems, and asks for confirmation above 1 GB or if a model does not fit in
    memory. Sends only files that a board does not have, and verifies the hash of each chunk on the
    board. Never builds. An interrupted deploy continues where it stopped. Waits while a run, a
    probe or another deploy uses a board.
    """
    if set_values and not recipes:
        raise click.UsageError("--set changes the recipes that are named; name one")
    lab = lab_of(invocation)
    chosen = choose_boards(lab, boards, tags, every=every)
    with ProgressView() as view:
        pace = None if limit_rate is None else Pace(limit_rate, len(chosen))
        shown = BoardsView(view, len(chosen))
        wanted = _wanted(lab, chosen, recipes, set_values, shown)
        # With `--plan` the plan is the result; else it is a message before the result.
        tell = click.echo if only_plan and not as_json else view.say
        tasks = [
            BoardTask(board, found)
            if isinstance(found := wanted[board.target], Wanted)
            else BoardTask(board, Wanted(board.target, {}), error=found)
            for board in chosen
        ]
        limit = None if limit_rate is None else limit_rate / len(chosen)
        fleet = Fleet(
            tasks,
            lab,
            connect_board,
            shown,
            pace,
            wait=not no_wait,
            limit_bytes_per_second=limit,
        )
        _serve(fleet, view, shown, tell=tell, only_plan=only_plan, yes=yes)
    if as_json:
        click.echo(json.dumps([task.document() for task in tasks], indent=2))
    elif not only_plan:
        for task in tasks:
            click.echo(printable_line(result_text(task)))
    return max((task.error.exit_status for task in tasks if task.error), default=ExitStatus.OK)


def _serve(
    fleet: Fleet,
    view: ProgressView,
    shown: BoardsView,
    *,
    tell: Callable[[str], None],
    only_plan: bool,
    yes: bool,
) -> None:
    """Find missing files, ask, fetch and send them. Raises the error of a single board."""
    for task in fleet.tasks:
        if task.error is not None:
            shown.ended(task)
    while fleet.find_free():
        yes = _serve_free(fleet, view, shown, tell=tell, only_plan=only_plan, yes=yes)
    shown.end()
    if len(fleet.tasks) == 1 and fleet.tasks[0].error is not None:
        raise fleet.tasks[0].error


def _serve_free(
    fleet: Fleet,
    view: ProgressView,
    shown: BoardsView,
    *,
    tell: Callable[[str], None],
    only_plan: bool,
    yes: bool,
) -> bool:
    """Serve the free boards. Return True if later boards need no confirmation."""
    if not fleet.is_whole:
        # Report all known problems before downloading gigabytes to this host.
        for task in fleet.alive:
            if task.preview is not None and task.preview.problems:
                for line in preview_lines(task.preview):
                    tell(line)
        fleet.refuse_impossible()
        if not only_plan:
            yes = _agree(fleet, view, yes=yes)
            fleet.bring_agents()
        fleet.fetch()
        fleet.look_again()
    shown.end_step()
    if only_plan:
        view.bars.stop()
    for task in fleet.alive:
        if task.preview is not None:
            for line in preview_lines(task.preview):
                tell(line)
    fleet.refuse_impossible()
    if only_plan:
        fleet.leave()
    else:
        yes = _agree(fleet, view, yes=yes)
        fleet.deliver()
    return yes


def _agree(fleet: Fleet, view: ProgressView, *, yes: bool) -> bool:
    """Ask the user to confirm large transfers and bad fits.

    Returns True if no confirmation is needed later. Raises ConfigError if nobody can be asked.
    """
    previews = [task.preview for task in fleet.alive if task.preview and task.preview.plan.missing]
    total = sum(preview.plan.bytes_to_send for preview in previews)
    warnings = [warning for preview in previews for warning in preview.warnings]
    if yes or not (warnings or total > ASK_BYTES):
        return yes
    what = f"{size(total)} to send"
    if warnings:
        what = f"{counted(len(warnings), 'variant')} may not fit in memory, {what}"
    view.bars.stop()
    confirm(what, warnings)
    view.bars.start()
    return True


def _wanted(
    lab: LabFile,
    boards: Sequence[Board],
    recipes: Sequence[str],
    set_values: tuple[str, ...],
    shown: BoardsView,
) -> dict[str, Wanted | ConfigError]:
    """Return for each target the needs of its boards, or the error of its recipes.

    Raises the ConfigError if there is only one target.
    """
    firsts = {board.target: board for board in reversed(boards)}
    named = {
        name: read_recipe(find_recipe(name, lab.root), set_values, lab_root=lab.root)
        for name in recipes
    }
    found: dict[str, Wanted | ConfigError] = {}
    for target, board in firsts.items():
        try:
            if named:
                files = {
                    name: find_files(recipe, board, lab.root) for name, recipe in named.items()
                }
                found[target] = Wanted(target, files)
            else:
                found[target] = _all(lab, board, shown)
        except ConfigError as error:
            if len(firsts) == 1:
                raise
            found[target] = error
    return found


def _all(lab: LabFile, board: Board, shown: BoardsView) -> Wanted:
    """Return the needs of the lab's recipes for a target; report and skip unusable recipes."""

    def left_out(path: str, error: ConfigError) -> None:
        place = "" if error.message.startswith(path) else f"{path}: "
        shown.note(f"left out: {place}{error.message}")

    files = {}
    for path in sorted((lab.root / "recipes").glob("*.yaml")):
        try:
            recipe = read_recipe(path, lab_root=lab.root)
            if recipe.target == board.target:
                files[str(path)] = find_files(recipe, board, lab.root)
        except ConfigError as error:
            left_out(str(path), error)
    if not files:
        raise nothing_to_deploy(board.target)
    return Wanted(board.target, files, left_out)
