"""Low-rank adapters (LoRA): GGUF files that change the weights of a model."""

from collections.abc import Iterable
from pathlib import Path

from labctl.errors import ConfigError
from labctl.gguf.header import read_header
from labctl.records.trial import AdapterIdentity, ModelIdentity


def identify_adapter(path: Path, sha256: str, scale: float) -> AdapterIdentity:
    """Return an adapter's identity, from its header. Raises ConfigError if it is not an adapter."""
    header = read_header(path)
    kind = (header.values.get("general.type"), header.values.get("adapter.type"))
    if kind != ("adapter", "lora"):
        raise ConfigError(
            f"{path} is not a low-rank adapter",
            hint="llama.cpp's convert_lora_to_gguf.py makes one",
        )
    size = sum(tensor.size_bytes for tensor in header.tensors)
    return AdapterIdentity(file=path.name, sha256=sha256, tensor_bytes=size, scale=scale)


def adapted(model: ModelIdentity, adapters: Iterable[AdapterIdentity]) -> ModelIdentity:
    """Return the identity of a model with these adapters."""
    return model.model_copy(update={"adapters": tuple(adapters)})
