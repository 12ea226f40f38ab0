"""The board side of the hdc session protocol: hdcd's replies, for virtual boards.

A :class:`Daemon` is one board and its port; many daemons share one event loop. On the wire it
behaves like the recorded hdcd: packet order, error texts, counters of CHANNEL_CLOSE, no reply to
unknown channels and commands. An admitted host may do everything that the invoking user may.
Without an :class:`Authorisation`, every host is admitted.
"""

import asyncio
import os

from labctl.errors import HostError
from labctl.hdc.daemon.board import Board
from labctl.hdc.daemon.connection import Connection
from labctl.tcp import close_server


class PortTaken(HostError):
    """The port is in use, or this user may not use it."""


class Daemon:
    """One board's hdcd. ``await start()``; it serves until ``await stop()``."""

    def __init__(self, board: Board):
        self.board = board
        self.port = 0
        self._server: asyncio.Server | None = None
        self._is_listening = False
        self._connections: set[Connection] = set()
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

    def meet(self) -> Connection:
        """Return the protocol for an accepted connection."""
        return Connection(self.board, self._admit, self._connections, self._background)

    def _admit(self, connection: Connection) -> bool:
        """Decide if a host may connect: refuse it above the limit, and during a cut."""
        if not self._is_listening or len(self._connections) >= self.board.limits.hosts:
            return False
        self._connections.add(connection)
        return True
