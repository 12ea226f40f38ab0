"""Ends of forwarded connections on a board, named as hdc does: ``KIND:ADDRESS``."""

import asyncio
import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_LOOPBACK = "127.0.0.1"
_LAST_PORT = 65535
#: Folder of each kind of Unix socket, below the board's directory. A real board uses /tmp for
#: ``localfilesystem``, but here that is this computer's /tmp.
_FOLDERS = {"localabstract": "", "localfilesystem": "", "localreserved": "dev/unix/socket"}
#: Debuggers and devices: hdcd accepts rules for them; a virtual board has none.
_ABSENT = ("dev", "jdwp", "ark")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Node:
    """A TCP port on loopback, a Unix socket, or a kind that a virtual board lacks.

    TCP ports and abstract names are shared with all boards of the host.
    """

    def __init__(self, kind: str, address: str, directory: Path):
        self.kind = kind
        self.address = address
        self._port = int(address) if kind == "tcp" else None
        self._path = str(directory / _FOLDERS.get(kind, "") / address)

    @classmethod
    def parse(cls, text: str, directory: Path) -> "Node | None":
        """Return the node that a text names; None if hdcd does not know such nodes."""
        kind, _, address = text.partition(":")
        known = kind == "tcp" or kind in _FOLDERS or kind in _ABSENT
        if not known or not is_well_formed(text):
            return None
        return cls(kind, address, directory)

    async def connect(self) -> Streams:
        """Connect to the node. Raises OSError, ValueError."""
        if self.kind in _ABSENT:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        if self._port is not None:
            return await asyncio.open_connection(_LOOPBACK, self._port)
        path = f"\0{self.address}" if self.kind == "localabstract" else self._path
        return await asyncio.open_unix_connection(path)

    async def bind(
        self, accepted: Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]
    ) -> asyncio.Server | None:
        """Bind a server to the node, without listening yet; None if no client can ever connect.

        Raises OSError, ValueError.
        """
        if self.kind in _ABSENT:
            return None
        if self._port is not None:
            return await asyncio.start_server(accepted, _LOOPBACK, self._port, start_serving=False)
        # hdcd binds an abstract name as a file of its working directory, unless that file exists.
        if self.kind == "localabstract" and Path(self._path).exists():
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        return await asyncio.start_unix_server(accepted, self._path, start_serving=False)

    @property
    def refusal(self) -> str:
        """hdcd's message if it cannot listen at the node."""
        return (
            "Unix pipe bind failed"
            if self._port is None
            else f"TCP Port listen failed at {self._port}"
        )

    def unlink(self) -> None:
        """Remove the file that a server left behind."""
        if self.kind in _FOLDERS:
            with suppress(OSError):
                Path(self._path).unlink()


def is_well_formed(text: str) -> bool:
    """Return True if hdcd accepts a text as a node of any kind."""
    kind, _, address = text.partition(":")
    if kind != "tcp":
        return bool(kind and address)
    digits = address.isascii() and address.isdecimal() and len(address) <= len(str(_LAST_PORT))
    return digits and 1 <= int(address) <= _LAST_PORT
