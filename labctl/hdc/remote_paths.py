"""LZ4 and the paths of files on the board, for both ends of a file transfer.

Each compressed chunk is one raw block; its sizes are sent separately. Format:
https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md

Paths follow the rules of the reference. Paths are strings, not :class:`pathlib.Path`: a final slash
matters here. Bytes that are not UTF-8 are kept as surrogates.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

from labctl.errors import ProtocolError

#: Mode of directories made by a transfer, before the process's umask.
DIRECTORY_MODE = 0o750


class Placing:
    """The paths, below a destination, of one transfer's files, named one by one.

    ``destination`` is checked only when the first file is named: later it may exist because the
    transfer made it.
    """

    def __init__(self, destination: str):
        self.destination = destination
        self._root: str | None = None
        self._drops_top = False

    @property
    def keeps_top(self) -> bool:
        """True if a directory keeps its own name below the destination, because that exists.

        Known once the first file is named. The reference sets directories' modes only if this is
        True.
        """
        return self._root is not None and not self._drops_top

    def place(self, name: str) -> str:
        """Return the path of the file that the sender calls ``name``: ``a.txt``, ``top/sub/a.txt``.

        Raises ProtocolError if the name leads outside (a hostile sender must not choose where it
        writes), NotADirectoryError if a directory is sent to a file or a link.
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
            # Split the rest again: a backslash may now be a separator.
            components = _components(name[len(components[0]) + 1 :])
        return _join(self._root, *components)

    def directory(self, name: str) -> str:
        """Return the path of a directory if :attr:`keeps_top`. Raises ProtocolError."""
        return _join(self.destination, *_components(name))

    def _decide(self) -> str:
        self._drops_top = not os.path.lexists(self.destination)
        if not self._drops_top and not is_directory(self.destination):
            raise NotADirectoryError(self.destination)
        return self.destination


def is_directory(path: str) -> bool:
    """Return True if a directory is there; a link counts only with a slash after it."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False  # an impossible path is not a directory


def make_parents(path: str) -> None:
    """Make the missing directories above ``path``. Raises OSError, ValueError."""
    missing = []
    parent = Path(path).parent
    while not parent.exists():
        missing.append(parent)
        parent = parent.parent
    for directory in reversed(missing):
        with suppress(FileExistsError):  # another transfer may have just made it
            directory.mkdir(DIRECTORY_MODE)


def _components(name: str) -> list[str]:
    """Split a name into its parts; names from Windows hosts contain backslashes."""
    components = name.split("/" if "/" in name else "\\")
    if "\0" in name or any(part in ("", "..") for part in components):
        raise ProtocolError(
            f"the peer names a file {name!r}, which no file in a transfer is called"
        )
    return components


def _join(directory: str, *names: str) -> str:
    return os.path.join(directory, *names)  # noqa: PTH118 - keeps a path as it was typed
