"""Format of a bundle: a zip of plain files, a manifest with their hashes, maybe a signature.

::

    bundle.json                  the manifest: hash and size of all others, what was left out
    bundle.json.sig              its signature, by ``ssh-keygen -Y sign``
    README.txt                   what this is, and the command that makes it again
    recipe.yaml                  the recipe as written
    recipe.resolved.yaml         the recipe as it was run, defaults included
    models.json                  where each model comes from, with its hash
    probe.json                   rates of the board, measured nearest before the run
    report.html                  the report; its tables in report.md and report.txt
    inputs/prompt.txt, inputs/files/NAME
    build/PRODUCT/manifest.json, bill-of-materials.json, spec.yaml, patches/...
    run/...                      the run directory: records, plan, events, raw logs

Readers refuse bundles beyond the bounds here, and writers do not make such bundles.
"""

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, JsonValue

from labctl.errors import ConfigError
from labctl.records.base import Record
from labctl.units import counted

SUFFIX = ".labctl.zip"
MANIFEST = "bundle.json"
SIGNATURE = "bundle.json.sig"
#: Namespace of ``ssh-keygen -Y``, so that signatures for other purposes are not valid for a bundle.
NAMESPACE = "bundle@labctl"

#: Largest bundle file, sum of its entries, entry, manifest and signature, in bytes.
MOST_FILE_BYTES = 512 << 20
MOST_BYTES = 1 << 30
MOST_ENTRY_BYTES = 256 << 20
MOST_MANIFEST_BYTES = 8 << 20
MOST_SIGNATURE_BYTES = 64 << 10
#: Largest record of a trial, which contains the time of every token.
MOST_RECORD_BYTES = 16 << 20
MOST_ENTRIES = 20_000
#: Largest compression ratio of an entry; an entry that compresses better is stored uncompressed.
MOST_RATIO = 100
LONGEST_NAME = 200
DEEPEST = 6

#: Allowed names of entries: they mean the same to every file system and terminal.
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.+=@,-]*"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
#: Windows opens a device for these names, with any suffix.
_DEVICES = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")


class NotABundle(ConfigError):
    """The file is not a bundle, is damaged, or was made to do harm. Nothing in it was used."""


class Entry(Record):
    """A file of the bundle."""

    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    size_bytes: int = Field(ge=0)


#: Kind of identities -> its words.
REPLACED = {
    "host": "names of hosts",
    "user": "names of users",
    "home": "home folders",
    "lab": "the lab's folder",
    "path": "paths on this host",
    "serial": "serial numbers",
    "boot": "ids of a board's start (boot_id)",
    "address": "network addresses",
    "key": "keys and passwords",
}


class LeftOut(Record):
    """One kind of replaced identities."""

    kind: str = Field(description="host, user, home, lab, path, serial, boot, address, key")
    times: int
    entries: tuple[str, ...] = Field(description="where")

    def __str__(self) -> str:
        """Return it for people: ``serial numbers (13 replaced in 2 files)``."""
        where = counted(len(self.entries), "file")
        return f"{REPLACED.get(self.kind, self.kind)} ({self.times} replaced in {where})"


class ModelOrigin(Record):
    """Source of a model."""

    key: str = Field(description="its name in the recipe")
    file: str | None = Field(None, description="base name of the file that was measured")
    sha256: str | None = Field(None, description="None: never had by itself, only made from")
    size_bytes: int | None = None
    quantization: str | None = None
    source: dict[str, JsonValue] = Field(description="as in a recipe, without local paths")
    commit: str | None = Field(None, description="the hub's commit that the file was taken from")
    quantizer: str | None = Field(None, description="SHA-256 of the llama-quantize that made it")
    public: bool = Field(description="True if everybody can get it from its source")


class ModelOrigins(Record):
    """``models.json``."""

    models: tuple[ModelOrigin, ...]


class BundleManifest(Record):
    """``bundle.json``."""

    labctl_bundle: Literal[1] = Field(1, description="version of this format")
    run: str
    recipe: str
    target: str
    labctl_version: str = Field(description="of the labctl that made the bundle")
    with_identity: bool = Field(description="True: nothing was left out")
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = Field((), description="what is missing, and why")
    entries: dict[str, Entry] = Field(description="every file but this one and its signature")

    def document(self, file: Path) -> dict[str, object]:
        """Return the manifest as JSON; the bundle's file comes first."""
        return {"file": str(file), **self.model_dump(mode="json")}


def name_problem(name: str) -> str | None:
    """Return the reason why an entry must not have this name; None if it is allowed."""
    if len(name) > LONGEST_NAME:
        return f"a name of {len(name)} characters; the most is {LONGEST_NAME}"
    if not _NAME.fullmatch(name):
        return f"the name {name!r}"
    parts = name.split("/")
    if len(parts) > DEEPEST:
        return f"a name of {len(parts)} folders deep, {name!r}; the most is {DEEPEST}"
    if any(part.endswith(".") or _DEVICES.fullmatch(part) for part in parts):
        return f"the name {name!r}"
    return None
