"""``labctl models list`` and ``labctl models unlock``: models.yaml and its lock file."""

import json
from dataclasses import asdict

import click

from labctl.cli.complete import MODEL
from labctl.cli.lab import lab_of
from labctl.cli.output import json_option, note
from labctl.cli.root import Invocation
from labctl.config.lab import LabFile
from labctl.config.models import load_catalogue
from labctl.config.names import unknown
from labctl.errors import ConfigError, printable_line
from labctl.models.lock import ModelsLock, reference
from labctl.models.references import list_repository
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
