"""``labctl models show``."""

import json
from pathlib import Path

import click

from labctl.cli.complete import MODEL_FILE
from labctl.cli.lab import lab_of
from labctl.cli.models.catalogue import known_name
from labctl.cli.output import json_option
from labctl.cli.root import Invocation
from labctl.config.models import load_catalogue
from labctl.errors import ConfigError, printable_line
from labctl.gguf.inspect import GgufInfo, inspect
from labctl.models.lock import state_of
from labctl.units import size


@click.command(epilog="Example: labctl models show models/llama-8b-q8_0.gguf")
@click.argument("model", shell_complete=MODEL_FILE)
@json_option("Print it as JSON.")
@click.pass_obj
def show(invocation: Invocation, model: str, *, as_json: bool) -> None:
    """Show the contents of a GGUF file.

    MODEL is a model of the lab, or the path of a file.
    """
    path = Path(model)
    if not (model.endswith(".gguf") or path.is_file()):
        lab = lab_of(invocation)
        state = state_of(known_name(lab, model), load_catalogue(lab.root).models, lab.root)
        if state.path is None:
            raise ConfigError(
                f"the model {model!r} is not on this host", hint=f"labctl models fetch {model}"
            )
        path = state.path
    info = inspect(path)
    if as_json:
        click.echo(json.dumps(info.document(), indent=2))
        return
    for label, value in _rows(info):
        click.echo(printable_line(f"{label:18} {value}"))


def _rows(info: GgufInfo) -> list[tuple[str, str]]:
    per_weight = info.tensor_bytes * 8 / info.parameters
    tensors = ", ".join(f"{m.type} {m.count} ({size(m.bytes)})" for m in info.tensors)
    return [
        ("file", ", ".join(printable_line(str(part)) for part in info.parts)),
        ("size", size(info.size_bytes)),
        ("name", info.name or "-"),
        ("architecture", info.architecture),
        ("parameters", f"{info.parameters / 1e6:,.1f} million"),
        ("quantization", f"{info.quantization}, {per_weight:.2f} bits/weight"),
        ("tensors", tensors),
        ("context", f"{info.context_length or '-'} positions"),
        ("KV cache", f"{size(info.kv_bytes_per_position)} a position in f16"),
        ("read per token", f"{size(info.bytes_per_token)} of weights"),
        ("tokenizer", f"{info.tokenizer or '-'}, {info.vocabulary or '-'} tokens"),
        ("GGUF version", str(info.version)),
    ]
