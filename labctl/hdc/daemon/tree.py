"""What ``hdc file recv`` finds below a path. Links are followed, empty directories lost."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from labctl.hdc.daemon.disk import cannot_open
from labctl.hdc.messages import FileMode


class Entry(NamedTuple):
    """A file or directory: where it is, and what the host is told it is called."""

    path: str
    name: str


@dataclass
class Tree:
    """The files in the order they are sent, the modes of the directories with the deepest first,
    and why some could not be looked into.
    """

    files: list[Entry] = field(default_factory=list)
    directories: list[FileMode] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def walk(path: str) -> Tree:
    """The one file at ``path``, whatever it is, or all that are below that directory."""
    top = Entry(path, Path(path).name)
    if not os.path.isdir(path):  # noqa: PTH112 - a path that cannot be is no directory
        return Tree(files=[top])
    tree = Tree()
    found: list[list[Entry]] = []
    waiting: list[tuple[Entry, frozenset[tuple[int, int]]]] = [(top, frozenset())]
    while waiting:
        directory, ancestors = waiting.pop()
        try:
            status = os.stat(directory.path)  # noqa: PTH116 - as it was typed
            identity = (status.st_dev, status.st_ino)
            if identity in ancestors:
                continue  # a link back to where we come from
            entries = sorted(_entries(directory))
        except OSError as error:
            tree.failures.append(cannot_open(error, directory.path))
            continue
        tree.directories.append(
            FileMode(status.st_mode, status.st_uid, status.st_gid, full_name=directory.name)
        )
        found.append([entry for is_directory, entry in entries if not is_directory])
        waiting += [
            (entry, ancestors | {identity}) for is_directory, entry in entries if is_directory
        ]
    tree.directories.reverse()
    tree.files = [entry for files in reversed(found) for entry in files]
    return tree


def _entries(directory: Entry) -> Iterator[tuple[bool, Entry]]:
    with os.scandir(directory.path) as entries:
        for entry in entries:
            yield entry.is_dir(), Entry(entry.path, f"{directory.name}/{entry.name}")
