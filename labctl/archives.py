"""Opens archives of strangers: tar and zip files whose headers may say anything.

What a header claims costs no memory: Python's tarfile and zipfile would read a name of gigabytes,
or a directory with a million entries.
"""

import bz2
import errno
import gzip
import importlib
import lzma
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from labctl.errors import IntegrityError
from labctl.units import size

if sys.version_info < (3, 11, 4):  # as Debian 12 has it, without filters
    tarfile: Any = importlib.import_module("backports.tarfile")
else:
    tarfile = importlib.import_module("tarfile")

#: The source of a large program has 4 GB in 100,000 files.
MOST_BYTES = 16 << 30
_MOST_FILES = 1_000_000
#: Longest header, and directory of a zip file: 300,000 files.
_LONGEST_HEADER = 1 << 20
_LONGEST_DIRECTORY = 16 << 20
_OPENERS: tuple[tuple[bytes, Any], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ\0", lzma.open),
    (b"", lambda path: path.open("rb")),
)
#: What the readers of Python raise for damaged archives, beside an OSError without a number.
_BROKEN = (
    *(tarfile.TarError, zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, lzma.LZMAError),
    *(EOFError, ValueError, OverflowError, RecursionError, NotImplementedError, KeyError),
)
#: Names that no file system takes, or that are a file and a folder.
_OF_NAMES = (
    *(None, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP),
    *(errno.EINVAL, errno.EILSEQ, errno.ENOTEMPTY),
)


@contextmanager
def unpacking(name: str, problem: str = "cannot be unpacked") -> Iterator[None]:
    """Raise IntegrityError for what is wrong with an archive that is read in the block."""
    try:
        yield
    except (*_BROKEN, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _OF_NAMES:
            raise  # the host's
        reason = getattr(error, "strerror", None) or str(error)
        raise IntegrityError(f"{name} {problem}: {reason[:200]}") from error


def is_tar(archive: Path) -> bool:
    """Return True if a file begins as a tar file does, compressed or not."""
    try:
        with unpacking(archive.name), open_tar(archive):
            return True
    except IntegrityError:
        return False


@contextmanager
def open_tar(archive: Path) -> Iterator[Any]:
    """Open a tar file, compressed or not, as tarfile does; not one with endless headers."""
    with archive.open("rb") as file:
        begin = file.read(6)
    opener = next(opener for magic, opener in _OPENERS if begin.startswith(magic))
    with opener(archive) as plain, tarfile.open(fileobj=_ShortReads(plain), mode="r:") as tar:
        yield tar


def members(tar: Any, *, most_bytes: int = MOST_BYTES) -> Iterator[Any]:
    """Yield the members of a tar file one by one. Raises ValueError for too many."""
    number = total = 0
    while (member := tar.next()) is not None:
        number, total = number + 1, total + member.size
        if member.size < 0:
            raise ValueError(f"{member.name!r} has a negative size")
        _check(number, total, most_bytes)
        yield member
        tar.members.clear()  # tarfile keeps them all; a link finds its file in the folder


@contextmanager
def open_zip(archive: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip file whose directory is of bounded size. Raises as :func:`unpacking` expects."""
    with archive.open("rb") as raw:
        end = zipfile._EndRecData(raw)  # type: ignore[attr-defined]
        if end and end[5] > _LONGEST_DIRECTORY:
            raise zipfile.BadZipFile(f"its directory has {size(end[5])}")
        with zipfile.ZipFile(raw) as file:
            yield file


def entries(file: zipfile.ZipFile, *, most_bytes: int = MOST_BYTES) -> Iterator[zipfile.ZipInfo]:
    """Yield the entries of a zip file. Raises ValueError for too many, or another method."""
    total = 0
    for number, entry in enumerate(file.infolist(), 1):
        total += entry.file_size
        _check(number, total, most_bytes)
        if entry.flag_bits & 1:
            raise ValueError("it is encrypted")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{entry.filename!r} is packed by method {entry.compress_type}")
        yield entry


def _check(files: int, total: int, most_bytes: int) -> None:
    if files > _MOST_FILES or total > most_bytes:
        raise ValueError(f"it has more than {_MOST_FILES:,} files, or more than {size(most_bytes)}")


class _ShortReads:
    """A file that is read in short pieces: a long piece would be a header's claim."""

    def __init__(self, file: IO[bytes]):
        self._file = file

    def read(self, count: int) -> bytes:
        if not 0 <= count <= _LONGEST_HEADER:
            raise tarfile.ReadError(f"a header of {count:,} bytes")
        return self._file.read(count)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
