"""State of a model on this host, without fetching or making anything."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from labctl.config.models import ModelSource, load_catalogue
from labctl.errors import ConfigError
from labctl.files import host_reads, sha256_file
from labctl.models.cache import Derivation, cached
from labctl.models.lock import LockedModel, ModelsLock, reference
from labctl.progress import Progress, silent


@dataclass(frozen=True)
class ModelState:
    """One model. ``path`` is None while it is not here, ``reference`` while what it is made from is
    unknown: its base or its importance matrix."""

    name: str
    source: ModelSource
    reference: str | None
    locked: LockedModel | None
    path: Path | None

    def document(self) -> dict[str, object]:
        """Return the state as JSON."""
        return {
            "name": self.name,
            "reference": self.reference,
            "path": None if self.path is None else str(self.path),
            "locked": self.locked and self.locked.model_dump(mode="json"),
        }

    def verify(self, progress: Progress = silent) -> None:
        """Read the whole file again and compare. Raises ConfigError."""
        assert self.path is not None
        path, size = self.path, self.path.stat().st_size
        with host_reads(path):
            digest = sha256_file(path, lambda done: progress(f"hash {path.name}", done, size))
        if self.locked is not None and digest != self.locked.sha256:
            raise ConfigError(
                f"{path} of the model {self.name!r} differs from the lock file: its SHA-256 is"
                f" {digest}, not {self.locked.sha256}",
                hint=self._advice(path),
            )

    def _advice(self, path: Path) -> str:
        """Say how to get the right bytes; only what labctl fetched or made may be removed."""
        if self.source.file is not None:
            return (
                "copy the file from where it came from again; if you changed it on purpose, accept"
                f" it: labctl models unlock {self.name}"
            )
        again = f"labctl models fetch {self.name}"
        if self.source.derive is not None:
            return f"remove {path} and make it again from {self.source.derive.source!r}: {again}"
        return f"remove {path} and fetch it again: {again}"


def state_of(name: str, sources: Mapping[str, ModelSource], lab_root: Path) -> ModelState:
    """Return the state of a model on this host. Raises ConfigError if a file of the lab is
    wrong.
    """
    return _state(name, sources, lab_root, ModelsLock(lab_root))


def _state(
    name: str, sources: Mapping[str, ModelSource], lab_root: Path, lock: ModelsLock
) -> ModelState:
    source = sources[name]
    if source.lab is not None:
        catalogue = load_catalogue(lab_root).models
        if source.lab not in catalogue:
            return ModelState(name, source, None, None, None)
        inner = _state(source.lab, catalogue, lab_root, lock)
        return ModelState(name, inner.source, inner.reference, inner.locked, inner.path)
    if source.derive is not None:
        base = _state(source.derive.source, sources, lab_root, lock)
        matrix = source.derive.imatrix
        if base.locked is None or (matrix and not (lab_root / matrix).is_file()):
            return ModelState(name, source, None, None, None)
        derivation = Derivation.of(source.derive, base.locked.sha256, lab_root)
        known = lock.get(derivation.reference)
        path = derivation.present(known.quantizer) if known and known.quantizer else None
        return ModelState(name, source, derivation.reference, known, path)
    known = lock.get(reference(source)) if source.lock is not False else None
    return ModelState(name, source, reference(source), known, _present(source, known, lab_root))


def _present(source: ModelSource, known: LockedModel | None, lab_root: Path) -> Path | None:
    if source.file is not None:
        path = lab_root / source.file
        return path if path.is_file() else None
    if source.url is not None:
        return cached(source.url.sha256)
    if source.pypi is not None:
        return cached(source.pypi.sha256)
    return cached(known.sha256) if known else None
