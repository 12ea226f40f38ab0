"""One adb server's connection to a phone: its greeting and its streams."""

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from labctl.adb.daemon.authorisation import TOKEN_BYTES
from labctl.adb.daemon.phone import Phone
from labctl.adb.daemon.reverse import Listeners
from labctl.adb.daemon.services import serve
from labctl.adb.daemon.stream import Carrier, Stream, StreamClosed
from labctl.adb.packets import (
    HEAD_BYTES,
    MAX_DATA_BYTES,
    VERSION,
    Auth,
    Command,
    Head,
    encode_packet,
)
from labctl.daemon.daemon import Peer
from labctl.daemon.hooks import Buffer, Line, Storage, Wire
from labctl.errors import HostError, ProtocolError

#: Bytes that may wait for the host before a writer has to wait.
_WRITE_BUFFER_BYTES = 1 << 20
#: Streams of one host; each may keep one packet. Further ones are refused.
_MOST_STREAMS = 128
#: Numbers of streams that the phone opens: those of hosts are small, and the phone repeats them.
_FIRST_OWN = 1 << 31
_LAST_OWN = (1 << 32) - 1
_LEAST_DATA_BYTES = 4096
_HALF = 32


class Connection(asyncio.BufferedProtocol, Carrier, Line, Peer):
    """One host's connection.

    Hooks see a packet's two arguments as one number, its channel: the phone's number of the stream
    in the upper half. A stream that the host opened has the host's number on both sides.
    """

    protocol = "adb"

    def __init__(
        self,
        phone: Phone,
        admit: Callable[[Peer], bool],
        registry: set[Peer],
        background: "set[asyncio.Task[None]]",
    ):
        self._phone = phone
        self._admit = admit
        self._registry = registry
        self._background = background
        self._head: Head | None = None
        self._room = bytearray(HEAD_BYTES)
        self._filled = 0
        self._streams: dict[int, Stream] = {}
        self._own = _FIRST_OWN
        self._checked = True
        self._is_greeted = False
        self._version = 0
        self._token = b""
        #: Fingerprint of the key that waits for the user's decision.
        self._shown = ""
        self._may_write = asyncio.Event()
        self._holders: set[object] = set()
        self._silence: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport
        self._wire = Wire(self)  # until the connection exists
        self.max_data = MAX_DATA_BYTES
        self.listeners = Listeners(self, phone.directory)

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the host's connection; the host sends first."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self._admit(self):
            transport.abort()
            return
        transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._may_write.set()
        self._wire = self._phone.interference.wire(self)
        loop = asyncio.get_running_loop()
        self._silence = loop.call_later(self._phone.limits.silence_seconds, transport.abort)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Return the rest of the present head or data."""
        return memoryview(self._room)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Handle the bytes that arrived."""
        self._filled += nbytes
        if self._filled < len(self._room):
            return
        try:
            if self._head is None:
                self._head = Head.decode(self._room)
                self._begin(self._head.size)
                if self._head.size:
                    return
            self._packet(self._head, memoryview(self._room))
        except ProtocolError:
            self._transport.abort()
        else:
            self._head = None
            self._begin(HEAD_BYTES)

    def pause_writing(self) -> None:
        """Pause the sources: the host reads too slowly."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """Resume the sources."""
        self._may_write.set()
        self._hold_back(self._may_write, held=False)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """End the streams; the services see their end."""
        self._registry.discard(self)
        self._may_write.set()
        if self._silence:
            self._silence.cancel()
        self._withdraw()
        self.listeners.close()
        for stream in list(self._streams.values()):
            stream.over()
        self._streams.clear()
        self._wire.lost()

    # Used by streams

    def send(self, local: int, remote: int, command: Command, data: bytes = b"") -> None:
        """Queue a packet."""
        if not self._transport.is_closing():
            self._wire.outgoing(local << _HALF | remote, command, data)

    async def drained(self) -> None:
        """Wait until there is room again."""
        await self._may_write.wait()
        await self._wire.drained()

    def storage(self, stream: Stream) -> Storage:
        """Return the files of a stream's transfer."""
        return self._wire.storage(stream.local << _HALF | stream.remote)

    def forget(self, stream: Stream) -> None:
        """Remove a closed stream."""
        self._streams.pop(stream.local, None)

    def open(self, service: str) -> Stream | None:
        """Open a stream to a service of the host."""
        if len(self._streams) >= _MOST_STREAMS or self._transport.is_closing():
            return None
        while self._own in self._streams:
            self._own = self._own + 1 if self._own < _LAST_OWN else _FIRST_OWN
        stream = self._streams[self._own] = Stream(self, self._own, 0)
        self.send(stream.local, 0, Command.OPEN, service.encode() + b"\0")
        return stream

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run ``work`` concurrently; the daemon ends it when it stops."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def abort(self) -> None:
        """Cut the connection."""
        self._transport.abort()

    # Used by hooks

    def encode(self, channel: int, command: int, *data: Buffer) -> bytes:
        """Return a packet as bytes."""
        first, second = channel >> _HALF, channel & 0xFFFFFFFF
        return encode_packet(command, first, second, b"".join(data), checked=self._checked)

    def write(self, raw: Buffer) -> None:
        """Send bytes, unless the host is gone."""
        if self._transport.is_closing():
            return
        self._transport.write(raw)
        if self._transport.get_write_buffer_size() > self._phone.limits.flood_bytes:
            self._hold_back(self._may_write, held=True)

    def hold(self, *, held: bool) -> None:
        """Stop or resume reading."""
        self._hold_back(self._wire, held=held)

    def finish(self, channel: int) -> None:
        """Close a stream as if its service had ended."""
        if stream := self._streams.get(channel >> _HALF):
            stream.close()

    def deliver(self, channel: int, command: int, data: memoryview) -> None:
        """Handle one packet. Raises ProtocolError."""
        local, remote = channel >> _HALF, channel & 0xFFFFFFFF
        if command == Command.CONNECT:
            self._connect(version=local, max_data=remote)
        elif command == Command.AUTH:
            self._authenticate(local, bytes(data))
        elif not self._is_greeted:
            raise ProtocolError("the host did not begin with CNXN")
        elif command == Command.OPEN:
            self._open(remote, bytes(data))
        elif stream := self._streams.get(local):
            if stream.remote not in (0, remote):
                return  # adbd ignores packets of a stream that it does not know
            if command == Command.OKAY:
                stream.opened(remote)
            elif command == Command.WRITE:
                stream.received(bytes(data))
            elif command == Command.CLOSE:
                stream.over()
                self.forget(stream)
        elif command == Command.WRITE:
            self.send(0, remote, Command.CLOSE)

    # Internal

    def _begin(self, size: int) -> None:
        self._room = bytearray(size)
        self._filled = 0

    def _packet(self, head: Head, data: memoryview) -> None:
        if head.command in (Command.CONNECT, Command.AUTH):
            channel = head.first << _HALF | head.second
        elif head.command == Command.OPEN:
            channel = head.first << _HALF | head.first
        else:
            channel = head.second << _HALF | head.first
        self._wire.incoming(channel, head.command, data)

    def _connect(self, version: int, max_data: int) -> None:
        if self._silence:
            self._silence.cancel()
            self._silence = None
        self.max_data = max(min(max_data, MAX_DATA_BYTES), _LEAST_DATA_BYTES)
        self._version = version
        for stream in list(self._streams.values()):  # a host that begins anew knows none of them
            stream.over()
        self._streams.clear()
        if self._phone.authorisation:
            self._is_greeted = False
            self._send_token()
        else:
            self._greet()

    def _send_token(self) -> None:
        self._token = os.urandom(TOKEN_BYTES)
        self.send(Auth.TOKEN, 0, Command.AUTH, self._token)

    def _authenticate(self, kind: int, data: bytes) -> None:
        lock = self._phone.authorisation
        if lock is None or not self._token or self._is_greeted:
            raise ProtocolError("the host answers a question that was not asked")
        if kind == Auth.SIGNATURE:
            if lock.is_signed(self._token, data):
                self._greet()
            else:
                self._send_token()  # the host tries its next key
        elif kind == Auth.PUBLIC_KEY:
            try:
                key = lock.take(data)
            except ValueError as error:
                raise ProtocolError(f"the host shows no public key: {error}") from error
            if decision := lock.consider(key):
                self._greet()
            elif decision is None:
                self._withdraw()
                self._shown = key
                lock.wait(key, self._decided)

    def _decided(self, allow: bool) -> None:
        self._shown = ""
        if allow:
            self._greet()

    def _withdraw(self) -> None:
        if self._shown and self._phone.authorisation:
            self._phone.authorisation.withdraw(self._shown, self._decided)

    def _greet(self) -> None:
        self.send(VERSION, MAX_DATA_BYTES, Command.CONNECT, self._phone.banner)
        self._checked = self._version < VERSION
        self._is_greeted = True

    def _open(self, number: int, data: bytes) -> None:
        if not number or number in self._streams:
            raise ProtocolError("the host opens a stream under a number that is in use")
        if len(self._streams) >= _MOST_STREAMS:
            self.send(0, number, Command.CLOSE)
            return
        stream = self._streams[number] = Stream(self, number, number)
        self.spawn(self._serve(stream, data.split(b"\0")[0]))

    async def _serve(self, stream: Stream, service: bytes) -> None:
        try:
            await serve(stream, self._phone, self.listeners, service)
        except (StreamClosed, OSError, ProtocolError, HostError):
            pass  # the host sees the end of the stream
        finally:
            stream.close()

    def _hold_back(self, holder: object, *, held: bool) -> None:
        before = bool(self._holders)
        (self._holders.add if held else self._holders.discard)(holder)
        if before == bool(self._holders) or self._transport.is_closing():
            return
        if self._holders:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
