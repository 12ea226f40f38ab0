"""Files that are compressed to save space, and read as if they were not."""

import gzip
import zlib
from pathlib import Path

from labctl.files import host_writes, sync_directory, write_atomic
from labctl.runs.record.directory import COMPRESSED

#: Far more than any record; a hostile file would grow without end.
_MOST_BYTES = 256 << 20


def compress(path: Path) -> int:
    """Replace a file by ``NAME.gz``; return the bytes that it freed. Raises HostError.

    A kill leaves one of them whole, or both.
    """
    with host_writes(path):
        plain = path.read_bytes()
        packed = gzip.compress(plain, mtime=0)
        write_atomic(path.with_name(path.name + COMPRESSED), packed)
        path.unlink()
        sync_directory(path.parent)
    return len(plain) - len(packed)


def decompressed(path: Path) -> bytes:
    """Return what :func:`compress` was given. Raises OSError, and ValueError if it is damaged."""
    try:
        with gzip.open(path) as file:
            found = file.read(_MOST_BYTES)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"not a gzip file: {error}") from error
    if len(found) == _MOST_BYTES:
        raise ValueError("more than 256 MiB")
    return found
