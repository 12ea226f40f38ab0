"""``models.lock.yaml``: which bytes each source of a model stands for, the same for everyone.

What a source gives is written down when it is first had, and must be the same ever after: a hub's
branch moves on, a file is overwritten, another llama-quantize rounds differently. Its key is one
line that names the source. The file belongs under version control.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from pydantic import Field

from labctl.config.models import HubModel, ModelSource, PypiModel
from labctl.config.types import Line, Sha256
from labctl.config.yaml.document import StrictModel, load
from labctl.errors import ConfigError
from labctl.files import locked, state_dir, write_named

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
    """Its size."""
    commit: Line | None = None
    """The hub's commit at that time."""
    quantizer: Sha256 | None = None
    """SHA-256 of the llama-quantize that made it."""


class LockDocument(StrictModel):
    """The whole file."""

    models: dict[str, LockedModel] = Field(default_factory=dict)
    """By reference: ``hf:OWNER/NAME/FILE``, ``file:PATH``, ``derive:…``."""


class ModelsLock:
    """The lock file of a lab. Entries are added at once; one that is there never changes by itself.

    Raises ConfigError when the file is wrong.
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
        """Raise ConfigError unless ``found`` is what the reference stands for; note what is new.

        ``unlock`` is the command that accepts another file. Raises HostError when the lock file
        cannot be written.
        """
        if reference not in self._entries:
            with self._changing() as entries:
                # Another run of this lab may have had it first.
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
                f"{self.path} says {known.size_bytes} bytes of {reference}, whose SHA-256 it has"
                f" right: the file has {found.size_bytes}",
                hint="the file is written by labctl: undo manual changes",
            )

    def drop(self, references: Iterable[str]) -> list[str]:
        """Forget entries; those that were there. Raises HostError."""
        with self._changing() as entries:
            return [r for r in references if entries.pop(r, None) is not None]

    @contextmanager
    def _changing(self) -> Iterator[dict[str, LockedModel]]:
        """Yield the current entries; they are written when the block ends."""
        # Several runs of one lab may learn something at once.
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
    """``hf:OWNER/NAME/FILE``, and ``@REVISION`` where one is asked for."""
    revision = f"@{source.revision}" if source.revision else ""
    return f"{_PREFIXES[source.site]}:{source.repository}/{source.file}{revision}"


def pypi_reference(source: PypiModel) -> str:
    """``pypi:PACKAGE==VERSION/MEMBER``."""
    return f"pypi:{source.package}=={source.version}/{source.member}"


def reference(source: ModelSource) -> str:
    """Format a source as one line. The line of a derived model needs its base: see ``derive``."""
    if source.hub is not None:
        return hub_reference(source.hub)
    if source.pypi is not None:
        return pypi_reference(source.pypi)
    if source.url is not None:
        return source.url.address
    if source.derive is not None:
        return f"{source.derive.quantization} of {source.derive.source}"
    return f"file:{source.file}"
