"""``labctl deploy``."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import click

from labctl.board import PrunePolicy
from labctl.cli.deploy_housekeeping import Pins, prune_boards, verify_boards
from labctl.cli.deploy_view import BoardsView, offer_json, offer_text, result_text
from labctl.cli.lab import connect_board, lab_of
from labctl.cli.parameters import DURATION, RATE, SIZE
from labctl.cli.progress import ProgressView
from labctl.cli.root import Invocation
from labctl.cli.run import RunView
from labctl.config.lab import Board, LabFile
from labctl.config.recipe import find_recipe
from labctl.deploy import Pace
from labctl.errors import ConfigError, ExitStatus
from labctl.runs import Fleet, Prepared, Visit, prepare, read_recipe
from labctl.transport import Transport
from labctl.units import counted, size

#: Above this many bytes the user is asked.
ASK_BYTES = 1_000_000_000


@click.command(
    epilog="Examples: labctl deploy --board rk1 recipes/q8_latency.yaml;"
    " labctl deploy --all --plan; labctl deploy --prune --free 4GB --dry-run"
)
@click.option("--board", "boards", multiple=True, help="A board to serve; several times: several.")
@click.option("--tag", "tags", multiple=True, help="Serve all boards with this tag.")
@click.option("--all", "every", is_flag=True, help="Serve all boards of the lab.")
@click.option(
    "--set",
    "set_values",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a key of the recipes named; may be given several times.",
)
@click.option("--plan", "only_plan", is_flag=True, help="Say what would move and for how long.")
@click.option(
    "--verify", is_flag=True, help="Read every file on the boards again; remove damaged ones."
)
@click.option("--prune", is_flag=True, help="Remove what has not been used for long.")
@click.option("--older", type=DURATION, help="With --prune: unused for longer, e.g. 30d.")
@click.option("--free", type=SIZE, help="With --prune: until so much is free, e.g. 4GB.")
@click.option("--dry-run", is_flag=True, help="With --prune: only say what would go.")
@click.option("--pin", "pins", multiple=True, metavar="NAME", help="Never prune this file.")
@click.option("--unpin", "unpins", multiple=True, metavar="NAME", help="Undo --pin.")
@click.option("--limit-rate", type=RATE, help="For all boards together, e.g. 5MB/s.")
@click.option("--yes", is_flag=True, help="Do not ask, however much is sent or does not fit.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
@click.argument("recipes", nargs=-1)
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
    verify: bool,
    prune: bool,
    older: float | None,
    free: int | None,
    dry_run: bool,
    pins: tuple[str, ...],
    unpins: tuple[str, ...],
    limit_rate: int | None,
    yes: bool,
    as_json: bool,
) -> int:
    """Bring tools and models to boards.

    For the RECIPES named; without any, for all of the lab's recipes for the board's target. First
    says what is missing, what would not fit, and everything that stands in the way, then asks above
    1 GB or where a model does not fit in memory. Sends what the boards do not have, and proves
    each chunk by its hash on the board. Nothing is built, nothing is sent twice; a deploy that was
    interrupted goes on where it was.
    """
    prune = prune or bool(pins or unpins)
    _refuse_nonsense(
        {
            "--set changes the recipes that are named; name one": set_values and not recipes,
            "choose one of --plan, --verify, and --prune with its pins": only_plan + verify + prune
            > 1,
            "--older, --free and --dry-run belong to --prune": not prune
            and (older is not None or free is not None or dry_run),
        }
    )
    lab = lab_of(invocation)
    chosen = choose_boards(lab, boards, tags, every=every)
    with ProgressView() as view:
        if prune:
            policy = PrunePolicy(older, free)
            return prune_boards(
                lab, chosen, view, policy, Pins(pins, unpins), dry_run=dry_run, as_json=as_json
            )
        if verify:
            return verify_boards(lab, chosen, view, as_json=as_json)
        pace = None if limit_rate is None else Pace(limit_rate, len(chosen))
        prepared = _prepared(lab, chosen, recipes, set_values, RunView(view))
        # The plan is what `--plan` is asked for; else it is news on the way to the result.
        tell = click.echo if only_plan and not as_json else view.say
        visits = _deliver(
            lab, chosen, prepared, view, pace, tell=tell, only_plan=only_plan, yes=yes
        )
    if as_json:
        click.echo(json.dumps([offer_json(visit) for visit in visits], indent=2))
    elif not only_plan:
        for visit in visits:
            click.echo(result_text(visit))
    return max((visit.error.exit_status for visit in visits if visit.error), default=ExitStatus.OK)


def _deliver(
    lab: LabFile,
    boards: Sequence[Board],
    prepared: Mapping[str, list[Prepared] | ConfigError],
    view: ProgressView,
    pace: Pace | None,
    *,
    tell: Callable[[str], None],
    only_plan: bool,
    yes: bool,
) -> list[Visit]:
    """See what the boards lack, ask, and bring it. Raises what befell the only board."""
    with ExitStack() as links:
        visits = [
            _visit(board, links.enter_context(connect_board(board)), prepared[board.target])
            for board in boards
        ]
        shown = BoardsView(view, len(visits))
        for visit in visits:
            if visit.error is not None:
                shown.ended(visit)
        with Fleet(visits, lab.root, shown, pace) as fleet:
            fleet.meet()
            if only_plan:
                view.bars.stop()
            for visit in fleet.alive:
                if visit.offer is not None:
                    tell(offer_text(visit.offer))
            fleet.refuse_impossible()
            if not only_plan:
                _agree(fleet, view, yes=yes)
                fleet.deliver()
    shown.end()
    if len(visits) == 1 and visits[0].error is not None:
        raise visits[0].error
    return visits


def _visit(board: Board, link: Transport, prepared: list[Prepared] | ConfigError) -> Visit:
    if isinstance(prepared, ConfigError):
        return Visit(board, link, (), error=prepared)
    return Visit(board, link, prepared)


def _refuse_nonsense(wrong: Mapping[str, object]) -> None:
    """Raise UsageError with the first sentence that holds."""
    for sentence, holds in wrong.items():
        if holds:
            raise click.UsageError(sentence)


def choose_boards(
    lab: LabFile, names: Sequence[str], tags: Sequence[str], *, every: bool
) -> list[Board]:
    """The boards that options name; without any, the lab's default. Raises ConfigError."""
    known = lab.lab.boards
    if every:
        return list(known.values())
    for tag in tags:
        if not any(tag in board.tags for board in known.values()):
            raise ConfigError(f"no board in {lab.path} has the tag {tag}")
    named = [lab.board(name) for name in names]
    tagged = [board for board in known.values() if set(tags) & set(board.tags)]
    found = {board.name: board for board in (*named, *tagged)}
    return list(found.values()) or [lab.board(None)]


