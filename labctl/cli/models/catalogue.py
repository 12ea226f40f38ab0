"""``labctl models list``, ``remove`` and ``unlock``: models.yaml and its lock file."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict

import click

from labctl.cli.complete import MODEL
from labctl.cli.lab import lab_of, lab_or_own
from labctl.cli.output import confirm, json_option, note
from labctl.cli.root import Invocation
from labctl.config.lab import LabFile
from labctl.config.models import CATALOGUE_FILE, ModelSource, load_catalogue
from labctl.config.recipe import Recipe
from labctl.errors import ConfigError, printable_line
from labctl.models.catalogue import remove_models
from labctl.models.lock import LOCK_FILE, ModelsLock, ModelState, reference, state_of
from labctl.suggestions import unknown
from labctl.units import size


@click.command("list", epilog="Example: labctl models list hf:bartowski/X-GGUF")
@json_option("Print the list as JSON.")
@click.argument("repository", required=False)
@click.pass_obj
def list_models(invocation: Invocation, *, repository: str | None, as_json: bool) -> None:
    """List the lab's models, or those of a hub's repository.

    Shows which of the lab's models are on this host, and their size. With REPOSITORY, such as
    hf:OWNER/NAME, ms:OWNER/NAME or the address of its page, shows the GGUF files in it.
    """
    if repository is not None:
        _list_repository(repository, as_json=as_json)
        return
    lab = lab_of(invocation)
    known = load_catalogue(lab.root).models
    states = [state_of(name, known, lab.root) for name in known]
    if as_json:
        click.echo(json.dumps([state.document() for state in states], indent=2))
        return
    for state in states:
        click.echo(
            f"{state.name:24} {_status(state):12} "
            f"{size(state.locked.size_bytes) if state.locked else '-':>8}  "
            f"{printable_line(state.reference or reference(state.source))}"
        )
    if not states:
        note("no models yet: labctl models add NAME SOURCE")


def _list_repository(text: str, *, as_json: bool) -> None:
    from labctl.models.references import list_repository

    files = list_repository(text)
    if as_json:
        click.echo(json.dumps([asdict(file) for file in files], indent=2))
        return
    for file in files:
        parts = f"  first of {file.parts} parts" if file.parts > 1 else ""
        click.echo(f"{size(file.size_bytes):>8}  {printable_line(file.path)}{parts}")
    if not files:
        note(f"no model in GGUF in {text}")


@click.command(epilog="Example: labctl models unlock llama-q4")
@click.argument("names", nargs=-1, required=True, shell_complete=MODEL)
@click.pass_obj
def unlock(invocation: Invocation, names: tuple[str, ...]) -> None:
    """Remove the recorded SHA-256 of models.

    The next fetch records a new one. NAMES are models of the lab, or sources as written in
    models.lock.yaml; without a lab, it is the lock file of `labctl bench`.
    """
    lab = lab_or_own(invocation)
    known = load_catalogue(lab.root).models
    lock = ModelsLock(lab.root)
    for name in names:
        state = state_of(name, known, lab.root) if name in known else None
        entry = name if state is None else state.reference
        if entry is None or not lock.drop([entry]):
            raise ConfigError(
                f"{lock.path} has no entry for {name!r}", hint="copy the name from that file"
            )
        click.echo(f"removed {entry} from {lock.path.name}")


@click.command(epilog="Example: labctl models remove llama-q4")
@click.argument("names", nargs=-1, required=True, shell_complete=MODEL, metavar="MODEL...")
@click.option("--yes", is_flag=True, help="Do not ask about models that recipes use.")
@click.pass_obj
def remove(invocation: Invocation, names: tuple[str, ...], *, yes: bool) -> None:
    """Remove models from the lab's models.yaml.

    Also removes their recorded SHA-256. Deletes no model file: prints where each stays.
    """
    lab = lab_of(invocation)
    known = load_catalogue(lab.root).models
    states = {name: state_of(known_name(lab, name), known, lab.root) for name in names}
    recipes, unread = _recipes(lab)
    if not yes and (users := _users(recipes, names)):
        confirm(f"{' and '.join(states)}: used by {', '.join(users)}")
    remove_models(lab.root, states.keys())
    left = {name: source for name, source in known.items() if name not in states}
    if unread:
        note(f"{LOCK_FILE} keeps their SHA-256: these recipes cannot be read: {', '.join(unread)}")
    else:
        _forget(lab, states.values(), [left, *(recipe.models for recipe in recipes.values())])
    for name, state in states.items():
        stays = "" if state.path is None else f"; its file stays: {printable_line(str(state.path))}"
        click.echo(f"removed {name} from {lab.root / CATALOGUE_FILE}{stays}")


def _forget(
    lab: LabFile, states: Iterable[ModelState], used: Iterable[Mapping[str, ModelSource]]
) -> None:
    """Remove the models' entries from the lock file, except those that ``used`` models need."""
    kept = {state_of(name, group, lab.root).reference for group in used for name in group}
    references = {state.reference for state in states} - kept
    ModelsLock(lab.root).drop(reference for reference in references if reference is not None)


def _recipes(lab: LabFile) -> tuple[dict[str, Recipe], list[str]]:
    """Return the lab's recipes by path, and the paths of invalid ones."""
    from labctl.runs.inputs.prepare import read_recipe

    recipes, unread = {}, []
    for path in sorted((lab.root / "recipes").glob("*.yaml")):
        shown = str(path.relative_to(lab.root))
        try:
            recipes[shown] = read_recipe(path, lab_root=lab.root)
        except ConfigError:
            unread.append(shown)
    return recipes, unread


def _users(recipes: Mapping[str, Recipe], names: Collection[str]) -> list[str]:
    """Return the recipes that use one of the models."""
    return [
        path
        for path, recipe in recipes.items()
        if any(source.lab in names for source in recipe.models.values())
    ]


def known_name(lab: LabFile, name: str) -> str:
    """Return ``name``. Raises ConfigError when models.yaml does not have it."""
    known = load_catalogue(lab.root).models
    if name not in known:
        raise ConfigError(unknown("model", name, known, where=" in models.yaml"))
    return name


def _status(state: ModelState) -> str:
    if state.path is None:
        return "not here"
    return "here" if state.locked else "not locked"
