"""Paths on the board of the files that a host sends.

The rules are those of the reference. Paths are texts, not :class:`pathlib.Path`: a
final slash means something here. Bytes that are no UTF-8 stand in them as surrogates.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

from labctl.errors import ProtocolError

#: Directories that a transfer makes; the process's umask is taken off.
DIRECTORY_MODE = 0o750


class Placing:
    """The files of one transfer, which are named one by one, and their place below a destination.

    ``destination`` is looked at once, when the first file is named: later it may exist because
    the transfer made it.
    """

    def __init__(self, destination: str):
        self.destination = destination
        self._root: str | None = None
        self._drops_top = False

    @property
    def keeps_top(self) -> bool:
        """True if a directory keeps its own name below the destination, because that exists.

        Known when its first file was named. Only then does the reference set directories' modes.
        """
        return self._root is not None and not self._drops_top

    def place(self, name: str) -> str:
        """Return the path of the file that the sender calls ``name``: ``a.txt``, ``top/sub/a.txt``.

        Raises ProtocolError for a name that would lead elsewhere (a hostile sender must not choose
        where it writes), NotADirectoryError when a directory is sent to what is a file or a link.
        """
        components = _components(name)
        if len(components) == 1:
            if is_directory(self.destination):
                return _join(self.destination, name)
            if self.destination.endswith("/") and not os.path.lexists(self.destination):
                return self.destination + name
            return self.destination
        if self._root is None:
            self._root = self._decide()
        if self._drops_top:
            # What is left is taken apart anew: a backslash may separate now that did not before.
            components = _components(name[len(components[0]) + 1 :])
        return _join(self._root, *components)

    def directory(self, name: str) -> str:
        """Return the path of a directory of a transfer that :attr:`keeps_top`. Raises
        ProtocolError.
        """
        return _join(self.destination, *_components(name))

    def _decide(self) -> str:
        self._drops_top = not os.path.lexists(self.destination)
        if not self._drops_top and not is_directory(self.destination):
            raise NotADirectoryError(self.destination)
        return self.destination


def is_directory(path: str) -> bool:
    """Return True if a directory is there; a link to one counts only with a slash after it."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False  # a path that cannot be is no directory


def make_parents(path: str) -> None:
    """Make the directories above ``path`` that are missing. Raises OSError, ValueError."""
    missing = []
    parent = Path(path).parent
    while not parent.exists():
        missing.append(parent)
        parent = parent.parent
    for directory in reversed(missing):
        with suppress(FileExistsError):  # another transfer may have made it just now
            directory.mkdir(DIRECTORY_MODE)


def _components(name: str) -> list[str]:
    """Split a name into its parts; Windows hosts separate them with backslashes."""
    components = name.split("/" if "/" in name else "\\")
    if "\0" in name or any(part in ("", "..") for part in components):
        raise ProtocolError(
            f"the peer names a file {name!r}, which no file in a transfer is called"
        )
    return components


def _join(directory: str, *names: str) -> str:
    return os.path.join(directory, *names)  # noqa: PTH118 - a path stays as it was typed
