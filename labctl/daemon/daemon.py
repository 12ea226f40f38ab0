"""The listener of one board: a port, and its hosts' connections. Many share one event loop."""

import asyncio
import os
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from labctl.daemon.board import Board
from labctl.errors import HostError
from labctl.tcp import close_server

B = TypeVar("B", bound=Board)


class PortTaken(HostError):
    """The port is in use, or this user may not use it."""


class Peer(ABC):
    """One host's connection."""

    @abstractmethod
    def abort(self) -> None:
        """Cut the connection."""


class Daemon(ABC, Generic[B]):
    """One board's daemon. ``await start()``; it serves until ``await stop()``."""

    def __init__(self, board: B):
        self.board = board
        self.port = 0
        self._server: asyncio.Server | None = None
        self._is_listening = False
        self._connections: set[Peer] = set()
        self._background: set[asyncio.Task[None]] = set()

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen; return the port (chosen by the system if 0). Raises PortTaken."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(self.meet, host, port)
        except OSError as error:
            raise PortTaken(
                f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}",
                hint="another program may have the port; choose another one, or 0 for any",
            ) from error
        self._is_listening = True
        self.port = self._server.sockets[0].getsockname()[1]
        return self.port

    def cut(self) -> None:
        """Stop listening and cut every connection without a message, like a power loss."""
        self._is_listening = False
        if self._server is not None:
            close_server(self._server)
        for connection in list(self._connections):
            connection.abort()

    async def stop(self) -> None:
        """Call :meth:`cut`, and wait until all tasks have ended."""
        self.cut()
        if self._server is not None:
            await self._server.wait_closed()
        while self._connections:
            await asyncio.sleep(0)
        while self._background:
            await asyncio.sleep(0)  # a task cancelled before it starts runs no clean-up
            for task in self._background:
                task.cancel()
            await asyncio.gather(*self._background, return_exceptions=True)
        await asyncio.sleep(0)  # aborted transports close their sockets now

    @abstractmethod
    def meet(self) -> asyncio.BaseProtocol:
        """Return the protocol for an accepted connection."""

    def _admit(self, connection: Peer) -> bool:
        """Decide if a host may connect: refuse it above the limit, and during a cut."""
        if not self._is_listening or len(self._connections) >= self.board.limits.hosts:
            return False
        self._connections.add(connection)
        return True