def _agree(fleet: Fleet, view: ProgressView, *, yes: bool) -> None:
    """Ask where it is much, or where something will not fit. Raises ConfigError: nobody to ask."""
    offers = [visit.offer for visit in fleet.alive if visit.offer and visit.offer.plan.missing]
    total = sum(offer.plan.bytes for offer in offers)
    unfit = sum(len(offer.warnings) for offer in offers)
    if yes or not (unfit or total > ASK_BYTES):
        return
    what = f"{size(total)} have to be sent"
    if unfit:
        what = f"{counted(unfit, 'variant')} may not fit in memory, {what}"
    if not sys.stdin.isatty():
        raise ConfigError(f"{what}, and there is no terminal to ask at", hint="say --yes to go on")
    view.bars.stop()
    click.confirm(f"{what}; go on?", abort=True, err=True)
    view.bars.start()


def _prepared(
    lab: LabFile,
    boards: Sequence[Board],
    recipes: Sequence[str],
    set_values: tuple[str, ...],
    shown: RunView,
) -> dict[str, list[Prepared] | ConfigError]:
    """What each target's boards need, found once for all of them; or why that cannot be had.

    Raises ConfigError where that is the only target.
    """
    firsts = {board.target: board for board in reversed(boards)}
    read: Callable[[Board], list[Prepared]]
    if recipes:
        wanted = [
            read_recipe(find_recipe(name, lab.root), set_values, lab_root=lab.root)
            for name in recipes
        ]

        def read(board: Board) -> list[Prepared]:
            return [prepare(recipe, board, lab.root, shown.step) for recipe in wanted]
    else:

        def read(board: Board) -> list[Prepared]:
            return _all(lab, board, shown)

    found: dict[str, list[Prepared] | ConfigError] = {}
    try:
        for target, board in firsts.items():
            try:
                found[target] = read(board)
            except ConfigError as error:
                if len(firsts) == 1:
                    raise
                found[target] = error
    finally:
        shown.end_step()
    return found


def _all(lab: LabFile, board: Board, shown: RunView) -> list[Prepared]:
    """The lab's recipes for a target; what cannot be had is told and left out."""
    prepared = []
    for path in sorted((lab.root / "recipes").glob("*.yaml")):
        try:
            recipe = read_recipe(path, lab_root=lab.root)
            if recipe.target == board.target:
                prepared.append(prepare(recipe, board, lab.root, shown.step))
        except ConfigError as error:
            shown.note(f"left out {path}: {error.message}")
    if not prepared:
        raise ConfigError(
            f"nothing to deploy: no usable recipe for target {board.target} in {lab.root}/recipes",
            hint="name a recipe, or write one: `labctl init`",
        )
    return prepared
