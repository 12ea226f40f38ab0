"""The logits of a model over a text, for the KL divergence of other models from it.

llama-perplexity writes them with ``--kl-divergence-base`` (``perplexity`` in
``tools/perplexity/perplexity.cpp``): ``_logits_``, three 32-bit numbers (tokens per chunk, size of
the vocabulary, chunks), the tokens, and for the second half of each chunk the probabilities with 16
bits per token. The program does not report a full disk, so labctl checks the size.
"""

import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from labctl.config.yaml.document import read_text
from labctl.errors import ConfigError, HostError, ProgramFailed
from labctl.file_hashes import cached_sha256, sha256_file
from labctl.files import host_reads, publish, scratch, write_atomic
from labctl.models.cache import ModelFile
from labctl.models.quantizer import Quantizer
from labctl.process import run_streaming
from labctl.progress import Progress

_SECONDS = 24 * 3600.0
_HEADER = struct.Struct("<8sIii")
_CHUNK = re.compile(r"\[(\d{1,9})\]")
_NAN = re.compile(r"\[\d{1,9}\]-?(?:nan|inf)\b", re.IGNORECASE)
_CHUNKS = re.compile(r"calculating perplexity over (\d{1,9}) chunks")


@dataclass(frozen=True)
class Logits:
    """A file of logits with its model and text, which are stored beside it as ``FILE.json``."""

    sha256: str
    size_bytes: int
    context: int
    chunks: int
    vocabulary: int
    model: str
    model_sha256: str
    text_sha256: str
    program_sha256: str
    parameters: Mapping[str, object]


def write_logits(
    model: ModelFile,
    text: Path,
    output: Path,
    *,
    command: Sequence[str],
    parameters: Mapping[str, object],
    program: Quantizer,
    progress: Progress,
) -> Logits:
    """Write a model's logits over a text to ``output``, and model and text to ``FILE.json``.

    ``command``: command of llama-perplexity with these ``parameters``, one of which is the
    ``context``. Raises ConfigError (a text
    that cannot be read or is too short), HostError (disk), ProgramFailed.
    """
    text_sha256 = cached_sha256(text)
    step = f"logits of {model.path.name}"
    known: list[int] = []

    def on_line(line: str) -> None:
        if found := _CHUNKS.search(line):
            known.append(int(found[1]))
        for done in _CHUNK.findall(line):
            progress(step, int(done), known[0] if known else None)

    with scratch(output.parent, f".{output.name}.") as made_in:
        made = made_in / "logits"
        argv = [*command, "--kl-divergence-base", str(made.absolute())]
        progress(step, 0, None)
        finished = run_streaming(argv, timeout=_SECONDS, on_line=on_line)
        if "tokens to evaluate perplexity" in finished.tail():
            raise ConfigError(
                f"{text} is too short for one chunk and its context",
                hint="use a longer text or a smaller --context",
            )
        if finished.exit_status != 0 or not made.is_file():
            raise ProgramFailed(
                f"llama-perplexity wrote no logits (status {finished.exit_status})",
                details=finished.tail(),
            )
        if _NAN.search(finished.tail()):
            raise ProgramFailed(
                f"the probabilities of {model.path.name} are NaN (not a number)",
                hint="its quantization is most likely broken: quantize it again from its original,"
                " or take another file",
            )
        read, count, vocabulary = _checked_header(made, finished.tail())
        if read != parameters["context"]:
            raise ProgramFailed(
                f"llama-perplexity made chunks of {read} tokens, not {parameters['context']}"
            )
        logits = Logits(
            sha256=sha256_file(made),
            size_bytes=made.stat().st_size,
            context=read,
            chunks=count,
            vocabulary=vocabulary,
            model=model.path.name,
            model_sha256=model.identity.sha256,
            text_sha256=text_sha256,
            program_sha256=program.sha256,
            parameters=parameters,
        )
        publish(made, output)
    write_atomic(output.with_name(f"{output.name}.json"), json.dumps(asdict(logits)) + "\n")
    return logits


def context_of(path: Path) -> int:
    """Return the tokens per chunk of a file of logits. Raises ConfigError if it is damaged."""
    with host_reads(path):
        try:
            return _checked_header(path, "")[0]
        except (ProgramFailed, HostError, struct.error) as error:
            raise ConfigError(
                f"{path} is not a complete file of logits",
                hint="write it with `labctl models logits`",
            ) from error


def model_of(path: Path, sha256: str) -> str | None:
    """Return the SHA-256 of the model that wrote logits; None if no file beside them tells."""
    beside = path.with_name(f"{path.name}.json")
    if not beside.is_file():
        return None
    try:
        found = json.loads(read_text(beside))
        told = found["model_sha256"] if found["sha256"] == sha256 else None
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{beside} does not describe logits", hint="remove it") from error
    return told if isinstance(told, str) else None


def _checked_header(path: Path, log: str) -> tuple[int, int, int]:
    """Return tokens per chunk, chunks and vocabulary. Raises ProgramFailed, HostError."""
    with path.open("rb") as file:
        head = file.read(_HEADER.size)
    if len(head) < _HEADER.size or head[:8] != b"_logits_":
        raise ProgramFailed("llama-perplexity wrote no logits", details=log)
    _, context, vocabulary, chunks = _HEADER.unpack(head)
    width = 2 * ((vocabulary + 1) // 2) + 4
    each = 4 * context + 2 * width * (context - 1 - context // 2)
    expected = _HEADER.size + chunks * each
    if path.stat().st_size != expected:
        raise HostError(
            f"the file of logits has {path.stat().st_size} bytes instead of {expected}",
            hint="is the disk full? Free some space, or ask for fewer --chunks",
        )
    return context, chunks, vocabulary
