"""``hdc fport`` and ``hdc rport`` on the board's side.

In ``fport`` the host listens and the board connects; in ``rport`` the board listens and the host
connects. Each packet begins with the number of its connection, chosen by the listening side.
"""

import asyncio
import secrets
from abc import ABC, abstractmethod
from contextlib import suppress

from labctl.errors import ProtocolError
from labctl.hdc.daemon.board import Board
from labctl.hdc.daemon.nodes import Node, Streams, is_well_formed
from labctl.hdc.daemon.task import Inbox, Link, Task
from labctl.hdc.messages import EchoLevel
from labctl.hdc.wire import Command
from labctl.tcp import close_server

#: Largest data of one packet.
_PIECE_BYTES = 65_535


class Rule(ABC):
    """The rule of a forwarded connection, as seen by the connection."""

    link: Link

    @abstractmethod
    def send(self, command: Command, *data: bytes) -> None:
        """Send a packet on the rule's channel."""

    @abstractmethod
    def forget(self, number: bytes) -> None:
        """Close a finished connection."""


class Forwarded:
    """Passes bytes from a socket to the host, and back; a slow end slows down the other."""

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
        """Take a connection that the board accepted; the host now connects at its end."""
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
        with suppress(OSError):  # a reset also ends the connection
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
        """End this side and so the connection: the protocol has no half-closed connections."""
        self._rule.send(Command.FORWARD_FREE_CONTEXT, self._number)
        self._rule.forget(self._number)


_NUMBER_BYTES = 4
#: Bytes between the number and the node, in packets that name a node.
_RESERVED = bytes(8)
#: Maximum connections of one rule: each uses a file descriptor of this process.
_MAX_CONNECTIONS = 512
_BAD_NODE = "Forward parament failed"
_NO_LISTENER = "Not supoort forward-type"


class _RuleTask(Task, Rule):
    """Common part of both directions. A rule lives until its channel is closed."""

    def __init__(self, link: Link, channel: int, board: Board, data: bytes):
        super().__init__(link, channel, board, data)
        self.link = link
        self._connections: dict[bytes, Forwarded] = {}

    def send(self, command: Command, *data: bytes) -> None:
        """Send a packet on the rule's channel."""
        self._send(command, *data)

    def forget(self, number: bytes) -> None:
        """Drop a finished connection."""
        if connection := self._connections.pop(number, None):
            connection.close()

    def packet(self, command: int, data: memoryview) -> None:
        """Pass the packet to its connection. Raises ProtocolError."""
        if len(data) < _NUMBER_BYTES:
            raise ProtocolError("a forwarded packet names no connection")
        number, rest = bytes(data[:_NUMBER_BYTES]), bytes(data[_NUMBER_BYTES:])
        if connection := self._connections.get(number):
            connection.packet(command, rest)
        else:
            self._other(command, number, rest)

    def stop(self) -> None:
        """Close everything that belongs to the rule."""
        for number in list(self._connections):
            self.forget(number)

    @abstractmethod
    def _other(self, command: int, number: bytes, rest: bytes) -> None:
        """Handle a packet without a known connection; drop unknown packets, as hdcd does."""

    def _add(self, number: bytes) -> Forwarded | None:
        if len(self._connections) >= _MAX_CONNECTIONS:
            return None
        connection = self._connections[number] = Forwarded(self, number)
        return connection


class ForwardTask(_RuleTask):
    """``fport``: connects to a node of the board for each connection accepted by the host."""

    def start(self) -> None:
        """Do nothing: the first packet names the node."""

    def _other(self, command: int, number: bytes, rest: bytes) -> None:
        if command not in (Command.FORWARD_CHECK, Command.FORWARD_ACTIVE_SLAVE):
            return
        text = rest[len(_RESERVED) :].split(b"\0")[0].decode(errors="surrogateescape")
        node = Node.parse(text, self._board.directory)
        if command == Command.FORWARD_CHECK:
            if node is not None:
                self.send(Command.FORWARD_CHECK_RESULT, number, b"\0")
                return
            self.send(Command.FORWARD_FREE_CONTEXT, number)
            self._fail(_BAD_NODE)
        elif node is not None and (connection := self._add(number)):
            connection.connect(node)
        else:
            self.send(Command.FORWARD_FREE_CONTEXT, number)


class ReverseTask(_RuleTask):
    """``rport``: listens at a node of the board; the host connects at its end."""

    def __init__(self, link: Link, channel: int, board: Board, data: bytes):
        super().__init__(link, channel, board, data)
        self._request = data.split(b"\0")[0].decode(errors="surrogateescape")
        local, _, remote = self._request.partition(" ")
        self._node = Node.parse(local, board.directory) if is_well_formed(remote) else None
        self._target = _RESERVED + remote.encode(errors="surrogateescape") + b"\0"
        self._check = secrets.token_bytes(_NUMBER_BYTES)
        self._server: asyncio.Server | None = None
        self._listening: asyncio.Task[None] | None = None
        self._agreed = False
        self._held: list[bytes] = []

    def start(self) -> None:
        """Listen, and ask the host to check its end."""
        self.send(Command.WAKEUP_SLAVETASK)
        if self._node is None:
            self._fail(_BAD_NODE)
        elif self._node.kind == "ark":
            self._fail(_NO_LISTENER)
        else:
            self._listening = self.link.spawn(self._listen(self._node))

    def stop(self) -> None:
        """Stop listening, and close accepted connections."""
        super().stop()
        if self._listening is not None and self._listening is not asyncio.current_task():
            self._listening.cancel()
        if self._server is not None and self._node is not None:
            close_server(self._server)
            self._node.unlink()
            self._server = None

    async def _listen(self, node: Node) -> None:
        try:
            self._server = await node.bind(self._accept)
            if self._server is not None:
                await self._server.start_serving()
        except (OSError, ValueError):
            self._fail(node.refusal)
            return
        self.send(Command.FORWARD_CHECK, self._check, self._target)

    def _other(self, command: int, number: bytes, rest: bytes) -> None:  # noqa: ARG002
        if command == Command.FORWARD_CHECK_RESULT and number == self._check and not self._agreed:
            self._agreed = True
            self._echo(EchoLevel.OK, "Forwardport result:OK")
            done = f"0|{self._request}\0".encode(errors="surrogateescape")
            self.send(Command.FORWARD_SUCCESS, done)
            for early in self._held:
                self.send(Command.FORWARD_ACTIVE_SLAVE, early, self._target)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = secrets.token_bytes(_NUMBER_BYTES)
        # A connection may arrive just as the rule ends.
        connection = self._add(number) if self._server is not None else None
        if connection is None:
            writer.transport.abort()
            return
        connection.accepted((reader, writer))
        if self._agreed:
            self.send(Command.FORWARD_ACTIVE_SLAVE, number, self._target)
        else:  # hdcd's source drops it and ends the rule; here it is kept
            self._held.append(number)
