"""Run directories on disk: their files, compressed or not, their space, and the free space.

A full disk must not interrupt a trial: the free space is checked before it begins.
"""

import json
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from labctl.config.yaml.messages import path_text
from labctl.errors import ConfigError, HostError
from labctl.files import host_reads, host_writes, sync_directory, write_atomic
from labctl.records.base import GREATEST_NUMBER, FileRecord, read_record
from labctl.units import size

T = TypeVar("T")
RecordT = TypeVar("RecordT", bound=FileRecord)

#: Ending of a file that :func:`compress` made.
COMPRESSED = ".gz"
#: Far more than any record; a hostile file could decompress without end.
_MOST_BYTES = 256 << 20
_MOST_PROBLEMS = 3
#: Bytes of a short trial's files and of the end of the run.
LEAST_BYTES = 128_000
#: Files of which each makes a directory a run, one for each kind of run.
KINDS = ("run.json", "evaluation.json", "serving.json")
#: File with the number of recording of a run without one of :data:`KINDS` yet.
NUMBER = "recording"
#: The beginning of a file of :data:`KINDS` written by labctl.
_RECORDED = re.compile(rb'\{\s*"schema_version": \d+,\s*"recorded": (\d+)\s*[,}]')
_BEGINNING = 128
#: Factor: a trial may be longer than earlier trials, and its record is written twice.
_MARGIN = 2
#: Number of files of a trial and of the run's end, with their temporary names.
_FILES = 32


def read_file(path: Path, kind: type[RecordT]) -> RecordT:
    """Return the record in a file. Raises ConfigError if it cannot be read."""
    return reading(path, partial(read_record, kind))


def reading(path: Path, read: Callable[[bytes, Path], T]) -> T:
    """Return the result of ``read`` on a file's content.

    Raises ConfigError with the first problems if it is not a record.
    """
    try:
        is_packed = path.suffix == COMPRESSED
        return read(_decompressed(path) if is_packed else path.read_bytes(), path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(
            f"{path} is not a record that this labctl knows",
            hint="the file is damaged",
            details=_problems(error),
        ) from error


def compress(path: Path) -> int:
    """Replace a file by ``NAME.gz``; return the bytes that it freed. Raises HostError.

    A kill leaves one of the files complete, or both.
    """
    import gzip

    with host_writes(path):
        plain = path.read_bytes()
        packed = gzip.compress(plain, mtime=0)
        write_atomic(path.with_name(path.name + COMPRESSED), packed)
        path.unlink()
        sync_directory(path.parent)
    return len(plain) - len(packed)


def check_space(run: Path, trials: Iterable[Path]) -> None:
    """Raise HostError if a run's disk has too little space for a trial beside these folders.

    A trial needs twice the space of the largest finished trial; the first trial of a run needs the
    space of a short trial. Quotas are not always reported: a disk that fills during a trial is
    still a separate error.
    """
    sizes = [directory_bytes(folder) for folder in trials]
    needed = max(LEAST_BYTES, _MARGIN * max(sizes, default=0))
    free, files = free_space(run)
    if free < needed or (files is not None and files < _FILES):
        left = f"{size(free)} free" if free < needed else f"{files} files more (inodes)"
        raise HostError(
            f"the disk of {run} is nearly full: {left}, and a trial of this run needs"
            f" {size(needed)}",
            hint="free some space on this host (`labctl runs prune` moves old runs to the trash,"
            " `labctl runs trash empty` removes them), then `labctl resume`",
        )


def number_of(run: str) -> int:
    """Return the number of recording in a run directory; 0 without a readable number.

    Only the beginning of a file is read: there may be thousands of runs.
    """
    for name in (*KINDS, NUMBER):
        try:
            file = os.open(f"{run}/{name}", os.O_RDONLY)
            try:
                text = os.read(file, _BEGINNING)
            finally:
                os.close(file)
            if name == NUMBER:
                number = int(text)
            elif found := _RECORDED.match(text):
                number = int(found[1])
            else:  # no number, or another program rewrote the file
                number = json.loads(Path(run, name).read_bytes()).get("recorded")
            # Real numbers are far smaller: a damaged number must leave room for the next number.
            return number if type(number) is int and 0 < number <= GREATEST_NUMBER >> 1 else 0
        except FileNotFoundError:
            continue
        except (OSError, ValueError, AttributeError, RecursionError):
            return 0  # readers of the record get the error
    return 0


def free_space(folder: Path) -> tuple[int, int | None]:
    """Return the bytes and the number of files that this user may still write; None: no limit."""
    with host_reads(folder):
        found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None


def directory_bytes(folder: Path) -> int:
    """Return the disk space of a folder with everything below it.

    Files that disappear meanwhile count as 0: temporary files, or a removed run. Raises ConfigError
    for a folder that this user may not read.
    """
    total = 0
    with host_reads(folder), suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                total += directory_bytes(Path(entry.path))
                continue
            with suppress(FileNotFoundError):
                total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total


def _decompressed(path: Path) -> bytes:
    import gzip
    import zlib

    try:
        with gzip.open(path) as file:
            found = file.read(_MOST_BYTES)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"not a gzip file: {error}") from error
    if len(found) == _MOST_BYTES:
        raise ValueError("more than 256 MiB")
    return found


def _problems(error: ValueError) -> str:
    """Return pydantic's first problems, one per line."""
    if not isinstance(error, ValidationError):
        return str(error)
    problems = error.errors(include_url=False)
    lines = [": ".join(filter(None, (path_text(p["loc"]), p["msg"]))) for p in problems]
    return "\n".join(lines[:_MOST_PROBLEMS] + (["..."] if len(lines) > _MOST_PROBLEMS else []))
