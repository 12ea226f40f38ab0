"""A source as one compressed tar; the same source always gives the same bytes."""

import gzip
import tarfile
from collections.abc import Callable
from pathlib import Path

from labctl.build.source import source_files
from labctl.file_hashes import sha256_file
from labctl.files import host_writes, write_atomic
from labctl.folders import cache_dir

#: Low: compression must be faster than the network.
COMPRESSION = 3
#: Time of all files in it, so that only content counts.
_TIME = 315532800  # 1980-01-01


def known_digest(source_digest: str) -> str | None:
    """Return the SHA-256 of the archive of a source that was sent before."""
    try:
        digest = _record(source_digest).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    is_digest = len(digest) == 64 and not set(digest) - set("0123456789abcdef")
    return digest if is_digest else None


def make_archive(
    source: Path, source_digest: str, archive: Path, verify_source: Callable[[], None]
) -> str:
    """Pack a source; return the archive's SHA-256.

    From now on, later builds use the archive for ``source_digest``. So after reading,
    ``verify_source`` must check that the source still matches. Raises its errors, HostError,
    ConfigError.
    """
    with (
        host_writes(archive),
        archive.open("wb") as raw,
        gzip.GzipFile("", "wb", COMPRESSION, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for name in sorted(source_files(source)):
            _add(tar, source, name)
    verify_source()
    digest = sha256_file(archive)
    write_atomic(_record(source_digest), f"{digest}\n")
    return digest


def _record(source_digest: str) -> Path:
    return cache_dir() / "archives" / source_digest


def _add(tar: tarfile.TarFile, source: Path, name: str) -> None:
    path = source / name
    entry = tarfile.TarInfo(name)
    entry.mtime = _TIME
    if path.is_symlink():
        entry.type = tarfile.SYMTYPE
        entry.linkname = str(path.readlink())
        tar.addfile(entry)
    elif path.is_file():
        status = path.stat()
        entry.size = status.st_size
        entry.mode = 0o755 if status.st_mode & 0o100 else 0o644
        with path.open("rb") as content:
            tar.addfile(entry, content)
