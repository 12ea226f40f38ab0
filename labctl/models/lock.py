"""``models.lock.yaml``: the bytes of each source of a model, the same for everyone.

labctl records the SHA-256 of a source at its first fetch; then it must stay the same. A hub's
branch can change, a file can be overwritten, another llama-quantize rounds differently. The key is
one line that names the source. Keep the file under version control.

This module also returns a model's state on this host, without fetching or making anything.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import Field

from labctl.config.models import HubModel, ModelSource, PypiModel, load_catalogue
from labctl.config.types import Line, Sha256
from labctl.config.yaml.document import StrictModel, load
from labctl.errors import ConfigError
from labctl.file_hashes import sha256_file
from labctl.files import host_reads, write_named
from labctl.folders import state_dir
from labctl.locks import locked
from labctl.models.cache import Derivation, cached
from labctl.progress import Progress, silent

LOCK_FILE = "models.lock.yaml"
_HEAD = """\
# Which bytes each source of a model stands for.
# Written by labctl; keep it under version control.
"""
_LOCK_SECONDS = 60.0


class LockedModel(StrictModel):
    """Recorded file of a source."""

    sha256: Sha256
    """SHA-256 of the GGUF file."""
    size_bytes: int = Field(ge=1)
    """Size of the GGUF file."""
    commit: Line | None = None
    """Commit of the hub at that time."""
    quantizer: Sha256 | None = None
    """SHA-256 of the llama-quantize that made it."""


class LockDocument(StrictModel):
    """The whole file."""

    models: dict[str, LockedModel] = Field(default_factory=dict)
    """Files by reference: ``hf:OWNER/NAME/FILE``, ``file:PATH``, ``derive:…``."""


class ModelsLock:
    """The lock file of a lab. New entries are written at once; labctl never changes an entry.

    Raises ConfigError if the file is wrong.
    """

    def __init__(self, lab_root: Path):
        self.path = lab_root / LOCK_FILE
        self._entries = self._read()

    def get(self, reference: str) -> LockedModel | None:
        """Return the recorded file of a reference; None if it was never fetched."""
        return self._entries.get(reference)

    def files_of(self, site: str, repository: str, revision: str | None) -> dict[str, LockedModel]:
        """Return the recorded files of a hub's repository at a revision, by their paths in it."""
        found = {}
        for reference, known in self._entries.items():
            file = reference.removeprefix(f"{_PREFIXES[site]}:{repository}/")
            path, _, at = file.partition("@")
            if file != reference and at == (revision or ""):
                found[path] = known
        return found

    def require(self, key: str, reference: str, found: LockedModel, *, unlock: str) -> None:
        """Raise ConfigError if ``found`` differs from the recorded file; record a new reference.

        ``unlock``: command that accepts another file. Raises HostError if the lock file cannot be
        written.
        """
        if reference not in self._entries:
            with self._changing() as entries:
                # Another run of this lab may have recorded it first.
                entries.setdefault(reference, found)
        known = self._entries[reference]
        if known.sha256 != found.sha256:
            raise ConfigError(
                f"the model {key!r} ({reference}) differs from {self.path}: its SHA-256 is"
                f" {found.sha256}, not {known.sha256}",
                hint=f"restore the old file, or accept the new one: {unlock}",
            )
        if known.size_bytes != found.size_bytes:
            raise ConfigError(
                f"{self.path} has {known.size_bytes} bytes for {reference}; the SHA-256 is"
                f" right, but the file has {found.size_bytes} bytes",
                hint="the file is written by labctl: undo manual changes",
            )

    def drop(self, references: Iterable[str]) -> list[str]:
        """Remove entries; return the removed ones. Raises HostError."""
        with self._changing() as entries:
            return [r for r in references if entries.pop(r, None) is not None]

    @contextmanager
    def _changing(self) -> Iterator[dict[str, LockedModel]]:
        """Yield the current entries; they are written when the block ends."""
        # Several runs of one lab may add entries at once.
        with locked(state_dir() / "locks" / "models-lock-file", timeout=_LOCK_SECONDS):
            entries = self._read()
            yield entries
            shown = {
                reference: entry.model_dump(mode="json", exclude_none=True)
                for reference, entry in sorted(entries.items())
            }
            text = yaml.safe_dump({"models": shown}, sort_keys=False, allow_unicode=True, width=200)
            write_named(self.path, _HEAD + text)
        self._entries = entries

    def _read(self) -> dict[str, LockedModel]:
        return load(self.path, LockDocument).models if self.path.is_file() else {}


HUBS = {"hf": "huggingface", "ms": "modelscope"}
_PREFIXES = {site: prefix for prefix, site in HUBS.items()}


def hub_reference(source: HubModel) -> str:
    """Return ``hf:OWNER/NAME/FILE``, with ``@REVISION`` if a revision is given."""
    revision = f"@{source.revision}" if source.revision else ""
    return f"{_PREFIXES[source.site]}:{source.repository}/{source.file}{revision}"


def pypi_reference(source: PypiModel) -> str:
    """Return ``pypi:PACKAGE==VERSION/MEMBER``."""
    return f"pypi:{source.package}=={source.version}/{source.member}"


def reference(source: ModelSource) -> str:
    """Format a source as one line. For a derived model, see ``derive``: its line needs the base."""
    if source.hub is not None:
        return hub_reference(source.hub)
    if source.pypi is not None:
        return pypi_reference(source.pypi)
    if source.url is not None:
        return source.url.address
    if source.derive is not None:
        return f"{source.derive.quantization} of {source.derive.source}"
    return f"file:{source.file}"


@dataclass(frozen=True)
class ModelState:
    """State of one model. ``path`` is None if it is not here.

    ``reference`` is None while its base or its importance matrix is unknown.
    """

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
        """Return advice to get the right bytes; suggests deleting only files that labctl made."""
        if self.source.file is not None:
            return (
                "copy the file from its origin again; if you changed it on purpose, accept"
                f" it: labctl models unlock {self.name}"
            )
        again = f"labctl models fetch {self.name}"
        if self.source.derive is not None:
            return f"remove {path} and make it again from {self.source.derive.source!r}: {again}"
        return f"remove {path} and fetch it again: {again}"


def state_of(name: str, sources: Mapping[str, ModelSource], lab_root: Path) -> ModelState:
    """Return the state of a model on this host. Raises ConfigError if a lab file is wrong."""
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
