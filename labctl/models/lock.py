"""``models.lock.yaml``: which bytes each source of a model stands for, the same for everyone.

What a source gives is written down when it is first had, and must be the same ever after: a hub's
branch moves on, a file is overwritten, another llama-quantize rounds differently. Its key is one
line that names the source. The file belongs under version control.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from pydantic import Field

from labctl.config.models import HubModel, ModelSource, PypiModel
from labctl.config.types import Line, Sha256
from labctl.config.yaml.document import StrictModel, load
from labctl.errors import ConfigError
from labctl.files import locked, state_dir, write_atomic

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

    def require(self, key: str, reference: str, found: LockedModel) -> None:
        """Raise ConfigError unless ``found`` is what the reference stands for; note what is new.

        Raises HostError when the file cannot be written.
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
                hint=f"restore the old file, or accept the new one: labctl models unlock {key}",
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
            write_atomic(self.path, _HEAD + text)
        self._entries = entries

    def _read(self) -> dict[str, LockedModel]:
        return load(self.path, LockDocument).models if self.path.is_file() else {}


_HUBS = {"hf": "huggingface", "ms": "modelscope"}
_PREFIXES = {site: prefix for prefix, site in _HUBS.items()}
_HUB = re.compile(r"(hf|ms):([^/]+/[^/@]+)/([^@]+)(?:@(.+))?")
_PYPI = re.compile(r"pypi:([^=/]+)==([^/#]+)(?:/([^#]+))?#sha256=([0-9a-fA-F]{64})")
_URL = re.compile(r"(https?://[^#]+)#sha256=([0-9a-fA-F]{64})")


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


def parse_reference(text: str) -> dict[str, object]:
    """Parse a model as a person types it into an entry of models.yaml; not validated further.

    ``hf:OWNER/NAME/FILE.gguf[@REVISION]``, ``ms:…`` (ModelScope), ``https://…#sha256=HEX``,
    ``pypi:PACKAGE==VERSION[/MEMBER]#sha256=HEX``, or the path of a file. Raises ConfigError.
    """
    if match := _HUB.fullmatch(text):
        entry = {"site": _HUBS[match[1]], "repository": match[2], "file": match[3]}
        return {"hub": entry | ({"revision": match[4]} if match[4] else {})}
    if match := _PYPI.fullmatch(text):
        entry = {"package": match[1], "version": match[2], "sha256": match[4]}
        return {"pypi": entry | ({"member": match[3]} if match[3] else {})}
    if match := _URL.fullmatch(text):
        return {"url": {"address": match[1], "sha256": match[2]}}
    if re.match(r"(hf|ms):", text):
        raise ConfigError(
            f"not a file of a hub: {text}", hint="write hf:OWNER/NAME/FILE.gguf or ms:…"
        )
    if re.match(r"(pypi:|https?://)", text):
        raise ConfigError(
            f"{text} has no SHA-256",
            hint="add #sha256=HEX; a package is pypi:NAME==VERSION/MEMBER#sha256=HEX",
        )
    return {"file": text.removeprefix("file:")}
