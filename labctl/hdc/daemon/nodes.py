"""The board's ends of forwarded connections, as hdc names them: ``KIND:ADDRESS``."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_LOOPBACK = "127.0.0.1"
_LAST_PORT = 65535

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Node:
    """A TCP port on loopback, or a Unix socket: abstract, or a file below ``directory``.

    All boards of a host share its ports and abstract names with it.
    """

    def __init__(self, kind: str, address: str, directory: Path):
        self._port = int(address) if kind == "tcp" else None
        self._path = f"\0{address}" if kind == "localabstract" else str(directory / address)
        self.address = address

    @classmethod
    def parse(cls, text: str, directory: Path) -> "Node | None":
        """``tcp:PORT``, ``localabstract:NAME``, ``localfilesystem:PATH``; None for anything else.

        hdcd knows some more kinds: debuggers and devices, which a board of software has not.
        """
        kind, _, address = text.partition(":")
        if kind == "tcp":
            digits = address.isascii() and address.isdecimal() and len(address) <= len("65535")
            if not digits or not 1 <= int(address) <= _LAST_PORT:
                return None
        elif kind not in ("localabstract", "localfilesystem") or not address:
            return None
        return cls(kind, address, directory)

    async def connect(self) -> Streams:
        """Connect to it. Raises OSError, ValueError."""
        if self._port is not None:
            return await asyncio.open_connection(_LOOPBACK, self._port)
        return await asyncio.open_unix_connection(self._path)

    async def bind(
        self, accepted: Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]
    ) -> asyncio.Server:
        """A server there that does not listen yet. Raises OSError, ValueError."""
        if self._port is not None:
            return await asyncio.start_server(accepted, _LOOPBACK, self._port, start_serving=False)
        return await asyncio.start_unix_server(accepted, self._path, start_serving=False)

    def unlink(self) -> None:
        """Remove the file that a server has left."""
        if self._port is None and not self._path.startswith("\0"):
            with suppress(OSError):
                Path(self._path).unlink()
