"""One connection forwarded over a channel, at the board's end."""

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress

from labctl.hdc.daemon.nodes import Node, Streams
from labctl.hdc.daemon.task import Inbox, Link
from labctl.hdc.wire import Command

#: Largest data of one packet.
_PIECE_BYTES = 65_535


class Rule(ABC):
    """The rule of a forwarded connection, as the connection sees it."""

    link: Link

    @abstractmethod
    def send(self, command: Command, *data: bytes) -> None:
        """Send a packet on the rule's channel."""

    @abstractmethod
    def forget(self, number: bytes) -> None:
        """Close a finished connection."""


class Forwarded:
    """Pass bytes from its socket to the host, and back; a slow end slows the other down."""

    def __init__(self, rule: Rule, number: bytes):
        self._rule = rule
        self._number = number
        self._from_host = Inbox(rule.link)
        self._streams: Streams | None = None
        self._work: list[asyncio.Task[None]] = []
        self._freed = False

    def connect(self, node: Node) -> None:
        """Connect to a node of the board, and report success or failure to the host."""
        self._work = [self._rule.link.spawn(self._open(node))]

    def accepted(self, streams: Streams) -> None:
        """Take a connection made to the board; the host now connects at its end."""
        self._streams = streams

    def packet(self, command: int, data: bytes) -> None:
        """Handle a packet from the host for this connection."""
        if command == Command.FORWARD_ACTIVE_MASTER and self._streams and not self._work:
            self._forward(self._streams)
        elif command == Command.FORWARD_FREE_CONTEXT and not self._work:
            self._rule.forget(self._number)  # the host could not connect at its end
        elif command in (Command.FORWARD_DATA, Command.FORWARD_FREE_CONTEXT) and not self._freed:
            self._freed = command == Command.FORWARD_FREE_CONTEXT
            self._from_host.put(command, data)

    def close(self) -> None:
        """Drop the connection and all undelivered data. Idempotent."""
        for work in self._work:
            if work is not asyncio.current_task():
                work.cancel()
        self._from_host.close()
        if self._streams is not None:
            self._streams[1].transport.abort()

    async def _open(self, node: Node) -> None:
        try:
            self._streams = await node.connect()
        except (OSError, ValueError):
            self._end()
            return
        self._rule.send(Command.FORWARD_ACTIVE_MASTER, self._number)
        self._forward(self._streams)

    def _forward(self, streams: Streams) -> None:
        reader, writer = streams
        spawn = self._rule.link.spawn
        self._work += [spawn(self._to_host(reader)), spawn(self._to_socket(writer))]

    async def _to_host(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):  # a connection that was reset has ended, too
            while piece := await reader.read(_PIECE_BYTES):
                self._rule.send(Command.FORWARD_DATA, self._number, piece)
                await self._rule.link.drained()
        if not self._freed:
            self._end()

    async def _to_socket(self, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while True:
                command, data = await self._from_host.get()
                if command == Command.FORWARD_FREE_CONTEXT:
                    break
                writer.write(data)
                await writer.drain()
            writer.close()
            await writer.wait_closed()
        if self._freed:
            self._rule.forget(self._number)
        else:
            self._end()

    def _end(self) -> None:
        """End this side; the protocol has no half-closed connections."""
        self._rule.send(Command.FORWARD_FREE_CONTEXT, self._number)
        self._rule.forget(self._number)
