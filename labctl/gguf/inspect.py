"""Properties of a GGUF model: architecture, quantization, and bytes read per token."""

import platform
import re
import shlex
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from labctl.errors import ConfigError, printable
from labctl.file_hashes import cached_sha256
from labctl.files import open_whole
from labctl.gguf.header import Header, Skipped, Tensor, Value, read_beginning, read_header
from labctl.progress import BytesDone
from labctl.records.trial import ModelIdentity, TensorMix

_EMBEDDING = "token_embd.weight"
_OUTPUT = "output.weight"
#: Tables of which each token reads only one row.
_LOOKED_UP = (_EMBEDDING, "per_layer_token_embd.weight", "position_embd.weight")
_EXPERTS = "_exps."
_LAYER = re.compile(r"blk\.(0|[1-9][0-9]{0,9})\.")
_F16_BYTES = 2
_LONGEST_SHOWN = 200
#: llama.cpp stores these numbers in 32 bits.
_TOO_MANY = 1 << 32


@dataclass(frozen=True)
class GgufInfo:
    """A whole, readable GGUF language model."""

    path: Path
    size_bytes: int
    version: int
    architecture: str
    name: str | None
    quantization: str
    parameters: int
    tensor_bytes: int
    bytes_per_token: int
    #: Tensors that generation hardly reads: look-up tables, skipped layers.
    cold_tensors: tuple[TensorMix, ...]
    #: Experts in each layer, and experts that each token uses; ``None`` without a mixture of
    #: experts.
    experts: int | None
    experts_per_token: int | None
    context_length: int | None
    embedding_length: int | None
    #: Attention heads of the layer that has the most of them.
    heads: int | None
    #: Bytes of an f16 KV cache per position of the context. An upper bound for models with sliding
    #: windows; ``None`` if the header does not tell (recurrent or compressed caches).
    kv_bytes_per_position: int | None
    tensors: tuple[TensorMix, ...]
    #: ``tokenizer.ggml.model`` (``gpt2``, ``llama``, …), and the number of its tokens.
    tokenizer: str | None
    vocabulary: int | None
    #: Files of the model; several if it is split.
    parts: tuple[Path, ...]

    def document(self) -> dict[str, object]:
        """Return the JSON of `labctl models show`."""
        return {
            "files": [str(part) for part in self.parts],
            "size_bytes": self.size_bytes,
            "name": self.name,
            "architecture": self.architecture,
            "parameters": self.parameters,
            "quantization": self.quantization,
            "tensor_bytes": self.tensor_bytes,
            "bytes_per_token": self.bytes_per_token,
            "context_length": self.context_length,
            "kv_bytes_per_position": self.kv_bytes_per_position,
            "tokenizer": self.tokenizer,
            "vocabulary": self.vocabulary,
            "gguf_version": self.version,
            "tensors": [mix.model_dump(mode="json") for mix in self.tensors],
        }


def inspect(path: Path) -> GgufInfo:
    """Read a model's header, without the tensor data.

    For a split model, ``path`` is any part; the others are in the same folder. Raises ConfigError
    if a file is missing, empty, truncated, not GGUF, of an unknown version or byte order, or not a
    complete language model.
    """
    header = read_header(path)
    parts = _parts(path, header)
    if path != parts[0]:
        path, header = parts[0], read_header(parts[0])
    header = replace(header, tensors=_joined(path, header, [read_header(p) for p in parts[1:]]))
    return _info(path, header, sum(part.stat().st_size for part in parts), parts)


def _info(path: Path, header: Header, size_bytes: int, parts: tuple[Path, ...]) -> GgufInfo:
    """Read the properties of a model from its header.

    Raises ConfigError if it is not a complete language model.
    """
    architecture = header.values.get("general.architecture")
    if not isinstance(architecture, str) or not re.fullmatch(r"[\w.-]{1,64}", architecture):
        raise ConfigError(f"{path}: the header names no general.architecture")
    if not header.tensors:
        raise ConfigError(
            f"{path}: a vocabulary without weights", hint="take the model's full GGUF file"
        )
    if all(tensor.name != _EMBEDDING for tensor in header.tensors):
        raise ConfigError(
            f"{path}: no tensor {_EMBEDDING}, so it is no language model",
            hint="is it an adapter or a vision projector?",
        )
    mix = _mix(header.tensors)
    per_token, cold = _reading(header, architecture)
    experts, used = _experts(header, architecture)
    name = header.values.get("general.name")
    tokenizer = header.values.get("tokenizer.ggml.model")
    tokens = header.values.get("tokenizer.ggml.tokens")
    return GgufInfo(
        path=path,
        size_bytes=size_bytes,
        version=header.version,
        architecture=architecture,
        name=_shown(name),
        quantization=_quantization(header, mix),
        parameters=sum(tensor.elements for tensor in header.tensors),
        tensor_bytes=sum(tensor.size_bytes for tensor in header.tensors),
        bytes_per_token=per_token,
        cold_tensors=_mix(cold),
        experts=experts,
        experts_per_token=used,
        context_length=_whole(header.values.get(f"{architecture}.context_length")),
        embedding_length=_whole(header.values.get(f"{architecture}.embedding_length")),
        heads=_most_heads(header, architecture),
        kv_bytes_per_position=_kv_bytes(header, architecture),
        tensors=mix,
        tokenizer=_shown(tokenizer),
        vocabulary=len(tokens) if isinstance(tokens, Skipped | list) else None,
        parts=parts,
    )


