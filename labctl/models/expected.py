"""Expected properties of models that are not on this host yet, as far as known.

Sizes come from the lock file or the server, headers from the beginning of a file. A model that
llama-quantize will make is estimated from its base.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path

from labctl.config.models import CATALOGUE_FILE, ModelSource
from labctl.errors import ConfigError, HostError
from labctl.file_hashes import is_hash_remembered
from labctl.gguf.header import GoesOn
from labctl.gguf.inspect import identify, identify_beginning, inspect, is_gguf
from labctl.http import Unreachable
from labctl.models import hub, pypi
from labctl.models.cache import Derivation, ModelFile
from labctl.models.derive import (
    derived_name,
    refuse_requantizing,
    requantized_from,
)
from labctl.models.download import beginning, file_name
from labctl.models.lock import LockedModel, ModelsLock, reference, state_of
from labctl.models.quantizer import FindQuantizer
from labctl.models.resolve import lab_models, resolve
from labctl.progress import Progress
from labctl.records.trial import ModelIdentity, TensorMix
from labctl.retry import retry_infra

#: Number of bytes to request for a whole header: vocabularies have up to 10 MB.
_BEGINNINGS = (1 << 20, 1 << 23, 1 << 26)
#: Time (s) to retry a server that does not answer.
_BEGINNING_SECONDS = 10.0
#: Quantizations whose name is not the smallest type of their tensors. Source:
#: ``llama_tensor_get_type_impl`` in llama.cpp's src/llama-quant.cpp.
_MAIN_TYPES = {
    "IQ2_S": "IQ2_XS",
    "IQ2_M": "IQ2_S",
    "IQ3_XXS": "IQ2_S",
    "IQ3_XS": "IQ3_XXS",
    "IQ3_M": "IQ3_S",
    "MXFP4_MOE": "MXFP4",
}


def check_files(
    sources: Mapping[str, ModelSource], keys: Iterable[str], *, root: Path, gguf_only: bool
) -> None:
    """Check the model files of this host that ``keys`` need, without hashing them.

    Raises ConfigError: no such file, or no such model in the lab; not GGUF.
    """
    for key in keys:
        for source, file in _origins(sources, key, root):
            if source.file is not None:
                path = root / source.file
                if not path.exists():
                    raise ConfigError(f"no model file {path}", hint=f"check the path in {file}")
                if gguf_only or is_gguf(path):
                    inspect(path)


def _origins(
    sources: Mapping[str, ModelSource], key: str, root: Path, file: str = "the recipe"
) -> Iterator[tuple[ModelSource, str]]:
    """Yield a model's source and the sources of its bases, each with the file that contains it."""
    source = sources[key]
    yield source, file
    if source.lab is not None:
        yield from _origins(
            lab_models(key, source.lab, root), source.lab, root, str(root / CATALOGUE_FILE)
        )
    elif source.derive is not None:
        yield from _origins(sources, source.derive.source, root, file)


def origin(sources: Mapping[str, ModelSource], key: str, root: Path) -> str:
    """Return a text that is equal for models with equal sources. Raises ConfigError."""
    origins = _origins(sources, key, root)
    return "\n".join(source.model_dump_json(exclude_none=True) for source, _ in origins)


def are_here(sources: Mapping[str, ModelSource], keys: Iterable[str], root: Path) -> bool:
    """Return True if no model must be fetched or made. Raises ConfigError."""
    return all(state_of(key, sources, root).path is not None for key in keys)


def are_ready(sources: Mapping[str, ModelSource], keys: Iterable[str], root: Path) -> bool:
    """Return True if no model must be fetched, made or hashed. Raises ConfigError."""
    paths = (state_of(key, sources, root).path for key in keys)
    return all(path is not None and is_hash_remembered(path) for path in paths)


def expect(
    sources: Mapping[str, ModelSource],
    keys: Iterable[str],
    *,
    root: Path,
    find_quantizer: FindQuantizer,
    progress: Progress,
    gguf_only: bool = True,
    plan_only: bool = False,
) -> dict[str, ModelFile]:
    """Return the models ``keys`` as expected; models of unknown size are left out.

    Files here without a known hash are left out too: before hashing, nobody knows if a board has
    them. No model is made, and at most the beginning of a file is read. If a header cannot be read
    yet, the identity has no architecture. Raises the errors of :func:`labctl.models.resolve` for
    models that are here, ConfigError (no such file, no access, no llama-quantize, a model that may
    not be derived), HostError (offline).

    ``plan_only``: the models will be neither made nor sent. Then llama-quantize is not needed, and
    files without a known hash are described by their header. No model is left out: a package is
    fetched, since no index lists its parts. Raises HostError for an unreadable header.
    """

    def one(
        key: str, sources: Mapping[str, ModelSource], needs_header: bool = gguf_only
    ) -> ModelFile | None:
        source = sources[key]
        if (path := state_of(key, sources, root).path) is not None:
            if not is_hash_remembered(path):
                return _unhashed(key, path, estimated=not plan_only)
            return resolve(
                sources,
                [key],
                root=root,
                find_quantizer=find_quantizer,
                progress=progress,
                gguf_only=gguf_only,
            )[key]
        if source.lab is not None:
            inner = one(source.lab, lab_models(key, source.lab, root), needs_header)
            return inner and ModelFile(
                inner.path, inner.identity.model_copy(update={"key": key}), inner.estimated
            )
        if source.derive is not None:
            if not plan_only:
                find_quantizer()  # before gigabytes are fetched in vain
            base = one(source.derive.source, sources, needs_header=True)
            return base and _derived(key, source, base.identity, root, lock)
        found = _fetched(key, source, lock.get(reference(source)))
        if plan_only and (found is None or (needs_header and not found.identity.architecture)):
            if source.pypi is None:
                raise HostError(
                    f"cannot read the header of the model {key!r} at {reference(source)}",
                    hint="a plan needs it: is the network there, and is this a GGUF file?",
                )
            return ModelFile(path := pypi.fetch(key, source.pypi, progress), identify(key, path))
        return found

    lock = ModelsLock(root)
    paths = {key: state_of(key, sources, root).path for key in keys}
    known = [
        key for key, path in paths.items() if plan_only or path is None or is_hash_remembered(path)
    ]
    found = {key: one(key, sources) for key in known}
    return {key: model for key, model in found.items() if model is not None}


