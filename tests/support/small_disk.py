"""File systems of a few kilobytes, to be full when a test wants it."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from labctl import process


@contextmanager
def small_disk(path: Path, kilobytes: int) -> Iterator[Path]:
    """A file system of its own at ``path``; the test is skipped where none may be mounted."""
    path.mkdir(exist_ok=True)
    if shutil.which("mount") is None:
        pytest.skip("no mount program: no disk to fill")
    words = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", path]
    done = process.run(words, timeout=120)
    if done.exit_status != 0:
        pytest.skip(f"no disk to fill: {done.tail().strip()}")
    try:
        yield path
    finally:
        # Lazily: what a killed board left running may have files open.
        assert process.run(["umount", "-l", path], timeout=120).exit_status == 0


def may_mount() -> bool:
    """Tell whether this user may mount a file system of its own."""
    return os.geteuid() == 0 and shutil.which("mount") is not None


def fill(folder: Path) -> None:
    """Use up all that is left of the disk that a folder is on."""
    with (folder / "filling").open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return
