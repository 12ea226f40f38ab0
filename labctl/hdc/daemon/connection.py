"""One host's connection to a daemon: its handshake, heartbeats, and its channels."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Coroutine

from labctl.errors import ProtocolError
from labctl.hdc.daemon.board import Board
from labctl.hdc.daemon.files import FileReceiver, FileSender
from labctl.hdc.daemon.interference import Line, Storage, Wire
from labctl.hdc.daemon.shell import ShellTask
from labctl.hdc.daemon.task import Link, Task
from labctl.hdc.messages import (
    AuthType,
    EchoLevel,
    Heartbeat,
    SessionHandShake,
    decode_tlv,
    encode_tlv,
)
from labctl.hdc.protobuf import Buffer
from labctl.hdc.wire import Command, PacketDecoder

HEARTBEAT_SECONDS = 5.0
FEATURES = "heartbeat,encrypt_tcp"
#: Bytes that may wait for the host before whoever writes has to wait.
_WRITE_BUFFER_BYTES = 1 << 20
_RECORD = struct.Struct("<II")


class Connection(asyncio.BufferedProtocol, Link, Line):
    """One host's connection: its handshake, heartbeats, and its channels."""

    def __init__(
        self,
        board: Board,
        registry: "set[Connection]",
        background: "set[asyncio.Task[None]]",
    ):
        self._board = board
        self._registry = registry
        self._background = background
        self._decoder = PacketDecoder()
        self._greeted = False
        self._tasks: dict[int, Task] = {}
        self._woken: set[int] = set()
        self._may_write = asyncio.Event()
        self._heart: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport
        self._wire = Wire(self)  # until there is a connection to interfere with

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A host is here; it speaks first."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._may_write.set()
        self._wire = self._board.interference.wire(self)
        self._registry.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Where the next bytes belong."""
        return self._decoder.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived there."""
        self._decoder.received(nbytes)
        try:
            for packet in self._decoder.packets():
                self._wire.incoming(packet.channel, packet.command, packet.data)
        except ProtocolError:
            self._transport.abort()  # hdcd drops a peer that does not speak its protocol

    def pause_writing(self) -> None:
        """The host does not keep up."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """The host has taken most of what waited."""
        self._may_write.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """The host is gone: its commands get their TERM, its files are closed."""
        self._registry.discard(self)
        self._may_write.set()
        if self._heart:
            self._heart.cancel()
        for task in self._tasks.values():
            task.stop()
        self._tasks.clear()
        self._wire.lost()

    # What the tasks of the channels use

    def send(self, channel: int, command: Command, *data: bytes) -> None:
        """Queue one packet."""
        if not self._transport.is_closing():
            self._wire.outgoing(channel, command, *data)

    async def drained(self) -> None:
        """Wait until there is room again."""
        await asyncio.sleep(0)  # a host that always keeps up must not keep the loop for itself
        await self._may_write.wait()
        await self._wire.drained()

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run ``work`` beside; the daemon ends it when it stops."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def finish(self, channel: int) -> None:
        """A task has done its work: close its channel."""
        self._woken.discard(channel)
        if task := self._tasks.pop(channel, None):
            task.stop()
            self.send(channel, Command.CHANNEL_CLOSE, b"\x01")

    def storage(self, channel: int) -> Storage:
        """The files of a channel's transfer."""
        return self._wire.storage(channel)

    def abort(self) -> None:
        """Cut the connection."""
        self._transport.abort()

    # What stands between host and daemon

    def write(self, raw: Buffer) -> None:
        """Send bytes, unless the host is gone."""
        if not self._transport.is_closing():
            self._transport.write(raw)

    def hold(self, *, held: bool) -> None:
        """Stop reading, or go on."""
        if held:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # What packets do

    def deliver(self, channel: int, command: int, data: memoryview) -> None:
        """Handle one packet. Raises ProtocolError."""
        if command == Command.HANDSHAKE:
            self._greet(SessionHandShake.decode(data))
        elif not self._greeted:
            raise ProtocolError("the host did not begin with a handshake")
        elif command == Command.CHANNEL_CLOSE:
            self._close(channel, data[0] if data else 0)
        elif command == Command.WAKEUP_SLAVETASK:
            self._woken.add(channel)
        elif task := self._tasks.get(channel):
            task.packet(command, data)
        else:
            self._begin(channel, command, bytes(data))

    def _greet(self, hello: SessionHandShake) -> None:
        entries = {
            "emgmsg": "",
            "devname": self._board.name,
            "daemonauthstatus": "SUCCESS",
            "1200": "enable",
            "supportfeatures": FEATURES,
        }
        # The version field repeats the host's own text: that is what the real daemon does.
        reply = SessionHandShake(
            auth_type=AuthType.OK, buf=encode_tlv(entries), version=hello.version
        )
        self.send(0, Command.HANDSHAKE, reply.encode())
        self.send(0, Command.CHANNEL_CLOSE, b"\x01")
        self._greeted = True
        with contextlib.suppress(ProtocolError):  # an empty or odd text names no features
            features = decode_tlv(hello.buf).get("supportfeatures", "").split(",")
            if "heartbeat" in features and self._heart is None:
                self._heart = self.spawn(self._beat())

    async def _beat(self) -> None:
        count = 0
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            self.send(0, Command.HEARTBEAT, Heartbeat(count).encode())
            count += 1

    def _close(self, channel: int, counter: int) -> None:
        self._woken.discard(channel)
        if task := self._tasks.pop(channel, None):
            task.stop()
        if counter:
            self.send(channel, Command.CHANNEL_CLOSE, bytes([counter - 1]))

    def _begin(self, channel: int, command: int, data: bytes) -> None:
        task: Task
        match command:
            case Command.UNITY_EXECUTE:
                task = ShellTask(self, channel, self._board, data)
            case Command.UNITY_HILOG:
                task = ShellTask(self, channel, self._board, b"hilog " + data)
            case Command.FILE_CHECK | Command.FILE_MODE if channel in self._woken:
                task = FileReceiver(self, channel, self._board.directory)
            case Command.FILE_INIT:
                task = FileSender(self, channel, self._board.directory, data)
            case _:
                self._answer(channel, command, data)
                return
        self._tasks[channel] = task
        task.start()
        if command in (Command.FILE_CHECK, Command.FILE_MODE):
            task.packet(command, memoryview(data))

    def _answer(self, channel: int, command: int, data: bytes) -> None:
        """Commands that are done with one answer. What is unknown is dropped, as hdcd does."""
        match command:
            case Command.UNITY_REMOUNT:
                self._echo(channel, EchoLevel.FAIL, "Mount failed")
            case Command.UNITY_JPID:
                self._echo(channel, EchoLevel.OK, "[Empty]")
            case Command.UNITY_EXECUTE_EX:
                bundle = _bundle_name(data).decode(errors="replace")
                self._echo(channel, EchoLevel.FAIL, f"[E003001] Invalid bundle name: {bundle}")
            case Command.UNITY_ROOTRUN:  # hdcd restarts itself
                self.send(channel, Command.CHANNEL_CLOSE, b"\x01")
                self._transport.close()
            case Command.SHELL_INIT | Command.UNITY_RUNMODE:
                self._echo(channel, EchoLevel.FAIL, "[E002105] Unsupport command")
            case Command.FORWARD_INIT:
                self.send(channel, Command.WAKEUP_SLAVETASK)
                self._echo(channel, EchoLevel.FAIL, "Forward parament failed")
            case Command.FORWARD_CHECK if channel in self._woken:
                self.send(channel, Command.FORWARD_FREE_CONTEXT, data[:4])
                self._echo(channel, EchoLevel.FAIL, "Forward parament failed")
            case Command.UNITY_REBOOT:
                self.send(channel, Command.CHANNEL_CLOSE, b"\x01")
                if self._board.on_reboot:
                    self._board.on_reboot(data.decode(errors="replace"))

    def _echo(self, channel: int, level: EchoLevel, text: str) -> None:
        self._woken.discard(channel)
        self.send(channel, Command.ECHO, bytes([level]) + text.encode())
        self.send(channel, Command.CHANNEL_CLOSE, b"\x01")


def _bundle_name(data: bytes) -> bytes:
    """The record with tag 1 of an EXECUTE_EX packet: u32 tag, u32 size (little-endian), value."""
    while len(data) >= _RECORD.size:
        tag, size = _RECORD.unpack_from(data)
        if tag == 1:
            return data[_RECORD.size : _RECORD.size + size]
        data = data[_RECORD.size + size :]
    return b""
