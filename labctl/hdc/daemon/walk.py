"""The files that ``hdc file recv`` finds below a path.

hdcd follows no link to a directory: it sends the link as a file, which ends the transfer. Pipes and
character devices are left out silently, empty directories are lost.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from labctl.hdc.destination import is_directory
from labctl.hdc.messages import FileMode


class Entry(NamedTuple):
    """A file or directory: where it is, and its name for the host."""

    path: str
    name: str


@dataclass
class Tree:
    """The files in the order they are sent, the modes of the directories with the deepest first,
    and the reasons why some could not be read.
    """

    files: list[Entry] = field(default_factory=list)
    directories: list[FileMode] = field(default_factory=list)
    failures: list[tuple[str, OSError]] = field(default_factory=list)


def walk(path: str) -> Tree:
    """Return the one file at ``path``, or all files below that directory."""
    top = Entry(path, Path(path).name)
    if not is_directory(path):
        return Tree(files=[top])
    tree = Tree()
    found: list[list[Entry]] = []
    waiting = [top]
    while waiting:
        directory = waiting.pop()
        try:
            status = os.stat(directory.path)  # noqa: PTH116 - as it was typed
            entries = sorted(_entries(directory))
        except OSError as error:
            tree.failures.append((directory.path, error))
            continue
        tree.directories.append(
            FileMode(status.st_mode, status.st_uid, status.st_gid, full_name=directory.name)
        )
        found.append([entry for is_folder, entry in entries if not is_folder])
        waiting += [entry for is_folder, entry in entries if is_folder]
    tree.directories.reverse()
    tree.files = [entry for files in reversed(found) for entry in files]
    return tree


def _entries(directory: Entry) -> Iterator[tuple[bool, Entry]]:
    with os.scandir(directory.path) as entries:
        for entry in entries:
            mode = entry.stat(follow_symlinks=False).st_mode
            if not stat.S_ISFIFO(mode) and not stat.S_ISCHR(mode):
                name = f"{directory.name}/{entry.name}"
                yield stat.S_ISDIR(mode), Entry(entry.path, name)
