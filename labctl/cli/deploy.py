"""``labctl deploy``."""

import json

import click

from labctl.cli.lab import connect_board, lab_of
from labctl.cli.progress import ProgressView
from labctl.cli.root import Invocation
from labctl.cli.run import RunView
from labctl.config.lab import Board, LabFile
from labctl.config.recipe import find_recipe
from labctl.deploy import DeployPlan, Object
from labctl.errors import ConfigError
from labctl.runs import Prepared, deploy_recipes, prepare, read_recipe
from labctl.units import size

#: Above this many bytes the user is asked.
ASK_BYTES = 1_000_000_000


@click.command(epilog="Example: labctl deploy --board rk1 recipes/q8_latency.yaml")
@click.option("--board", help="The board to serve; default: the lab's default board.")
@click.option(
    "--set",
    "set_values",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a key of the recipes named; may be given several times.",
)
@click.option("--yes", is_flag=True, help="Do not ask, however much has to be sent.")
@click.option("--json", "as_json", is_flag=True, help="Print what was wanted and sent as JSON.")
@click.argument(
    "recipes",
    nargs=-1,
)
@click.pass_obj
def deploy(
    invocation: Invocation,
    *,
    recipes: tuple[str, ...],
    board: str | None,
    set_values: tuple[str, ...],
    yes: bool,
    as_json: bool,
) -> None:
    """Bring tools and models to a board.

    For the RECIPES named; without any, for all of the lab's recipes for the board's target. Prints
    its plan, asks above 1 GB, sends what the board does not have, and proves each file by its hash
    on the board. Nothing is built, nothing is sent twice.
    """
    if set_values and not recipes:
        raise click.UsageError("--set changes the recipes that are named; name one")
    lab = lab_of(invocation)
    chosen = lab.board(board)
    with ProgressView() as view, connect_board(chosen) as transport:
        shown = RunView(view)
        if recipes:
            read = [
                read_recipe(find_recipe(name, lab.root), set_values, lab_root=lab.root)
                for name in recipes
            ]
            prepared = [prepare(recipe, chosen, lab.root, shown.step) for recipe in read]
        else:
            prepared = _all(lab, chosen, shown)

        def agree(plan: DeployPlan) -> None:
            shown.note(_plan_text(plan, chosen))
            if plan.bytes > ASK_BYTES and not yes:
                view.bars.stop()
                click.confirm(f"Send {size(plan.bytes)} to {chosen.name}?", abort=True, err=True)
                view.bars.start()

        plan = deploy_recipes(
            prepared,
            chosen,
            transport,
            lab_root=lab.root,
            agree=agree,
            observer=shown,
        )
        shown.end_step()
    if as_json:
        click.echo(json.dumps(_plan_json(plan, chosen), indent=2))
    else:
        click.echo(
            f"{chosen.name} has all {len(plan.objects)} files; {len(plan.missing)} were sent"
        )


def _all(lab: LabFile, board: Board, shown: RunView) -> list[Prepared]:
    """The lab's recipes for a target; what cannot be had is told and left out."""
    prepared = []
    for path in sorted((lab.root / "recipes").glob("*.yaml")):
        recipe = read_recipe(path, lab_root=lab.root)
        if recipe.target != board.target:
            continue
        try:
            prepared.append(prepare(recipe, board, lab.root, shown.step))
        except ConfigError as error:
            shown.note(f"left out {path}: {error.message}")
    if not prepared:
        raise ConfigError(
            f"nothing to deploy: no usable recipe for target {board.target} in {lab.root}/recipes",
            hint="name a recipe, or write one: `labctl init`",
        )
    return prepared


def _plan_text(plan: DeployPlan, board: Board) -> str:
    if not plan.missing:
        return f"{board.name} lacks nothing"
    lines = [f"{board.name} lacks {len(plan.missing)} files, {size(plan.bytes)}:"]
    lines += [f"  {item.name}  {size(item.size_bytes)}" for item in plan.missing]
    return "\n".join(lines)


def _plan_json(plan: DeployPlan, board: Board) -> dict[str, object]:
    return {"board": board.name, "wanted": _listed(plan.objects), "sent": _listed(plan.missing)}


def _listed(objects: tuple[Object, ...]) -> list[dict[str, object]]:
    return [
        {"name": item.name, "sha256": item.sha256, "size_bytes": item.size_bytes}
        for item in objects
    ]
