"""The part of a build spec that says where the source comes from."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from labctl.checked import HostPath, Word
from labctl.config.types import Line, Sha256
from labctl.config.yaml.document import StrictModel

Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


def _archive_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("https", "http", "file") or not parts.path.strip("/"):
        raise ValueError("must be the address of a file: https://..., http://... or file:///...")
    if "@" in parts.netloc:
        raise ValueError("must hold no user name or password: manifests would show it")
    return text


class PackageSource(StrictModel):
    """A source archive of the Python package index, pinned by its hash."""

    package: Word
    """Name of the package."""
    release: Word
    """Its release."""
    sha256: Sha256
    """SHA-256 of the release's source archive."""
    subdirectory: HostPath | None = None
    """The part of the archive that is the source."""
    commit: Commit | None = None
    """Git commit that the archive's own .git must prove."""


class ArchiveSource(StrictModel):
    """An archive at an address, pinned by its hash: tar (gzip, bzip2, xz) or zip."""

    archive: Annotated[Line, AfterValidator(_archive_url)]
    """Address of the archive."""
    sha256: Sha256
    """SHA-256 of the archive."""
    subdirectory: HostPath | None = None
    """The part of it that is the source, below its one top folder."""


class GitSource(StrictModel):
    """A git repository at one commit, tag or branch."""

    git: Line
    """Address of the repository."""
    ref: Line
    """Tag, branch or full commit."""


class FolderSource(StrictModel):
    """A folder that lies beside the spec."""

    folder: HostPath
    """The folder; a relative path begins at the spec's own folder."""


class SdkSource(StrictModel):
    """A source tree that the user supplies, on the machine that builds."""

    kit: Word
    """The parameter that names it."""


AnySource = PackageSource | ArchiveSource | GitSource | FolderSource | SdkSource
