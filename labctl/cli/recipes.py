"""``labctl recipes``: recipes and their needs."""

import json
from pathlib import Path

import click
from rich.table import Table

from labctl import package_data
from labctl.cli.complete import RECIPE, TARGET
from labctl.cli.lab import lab_or_own
from labctl.cli.output import json_option, note, output_console, write_result
from labctl.cli.root import Invocation
from labctl.config.init_files import recipe_copy
from labctl.config.recipe import Recipe, find_recipe, known_recipes
from labctl.config.target import load_target
from labctl.config.yaml.document import read_text
from labctl.errors import ConfigError
from labctl.evaluation.any_recipe import AnyRecipe, needs_of, read_any, recipe_document
from labctl.files import host_reads, write_atomic
from labctl.report.console import plain, print_fitting
from labctl.runs.inputs.needs import Need

#: Kind of recipe -> text in place of an engine.
_INSTEAD = {"evaluation": "none: an evaluation", "load-test": "none: a load test"}


@click.group(epilog="Example: labctl recipes copy q8_latency recipes/mine.yaml")
def recipes() -> None:
    """List, show and copy recipes.

    The recipes are those in the lab's folder recipes/, and those shipped with labctl.
    """


@recipes.command("list", epilog="Example: labctl recipes list")
@json_option("Print the list as JSON.")
@click.pass_obj
def list_command(invocation: Invocation, *, as_json: bool) -> None:
    """List recipes and their missing needs.

    "build" and "missing" name what must exist before a run; a run itself fetches and makes models.
    """
    lab = lab_or_own(invocation)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("recipe", "of", "target", "engine", "needs"):
        table.add_column(heading)
    documents = []
    for name, path in sorted(known_recipes(lab.root).items()):
        origin = "labctl" if path.is_relative_to(package_data.RECIPES) else "lab"
        try:
            recipe, needs = _read(path, lab.root)
        except ConfigError as error:
            note(f"left out: {error.message}")
            continue
        documents.append(recipe_document(name, path, recipe, needs))
        if isinstance(recipe, Recipe):
            kind = (recipe.target, _engine(recipe))
        else:
            kind = ("-", _INSTEAD[recipe.kind])
        cells = (name, origin, *kind, _short(needs))
        table.add_row(*map(plain, cells))
    if as_json:
        click.echo(json.dumps(documents, indent=2))
    else:
        print_fitting(output_console(), table)


@recipes.command(epilog="Example: labctl recipes show q8_latency")
@json_option("Print what it needs as JSON.")
@click.argument("recipe", shell_complete=RECIPE)
@click.pass_obj
def show(invocation: Invocation, recipe: str, *, as_json: bool) -> None:
    """Print a recipe, with its needs as comments before it.

    RECIPE is a file, or the name of a recipe of the lab or of labctl.
    """
    lab = lab_or_own(invocation)
    path = find_recipe(recipe, lab.root)
    read, needs = _read(path, lab.root)
    if as_json:
        click.echo(json.dumps(recipe_document(path.stem, path, read, needs), indent=2))
        return
    click.echo(f"# {path}")
    for need in needs:
        click.echo(f"# needs {need}")
    write_result(read_text(path), None)


@recipes.command(epilog="Example: labctl recipes copy q8_latency recipes/mine.yaml --target rk3588")
@click.option("--target", shell_complete=TARGET, help="Machine type for the copy.")
@click.argument("recipe", shell_complete=RECIPE)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.pass_obj
def copy(invocation: Invocation, recipe: str, file: Path | None, target: str | None) -> None:
    """Copy a recipe to change it.

    FILE defaults to recipes/NAME.yaml in the lab, which takes precedence over labctl's recipe of
    that name; without a lab, to NAME.yaml here. Never overwrites a file.
    """
    lab = lab_or_own(invocation)
    path = find_recipe(recipe, lab.root)
    if target is not None:
        load_target(target, lab.root)
    folder = lab.root if lab.path.is_file() else Path()
    place = file or folder / "recipes" / path.name
    inside = place.relative_to(lab.root) if place.is_relative_to(lab.root) else place
    text = recipe_copy(path, inside, target)
    with host_reads(place):
        if place.exists() or place.is_symlink():
            raise ConfigError(f"{place} exists already", hint="name another file")
    write_atomic(place, text)
    click.echo(f"wrote {place}")


def _read(path: Path, lab_root: Path) -> tuple[AnyRecipe, list[Need]]:
    recipe = read_any(path, lab_root=lab_root)
    return recipe, needs_of(recipe, lab_root)


def _engine(recipe: Recipe) -> str:
    task = recipe.engine.task
    return f"{recipe.engine.name}, {task}" if task else recipe.engine.name


def _short(needs: list[Need]) -> str:
    """Name the needs that the user must meet, or else the needs that a run meets itself."""
    absent = [need for need in needs if not need.here]
    asked = [_word(need) for need in absent if not need.automatic]
    if asked:
        return "; ".join(asked)
    return "; ".join(f"fetch {need.name}" for need in absent) if absent else "nothing"


def _word(need: Need) -> str:
    verb = "build" if (need.action or "").startswith("labctl build") else "missing:"
    return f"{verb} {need.name}"
