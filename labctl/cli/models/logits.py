"""``labctl models logits``."""

import platform
from pathlib import Path

import click

from labctl.cli.complete import MODEL
from labctl.cli.lab import lab_of
from labctl.cli.output import note
from labctl.cli.progress import ProgressView, Steps
from labctl.cli.root import Invocation
from labctl.config.models import ModelSource, load_catalogue
from labctl.errors import ConfigError
from labctl.models.quantizer import find_host_tool, find_quantizer
from labctl.suggestions import unknown
from labctl.units import counted, size

_TOOL = "llama-perplexity"
_FACTS_SECONDS = 60.0
_EXAMPLE = "Example: labctl models logits llama --text texts/wiki.txt -o logits/llama.bin"


@click.command(epilog=_EXAMPLE)
@click.argument("model", shell_complete=MODEL)
@click.option(
    "--text",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The text, UTF-8.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Output file. FILE.json beside it names the model and the text.",
)
@click.option(
    "--context",
    type=click.IntRange(8, 1 << 24),
    default=512,
    show_default=True,
    help="Tokens of each chunk.",
)
@click.option("--chunks", type=click.IntRange(1), help="Maximum number of chunks; default: all.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Another parameter of the task perplexity, such as cache_type_k=q8_0; repeatable.",
)
@click.pass_obj
def logits(
    invocation: Invocation,
    *,
    model: str,
    text: Path,
    output: Path,
    context: int,
    chunks: int | None,
    settings: tuple[str, ...],
) -> None:
    """Write a model's logits over a text, on this host.

    The task kl_divergence of the engine llama_cpp compares other models with them. MODEL is one of
    the lab's models, or a GGUF file. With a vocabulary of 128,000 tokens and the default context, a
    chunk takes 65 MB.
    """
    from labctl.board.facts import probe
    from labctl.build.spec import find_spec
    from labctl.config.recipe import EngineChoice
    from labctl.config.set_values import set_values
    from labctl.engines.base import Inputs
    from labctl.engines.registry import make_engine
    from labctl.models.logits import write_logits
    from labctl.models.resolve import resolve
    from labctl.transport.local import LocalTransport

    lab = lab_of(invocation)
    known = load_catalogue(lab.root).models
    if model not in known:
        if not Path(model).is_file():
            raise ConfigError(
                unknown("model", model, known, where=" in models.yaml"),
                hint="or name a GGUF file",
            )
        known = {model: ModelSource(file=str(Path(model).resolve()), lock=False)}
    target = lab.lab.only_target
    engine = make_engine(EngineChoice(name="llama_cpp", task="perplexity"))
    limit = {} if chunks is None else {"chunks": chunks}
    values = set_values(settings)
    if taken := [name for name in ("context", "chunks") if name in values]:
        raise ConfigError(f"--set {taken[0]}=…: use the option --{taken[0]}")
    asked = engine.parameters({"context": context, **limit, **values})
    program = find_host_tool(_TOOL, target, lab.root)
    spec, _ = find_spec(target or f"host-{platform.machine()}", engine.product, lab.root)
    version = spec.versions.get(program.version or "")
    if version is None:
        raise ConfigError(
            unknown("version", program.version or "", spec.versions, where=f" in {spec.product}"),
            hint=f"build a known one: labctl build --product {spec.product} --tool {_TOOL}",
        )
    tool = engine.tool([_TOOL], offered=spec.tools_of(version))
    asked = engine.for_version(tool, asked)
    with ProgressView() as view:
        shown = Steps(view)
        found = resolve(
            known,
            [model],
            root=lab.root,
            find_quantizer=lambda: find_quantizer(target, lab.root),
            progress=shown.step,
        )
        files = {"text": str(text.absolute())}
        facts = probe(LocalTransport(), workdir=str(lab.root), timeout=_FACTS_SECONDS)
        resolved = engine.resolve_defaults(asked, facts, found[model].identity)
        asked, notes = resolved.parameters, resolved.notes
        path = str(found[model].path.absolute())
        inputs = Inputs(str(program.argv[-1]), path, files=files, cpus=facts.cpus_allowed)
        made = write_logits(
            found[model],
            text,
            output,
            command=[*map(str, program.argv[:-1]), *engine.command(tool, asked, inputs)],
            parameters=asked.model_dump(mode="json", exclude_none=True),
            program=program,
            progress=shown.step,
        )
        shown.end()
    for one in notes:
        note(f"note: {one}")
    chunk = f"{counted(made.chunks, 'chunk')} of {made.context} tokens"
    note(f"wrote {chunk}, {size(made.size_bytes)}, to {output}")
