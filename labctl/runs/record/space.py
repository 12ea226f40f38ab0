"""Disk space for a trial's files: asked before the trial begins, not found out in its middle."""

import os
from pathlib import Path

from labctl.errors import HostError
from labctl.files import host_reads
from labctl.runs.record.directory import RunDirectory
from labctl.units import size

#: A short trial's files, and the end of the run.
LEAST_BYTES = 128_000
#: A trial may take longer than those before it, and its record is written twice.
_MARGIN = 2
#: Files of a trial and of the run's end, with their temporary names.
_FILES = 32


def check_space(directory: RunDirectory) -> None:
    """Raise HostError if the disk has too little space for another trial of this run.

    A trial needs what the largest finished one has, twice; the first of a run, what a short one
    has. What quotas leave is not always told: a full disk in the middle of a trial is still an
    error of its own.
    """
    sizes = [directory_bytes(path.parent) for path in directory.records()]
    needed = max(LEAST_BYTES, _MARGIN * max(sizes, default=0))
    free, files = free_space(directory.path)
    if free < needed or (files is not None and files < _FILES):
        left = f"{size(free)} free" if free < needed else f"{files} files more"
        raise HostError(
            f"the disk of {directory.path} is nearly full: {left}, and a trial of this run needs"
            f" {size(needed)}",
            hint="free some space on this host (`labctl runs prune` moves old runs to the trash,"
            " `labctl runs trash empty` removes them), then `labctl resume`",
        )


def free_space(folder: Path) -> tuple[int, int | None]:
    """Return the bytes and the number of files that this user may still write; None: no limit."""
    with host_reads(folder):
        found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None


def directory_bytes(folder: Path) -> int:
    """Return the space on disk that a folder's files take, with all below it."""
    total = 0
    with host_reads(folder), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                total += directory_bytes(Path(entry.path))
            else:
                total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total