def _unhashed(key: str, path: Path, *, estimated: bool) -> ModelFile:
    """Return a file of this host by its header, without its hash.

    Used to estimate derived models.
    """
    no_hash = sha256(os.fsencode(path)).hexdigest()
    if not is_gguf(path):
        return _unread(key, path.name, no_hash, path.stat().st_size)
    return ModelFile(path, identify(key, path, sha256=no_hash), estimated=estimated)


def _fetched(key: str, source: ModelSource, known: LockedModel | None) -> ModelFile | None:
    """Return the expected file of a hub, an address or a package."""
    if source.pypi is not None:  # pip downloads a package only as a whole
        if known is None:
            return None
        name = f"{source.pypi.package}-{source.pypi.version}.gguf"
        return _unread(key, name, source.pypi.sha256, known.size_bytes)
    if source.hub is not None:
        found_file = hub.look_up(key, source.hub, known.commit if known else None)
        address, digest, headers = found_file.address, found_file.sha256, found_file.headers
        size: int | None = found_file.size_bytes
    else:
        assert source.url is not None
        address, digest, headers = source.url.address, source.url.sha256, {}
        size = known.size_bytes if known and known.sha256 == digest else None
    name = file_name(address)
    for count in _BEGINNINGS:
        try:
            begun, whole = retry_infra(
                partial(beginning, key, address, headers, count),
                on=(Unreachable,),
                timeout=_BEGINNING_SECONDS,
            )
        except Unreachable:
            break  # the real download waits longer
        size = whole if size is None else size
        if size is None or begun[:4] != b"GGUF":
            break
        with suppress(GoesOn):
            identity = identify_beginning(key, name, begun, size_bytes=size, sha256=digest)
            return ModelFile(Path(name), identity)
    return None if size is None else _unread(key, name, digest, size)


def _unread(key: str, name: str, digest: str, size_bytes: int) -> ModelFile:
    """Return a file whose header is unknown."""
    identity = ModelIdentity(key=key, file=name, sha256=digest, size_bytes=size_bytes)
    return ModelFile(Path(name), identity)


def _derived(
    key: str, source: ModelSource, base: ModelIdentity, root: Path, lock: ModelsLock
) -> ModelFile | None:
    """Return the expected result of llama-quantize; None if even the size is unknown.

    Exact if the lock file has it. Otherwise a lower bound: every weight in the smallest type of the
    quantization. Mixtures keep some tensors in finer types, so real files are larger.
    """
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType  # imports numpy

    wanted = source.derive
    assert wanted is not None
    derivation = Derivation.of(wanted, base.sha256, root)
    known, name = lock.get(derivation.reference), derived_name(base, wanted)
    if base.parameters is None or base.tensor_bytes is None or base.bytes_per_token is None:
        return _unread(key, name, known.sha256, known.size_bytes) if known else None
    refuse_requantizing(key, wanted, base)
    kind = _main_type(wanted.quantization)
    whole = base.tensor_bytes
    block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    weights = base.parameters * block_bytes // block
    made = base.model_copy(
        update={
            "key": key,
            "file": name,
            # A hash that matches no file, so that no board seems to have it.
            "sha256": known.sha256 if known else sha256(derivation.reference.encode()).hexdigest(),
            "size_bytes": known.size_bytes
            if known
            else (base.size_bytes or whole) - whole + weights,
            "quantization": wanted.quantization,
            "bits_per_weight": 8 * block_bytes / block,
            "tensor_bytes": weights,
            "bytes_per_token": base.bytes_per_token * weights // whole,
            "cold_tensors": tuple(
                mix.model_copy(update={"type": kind, "bytes": mix.bytes * weights // whole})
                for mix in base.cold_tensors
            ),
            "tensors": (
                TensorMix(type=kind, count=sum(mix.count for mix in base.tensors), bytes=weights),
            ),
            "requantized_from": requantized_from(base),
        }
    )
    return ModelFile(Path(name), made, estimated=known is None)


def _main_type(quantization: str) -> str:
    """Return the smallest type of a mixture, e.g. ``Q4_K`` for ``Q4_K_M``."""
    from gguf.constants import GGMLQuantizationType

    name = _MAIN_TYPES.get(quantization, quantization)
    return name if name in GGMLQuantizationType.__members__ else name.rpartition("_")[0]
