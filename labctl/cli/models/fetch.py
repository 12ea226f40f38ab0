"""``labctl models fetch`` and ``labctl models verify``: the files on this host."""

from collections.abc import Mapping

import click

from labctl.cli.complete import MODEL, RECIPE
from labctl.cli.lab import lab_of
from labctl.cli.models.catalogue import known_name
from labctl.cli.progress import ProgressView, Steps
from labctl.cli.root import Invocation
from labctl.config.lab import LabFile
from labctl.config.models import ModelSource, load_catalogue
from labctl.config.recipe import find_recipe
from labctl.errors import ConfigError, ExitStatus, printable_line
from labctl.models.cache import ModelFile
from labctl.models.lock import LOCK_FILE, state_of
from labctl.models.quantizer import find_quantizer
from labctl.models.resolve import resolve
from labctl.runs.inputs.prepare import read_recipe
from labctl.units import size


@click.command(epilog="Example: labctl models fetch --recipe recipes/q8_latency.yaml")
@click.argument("names", nargs=-1, shell_complete=MODEL)
@click.option("--recipe", shell_complete=RECIPE, help="Fetch the models that a recipe measures.")
@click.pass_obj
def fetch(invocation: Invocation, names: tuple[str, ...], recipe: str | None) -> None:
    """Download or make models on this host.

    NAMES are models of the lab; default: all models of the recipe, or of the lab.
    """
    lab = lab_of(invocation)
    if recipe is not None:
        read = read_recipe(find_recipe(recipe, lab.root), lab_root=lab.root)
        fetch_models(lab, read.models, names or tuple(read.measured_models()), target=read.target)
        return
    known = load_catalogue(lab.root).models
    fetch_models(lab, known, tuple(known_name(lab, name) for name in names) or tuple(known))


@click.command(epilog="Example: labctl models verify")
@click.argument("names", nargs=-1, shell_complete=MODEL)
@click.pass_obj
def verify(invocation: Invocation, names: tuple[str, ...]) -> int:
    """Hash model files again.

    Compares them with models.lock.yaml. Exit status 2 if one differs. Lists models missing on
    this host.
    """
    lab = lab_of(invocation)
    known = load_catalogue(lab.root).models
    changed = 0
    for name in names or known:
        state = state_of(known_name(lab, name), known, lab.root)
        result = "good" if state.locked else "not locked yet, nothing to compare with"
        if state.path is None:
            result = "not on this host"
        else:
            with ProgressView() as view:
                shown = Steps(view)
                try:
                    state.verify(shown.step)
                except ConfigError as error:
                    changed += 1
                    shown.end()
                    view.say_error(f"{name}: {error.message}")
                    view.say_error(f"  {error.hint}")
                    result = f"differs from {LOCK_FILE}"
                shown.end()
        click.echo(f"{name}: {result}")
    return ExitStatus.CONFIG if changed else ExitStatus.OK


def fetch_models(
    lab: LabFile,
    sources: Mapping[str, ModelSource],
    names: tuple[str, ...],
    *,
    target: str | None = None,
) -> None:
    """Fetch models with a progress display and print a line for each.

    ``target``: machine type whose llama-quantize makes derived models if this host has none;
    default: that of the lab's boards.
    """
    quantizes_for = target or lab.lab.only_target
    with ProgressView() as view:
        shown = Steps(view)
        found = resolve(
            sources,
            names,
            root=lab.root,
            find_quantizer=lambda: find_quantizer(quantizes_for, lab.root),
            progress=shown.step,
        )
        shown.end()
    for name, model in found.items():
        click.echo(_summary(name, model))


def _summary(name: str, model: ModelFile) -> str:
    found = model.identity
    return (
        f"{name}: {found.quantization}, {size(found.size_bytes)},"
        f" sha256 {found.sha256[:12]}…  {printable_line(str(model.path))}"
    )
