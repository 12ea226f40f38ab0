"""Source archives at an address, pinned by their hash; and unpacking of any archive."""

import shutil
import time
import zipfile
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from labctl.archives import entries, is_tar, members, open_tar, open_zip, unpacking
from labctl.build.manifest import SourceIdentity
from labctl.build.progress import BuildProgress, OnProgress, Step
from labctl.build.source import Source, fetching, keep
from labctl.build.spec import ArchiveSource
from labctl.errors import ConfigError, HostError, HostTimeout, IntegrityError
from labctl.file_hashes import sha256_file
from labctl.files import host_reads, host_writes
from labctl.http import Unreachable, media_type, pieces, request

FETCH_SECONDS = 1800.0
#: Time (s) after which a silent server counts as gone.
SILENCE_SECONDS = 60.0
LOCK_SECONDS = FETCH_SECONDS + 300


class Archive(Source):
    """A pinned archive; kept unpacked in the cache under its hash."""

    def __init__(self, pinned: ArchiveSource):
        self.pinned = pinned
        self.identity = SourceIdentity(
            kind="archive",
            location=pinned.archive,
            subdirectory=pinned.subdirectory,
            sha256=pinned.sha256,
        )

    def fetch(self, on_progress: OnProgress) -> Path:
        """Return the unpacked source.

        Raises HostError, HostTimeout, IntegrityError if the archive is not the pinned one,
        ConfigError if the address has no archive, or the archive lacks what the spec names.
        """
        if not self.home.is_dir():
            on_progress(BuildProgress(Step.SOURCE, f"fetch {self.identity.location}"))
        with fetching(self.home, timeout=LOCK_SECONDS) as scratch:
            if scratch is not None:
                self._fetch_into(scratch, on_progress)
        return self.home

    def _fetch_into(self, scratch: Path, on_progress: OnProgress) -> None:
        name = PurePosixPath(unquote(urlsplit(self.pinned.archive).path)).name
        archive = scratch / "archive"
        sent = download(self.pinned.archive, archive, on_progress)
        found = sha256_file(archive)
        if found != self.pinned.sha256:
            raise IntegrityError(
                f"{self.identity.location} is not the pinned archive, sha256 {self.pinned.sha256}: "
                f"it has {found} ({archive.stat().st_size} bytes{sent and f', {sent}'})",
                hint="the download is damaged, or this address serves another file, or a page of"
                " a proxy or a login",
            )
        on_progress(BuildProgress(Step.SOURCE, f"unpack {name}"))
        tree = unpack(archive, scratch / "tree", name) / (self.pinned.subdirectory or "")
        if not tree.is_dir():
            raise ConfigError(f"{name} has no folder {self.pinned.subdirectory!r}")
        keep(tree, self.home)


def download(
    address: str, to: Path, on_progress: OnProgress, *, silence_seconds: float = SILENCE_SECONDS
) -> str:
    """Fetch a file by https, http or from this host; return its type if a server sent it.

    Raises ConfigError if there is no archive, HostError if it cannot be fetched, HostTimeout.
    """
    if address.startswith("file:"):
        here = Path(url2pathname(urlsplit(address).path))
        if not here.is_file():
            raise ConfigError(f"not found: {address}")
        with host_reads(here):
            file = here.open("rb")
        with file, host_writes(to), to.open("wb") as copy:
            shutil.copyfileobj(file, copy)
        return ""
    try:
        return _receive(address, to, on_progress, silence_seconds)
    except Unreachable as error:
        if error.timed_out:
            raise HostTimeout(f"cannot fetch {address}: the server is silent") from error
        raise HostError(
            f"cannot fetch {address}: {error.reason}", hint="is the network there?"
        ) from error


def _receive(address: str, to: Path, on_progress: OnProgress, silence_seconds: float) -> str:
    deadline, done = time.monotonic() + FETCH_SECONDS, 0
    with request("GET", address, silence_s=silence_seconds) as answer:
        if answer.status_code in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
            raise ConfigError(f"not found: {address}")
        if answer.status_code != HTTPStatus.OK:
            raise HostError(f"cannot fetch {address}: the server answered {answer.status_code}")
        total = int(answer.headers.get("Content-Length") or 0) or None
        with host_writes(to), to.open("wb") as file:
            for block in pieces(answer):
                file.write(block)
                done += len(block)
                on_progress(BuildProgress(Step.SOURCE, to.name, done, total))
                if time.monotonic() > deadline:
                    raise HostTimeout(f"{address} did not arrive within {FETCH_SECONDS:g} s")
        return media_type(answer)


def unpack(archive: Path, folder: Path, name: str | None = None) -> Path:
    """Unpack an archive into a new folder; return its single top folder, or the new folder.

    Refuses members that would land outside, devices, and links out of the folder (tarfile's filter
    ``data``), and any link in a zip file. Raises IntegrityError for a broken or refused archive,
    ConfigError for another kind of file.
    """
    name = name or archive.name
    with host_writes(folder), unpacking(name):
        folder.mkdir()
        if zipfile.is_zipfile(archive):
            _unzip(archive, folder)
        elif is_tar(archive):
            with open_tar(archive) as tar:
                for member in members(tar):
                    tar.extract(member, folder, filter="data")
        elif name.endswith((".tar", ".gz", ".tgz", ".bz2", ".xz", ".zip")):
            raise ValueError("it is damaged")
        else:
            raise ConfigError(f"{name} is neither a tar nor a zip archive")
    tops = list(folder.iterdir())
    return tops[0] if len(tops) == 1 and tops[0].is_dir() else folder


def _unzip(archive: Path, folder: Path) -> None:
    with open_zip(archive) as file:
        for member in entries(file):
            path = PurePosixPath(member.filename.replace("\\", "/"))
            mode = member.external_attr >> 16
            if path.is_absolute() or ".." in path.parts or mode & 0o170000 == 0o120000:
                raise ValueError(f"{member.filename!r} is refused")
            placed = Path(file.extract(member, folder))
            if not member.is_dir() and mode & 0o111:
                placed.chmod(0o755)