def identify(
    key: str,
    path: Path,
    *,
    requantized_from: str | None = None,
    sha256: str | None = None,
    progress: BytesDone | None = None,
) -> ModelIdentity:
    """Return the record of a model file with its SHA-256.

    ``progress`` gets the number of bytes hashed so far. If ``sha256`` is given, nothing is hashed.

    Raises ConfigError as :func:`inspect` does, and for a split model.
    """
    info = inspect(path)
    if len(info.parts) > 1:
        raise ConfigError(
            f"{path}: one of {len(info.parts)} parts of a model; a run needs one file",
            hint="join them with llama.cpp's own tool (`labctl build --target"
            f" host-{platform.machine()} --tool llama-gguf-split` prints its path):"
            f" llama-gguf-split --merge {shlex.quote(str(info.parts[0]))} WHOLE.gguf",
        )
    return _identity(key, info, sha256 or cached_sha256(path, progress), requantized_from)


def identify_beginning(
    key: str, name: str, beginning: bytes, *, size_bytes: int, sha256: str
) -> ModelIdentity:
    """Return the record of a model file from its beginning; the rest is not on this host.

    Raises :class:`labctl.gguf.header.GoesOn` if the header is longer than the beginning,
    ConfigError as :func:`inspect` does.
    """
    path = Path(name)
    header = read_beginning(name, beginning, size_bytes)
    return _identity(key, _info(path, header, size_bytes, (path,)), sha256, None)


def _identity(key: str, info: GgufInfo, sha256: str, requantized_from: str | None) -> ModelIdentity:
    return ModelIdentity(
        key=key,
        file=info.path.name,
        sha256=sha256,
        size_bytes=info.size_bytes,
        architecture=info.architecture,
        name=info.name,
        quantization=info.quantization,
        parameters=info.parameters,
        bits_per_weight=info.tensor_bytes * 8 / info.parameters,
        tensor_bytes=info.tensor_bytes,
        bytes_per_token=info.bytes_per_token,
        cold_tensors=info.cold_tensors,
        experts=info.experts,
        experts_per_token=info.experts_per_token,
        kv_bytes_per_position=info.kv_bytes_per_position,
        context_length=info.context_length,
        embedding_length=info.embedding_length,
        heads=info.heads,
        vocabulary=info.vocabulary,
        tensors=info.tensors,
        requantized_from=requantized_from,
    )


def is_gguf(path: Path) -> bool:
    """Return True if a file begins like a GGUF file. Raises ConfigError if it cannot be read."""
    try:
        with open_whole(path) as file:
            return file.read(4) == b"GGUF"
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def identify_file(key: str, path: Path, *, progress: BytesDone | None = None) -> ModelIdentity:
    """Return the record of a model in another format: only its bytes are known.

    ``progress`` gets the number of bytes hashed so far. Raises ConfigError, HostError.
    """
    try:
        size = path.stat().st_size
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    return ModelIdentity(
        key=key, file=path.name, sha256=cached_sha256(path, progress), size_bytes=size
    )


