"""A port of this host that holds connections until an hdc server forwards them.

A server accepts connections at a rule's port before the rule is ready, and then ends the connection
and the rule (``ListenCallback`` in its public source). So the server never listens at a port that
others may already know: labctl listens there, and forwards connections to the server's port.
"""

import asyncio
import logging
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from labctl.hdc.host.nodes import Listener
from labctl.tcp import close_server

#: Maximum number of connections; further ones are reset.
MAX_CONNECTIONS = 512
#: Maximum number of connections waiting to be accepted.
BACKLOG = 128
_LOOPBACK = "127.0.0.1"
_PIECE_BYTES = 1 << 16
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)

_log = logging.getLogger("labctl.hdc")


@contextmanager
def forward_connections(listener: Listener, port: int) -> Iterator[None]:
    """Within the context, forward connections from ``listener`` to loopback ``port`` here.

    Earlier connections wait in the listener's backlog.
    """
    loop = asyncio.new_event_loop()
    forwarder = _Forwarder(port)
    thread = threading.Thread(
        target=loop.run_until_complete,
        args=(forwarder.run(listener.detached()),),
        name="hdc forward",
        daemon=True,
    )
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(forwarder.over.set)
        thread.join()
        loop.close()


class _Forwarder:
    def __init__(self, port: int):
        self.over = asyncio.Event()
        self._port = port
        self._work: set[asyncio.Task[None]] = set()

    async def run(self, listening: socket.socket) -> None:
        """Forward connections until ``over`` is set."""
        server = await asyncio.start_server(self._accept, sock=listening, backlog=BACKLOG)
        await self.over.wait()
        close_server(server)
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        await server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.over.is_set():
            _reset(writer)
            return
        if len(self._work) >= MAX_CONNECTIONS:
            _log.warning("a forwarded connection is refused: there are %d", MAX_CONNECTIONS)
            _reset(writer)
            return
        task = asyncio.get_running_loop().create_task(self._forward(reader, writer))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        is_whole = False  # all bytes have reached both ends
        try:
            there = await asyncio.open_connection(_LOOPBACK, self._port)
            ends.append(there[1])
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(reader, there[1]))
                both.create_task(_pump(there[0], writer))
            for end in ends:
                end.close()
            for end in ends:
                await end.wait_closed()
            is_whole = True
        except* OSError as errors:
            _log.info("a forwarded connection is cut: %s", errors.exceptions[0])
        finally:
            if not is_whole:
                for end in ends:  # a reset at one end becomes a reset at the other
                    _reset(end)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while piece := await source.read(_PIECE_BYTES):
        sink.write(piece)
        await sink.drain()
    sink.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()
