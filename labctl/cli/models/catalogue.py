"""``labctl models list``, ``remove`` and ``unlock``: models.yaml and its lock file."""

import json
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict

import click

from labctl.cli.complete import MODEL
from labctl.cli.lab import lab_of
from labctl.cli.output import confirm, json_option, note
from labctl.cli.root import Invocation
from labctl.config.lab import LabFile
from labctl.config.models import CATALOGUE_FILE, load_catalogue
from labctl.config.names import unknown
from labctl.errors import ConfigError, printable_line
from labctl.models.catalogue import remove_models
from labctl.models.lock import ModelsLock, reference
from labctl.models.state import ModelState, state_of
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
            f"{state.name:24} {_standing(state):12} "
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
    models.lock.yaml.
    """
    lab = lab_of(invocation)
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

    Forgets their SHA-256 too. Deletes no model file: prints where each stays.
    """
    lab = lab_of(invocation)
    known = load_catalogue(lab.root).models
    states = {name: state_of(known_name(lab, name), known, lab.root) for name in names}
    if not yes and (users := _users(lab, names)):
        confirm(f"{' and '.join(states)}: used by {', '.join(users)}")
    remove_models(lab.root, states.keys())
    left = {state_of(name, known, lab.root).reference for name in known if name not in states}
    ModelsLock(lab.root).drop(
        state.reference
        for state in states.values()
        if state.reference is not None and state.reference not in left
    )
    for name, state in states.items():
        stays = "" if state.path is None else f"; its file stays: {printable_line(str(state.path))}"
        click.echo(f"removed {name} from {lab.root / CATALOGUE_FILE}{stays}")


def _users(lab: LabFile, names: Collection[str]) -> list[str]:
    """Return the lab's recipes that measure or need one of the models."""
    from labctl.runs import read_recipe

    users = []
    for path in sorted((lab.root / "recipes").glob("*.yaml")):
        with suppress(ConfigError):  # a recipe that cannot be read runs nothing
            recipe = read_recipe(path, lab_root=lab.root)
            if any(source.lab in names for source in recipe.models.values()):
                users.append(str(path.relative_to(lab.root)))
    return users


def known_name(lab: LabFile, name: str) -> str:
    """Return ``name``. Raises ConfigError when models.yaml does not have it."""
    known = load_catalogue(lab.root).models
    if name not in known:
        raise ConfigError(unknown("model", name, known, where=" in models.yaml"))
    return name


def _standing(state: ModelState) -> str:
    if state.path is None:
        return "not here"
    return "here" if state.locked else "not locked"