def _parts(path: Path, header: Header) -> tuple[Path, ...]:
    """Return all files of a model, given one of them; llama.cpp names them ``…-00001-of-00003``.

    Source: ``llama_split_path`` in llama.cpp's ``src/llama.cpp``.
    """
    count = _whole(header.values.get("split.count")) or 1
    if count <= 1:
        return (path,)
    suffix = re.search(r"-(\d{5})-of-(\d{5})\.gguf$", path.name)
    if suffix is None or int(suffix[2]) != count:
        raise ConfigError(
            f"{path}: one of {count} parts of a model, but its name does not end in"
            f" -00001-of-{count:05d}.gguf, as llama.cpp wants it"
        )
    stem = path.name[: suffix.start()]
    parts = tuple(
        path.with_name(f"{stem}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)
    )
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        more = f" and {len(missing) - 3} others" if len(missing) > 3 else ""
        raise ConfigError(
            f"{path}: {len(missing)} of {count} parts missing: {', '.join(missing[:3])}{more}"
        )
    return parts


def _joined(path: Path, first: Header, others: list[Header]) -> tuple[Tensor, ...]:
    """Join the tensors of all parts, which must belong to one model.

    Source: ``llama_model_loader`` in llama.cpp, keys ``split.no`` and ``split.tensors.count``.
    """
    for number, other in enumerate(others, start=1):
        if other.values.get("split.no") != number:
            raise ConfigError(f"{path}: its part {number + 1} is not that part of a model")
    tensors = sum((other.tensors for other in others), first.tensors)
    counts = Counter(tensor.name for tensor in tensors)
    if twice := next((name for name, count in counts.items() if count > 1), None):
        raise ConfigError(
            f"{path}: the tensor {twice[:80]!r} is in two parts of the model",
            hint="are all parts of the same model? Copy or download them again",
        )
    announced = _whole(first.values.get("split.tensors.count"))
    if others and announced not in (None, len(tensors)):
        raise ConfigError(
            f"{path}: its parts have {len(tensors)} tensors together, not {announced}",
            hint="are all parts of the same model? Copy or download them again",
        )
    return tensors


def _mix(tensors: tuple[Tensor, ...]) -> tuple[TensorMix, ...]:
    """Return tensors by type, most bytes first."""
    counts: dict[str, tuple[int, int]] = {}
    for tensor in tensors:
        count, size = counts.get(tensor.type, (0, 0))
        counts[tensor.type] = (count + 1, size + tensor.size_bytes)
    mixes = (TensorMix(type=t, count=c, bytes=b) for t, (c, b) in counts.items())
    return tuple(sorted(mixes, key=lambda mix: -mix.bytes))


def _quantization(header: Header, mix: tuple[TensorMix, ...]) -> str:
    """Return the name of ``general.file_type``; if it is absent or only guessed, the main type."""
    from gguf.constants import LlamaFileType  # imports numpy

    number = header.values.get("general.file_type")
    try:
        name = LlamaFileType(number).name if isinstance(number, int) else ""
    except ValueError:
        name = ""
    return name.removeprefix("MOSTLY_").removeprefix("ALL_") or mix[0].type


def _reading(header: Header, architecture: str) -> tuple[int, tuple[Tensor, ...]]:
    """Return the weight bytes read to generate one token, and the tensors that are hardly read.

    All tensors count, with these exceptions:

    - look-up tables count one row; the token embedding counts whole if it is also the output;
    - a mixture of experts counts only the share of experts that a token uses;
    - an encoder, which reads the prompt once, does not count;
    - the last layers of models that predict several tokens (``nextn_predict_layers``) do not count:
      plain generation skips them.
    """
    tied = all(tensor.name != _OUTPUT for tensor in header.tensors)
    experts, used = _experts(header, architecture)
    layers = _whole(header.values.get(f"{architecture}.block_count")) or 0
    extra = _whole(header.values.get(f"{architecture}.nextn_predict_layers")) or 0
    unused = range(layers - extra, layers)
    total, cold = 0, []
    for tensor in header.tensors:
        layer = _LAYER.match(tensor.name)
        if tensor.name.startswith("enc.") or (layer and int(layer[1]) in unused):
            cold.append(tensor)
        elif tensor.name in _LOOKED_UP and not (tied and tensor.name == _EMBEDDING):
            total += tensor.size_bytes // max(1, tensor.shape[-1])
            cold.append(tensor)
        elif _EXPERTS in tensor.name and used and experts:
            total += tensor.size_bytes * used // experts
        else:
            total += tensor.size_bytes
    return total, tuple(cold)


def _experts(header: Header, architecture: str) -> tuple[int | None, int | None]:
    """Return the experts of a layer, and of them per token; both None if one is unknown."""
    experts = _whole(header.values.get(f"{architecture}.expert_count"))
    used = _whole(header.values.get(f"{architecture}.expert_used_count"))
    return (experts, min(used, experts)) if experts and used else (None, None)


def _kv_bytes(header: Header, architecture: str) -> int | None:
    """Return the bytes of keys and values of all layers and KV heads, in f16, per position."""

    def get(key: str) -> Value | None:
        return header.values.get(f"{architecture}.{key}")

    if get("attention.kv_lora_rank") is not None or get("ssm.state_size") is not None:
        return None
    layers = _whole(get("block_count"))
    width = _whole(get("embedding_length"))
    heads = get("attention.head_count")
    most_heads = _most_heads(header, architecture)
    kv_heads = _over_layers(get("attention.head_count_kv") or heads, layers)
    if not width or not most_heads or not kv_heads:
        return None
    key_width = _whole(get("attention.key_length")) or width // most_heads
    value_width = _whole(get("attention.value_length")) or width // most_heads
    return kv_heads * (key_width + value_width) * _F16_BYTES


def _most_heads(header: Header, architecture: str) -> int | None:
    """Return the heads of the layer with most: it is one number for all, or a list."""
    heads = header.values.get(f"{architecture}.attention.head_count")
    if isinstance(heads, list):
        return max((_whole(count) or 0 for count in heads), default=0)
    return _whole(heads)


def _over_layers(value: Value | None, layers: int | None) -> int:
    """Sum a setting over all layers: it is one number for all, or a list with one per layer."""
    if isinstance(value, list):
        return sum(_whole(count) or 0 for count in value)
    return (_whole(value) or 0) * (layers or 0)


def _shown(value: Value | None) -> str | None:
    """Format a text from the file as one line that is safe for a terminal."""
    return " ".join(printable(value[:_LONGEST_SHOWN]).split()) if isinstance(value, str) else None


def _whole(value: Value | None) -> int | None:
    """Return a count; None if it is missing or not valid."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _TOO_MANY:
        return None
    return value
