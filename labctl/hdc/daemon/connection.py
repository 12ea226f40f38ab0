"""One host's connection to a daemon: its handshake, heartbeats and channels."""

import asyncio
import socket
from collections.abc import Callable, Coroutine

from labctl.daemon.daemon import Peer
from labctl.daemon.hooks import Line, Storage, Wire
from labctl.errors import ProtocolError
from labctl.hdc.daemon.answers import answer
from labctl.hdc.daemon.app import InstallTask, JpidTracker, UninstallTask
from labctl.hdc.daemon.board import Board
from labctl.hdc.daemon.forward import ForwardTask, ReverseTask
from labctl.hdc.daemon.handshake import Handshake
from labctl.hdc.daemon.receiving import FileReceiver
from labctl.hdc.daemon.sending import FileSender
from labctl.hdc.daemon.shell import BugreportTask, HilogTask, ShellTask
from labctl.hdc.daemon.task import Link, Task
from labctl.hdc.daemon.terminal import TerminalTask
from labctl.hdc.messages import Buffer, EchoLevel, Heartbeat, SessionHandShake
from labctl.hdc.wire import Command, PacketDecoder, encode_prefix

#: Maximum bytes per read, unless a packet is larger: other boards wait meanwhile.
_READ_BYTES = 64 << 10
#: Bytes that may wait for the host before a writer has to wait.
_WRITE_BUFFER_BYTES = 1 << 20
#: Maximum number of channels that wait for a transfer or forward to begin.
_MAX_WOKEN = 1024
#: Interval of the checks for a lost host while its connection is not read.
_WATCH_SECONDS = 1.0
_TCP_CLOSE_WAIT = 8

#: Long tasks, by the packet that begins them.
_TASKS: dict[int, type[Task]] = {
    Command.UNITY_EXECUTE: ShellTask,
    Command.UNITY_HILOG: HilogTask,
    Command.JDWP_TRACK: JpidTracker,
    Command.BUGREPORT_INIT: BugreportTask,
    Command.SHELL_INIT: TerminalTask,
    Command.FILE_INIT: FileSender,
    Command.FORWARD_INIT: ReverseTask,
    Command.APP_UNINSTALL: UninstallTask,
}
#: Long tasks that only a woken channel accepts.
_WOKEN_TASKS: dict[int, type[Task]] = {
    Command.FILE_CHECK: FileReceiver,
    Command.FILE_MODE: FileReceiver,
    Command.FORWARD_CHECK: ForwardTask,
    Command.APP_CHECK: InstallTask,
}


class Connection(asyncio.BufferedProtocol, Link, Line, Peer):
    """One host's connection: its handshake, heartbeats and channels."""

    def __init__(
        self,
        board: Board,
        admit: Callable[[Peer], bool],
        registry: set[Peer],
        background: "set[asyncio.Task[None]]",
    ):
        self._board = board
        self._admit = admit
        self._registry = registry
        self._background = background
        self._decoder = PacketDecoder()
        self._handshake = Handshake(board, self.send)
        self._tasks: dict[int, Task] = {}
        self._woken: set[int] = set()
        self._may_write = asyncio.Event()
        self._heart: asyncio.Task[None] | None = None
        self._holders: set[object] = set()
        self._watch: asyncio.TimerHandle | None = None
        self._silence: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport
        self._wire = Wire(self)  # until the connection exists

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
        self._wire = self._board.interference.wire(self)
        loop = asyncio.get_running_loop()
        self._silence = loop.call_later(self._board.limits.silence_seconds, transport.abort)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Return the buffer for the next bytes."""
        return self._decoder.room()[: max(_READ_BYTES, self._decoder.missing_bytes)]

    def buffer_updated(self, nbytes: int) -> None:
        """Handle the bytes that arrived in the buffer."""
        self._decoder.received(nbytes)
        try:
            for packet in self._decoder.packets():
                self._hear()
                self._wire.incoming(packet.channel, packet.command, packet.data)
                if self._transport.is_closing():
                    return
        except ProtocolError:
            self._transport.abort()  # hdcd drops a peer that does not speak its protocol

    def pause_writing(self) -> None:
        """Pause the sources: the host reads too slowly."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """Resume the sources: the host has read most of the waiting data."""
        self._may_write.set()
        self.hold_back(self._may_write, held=False)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """End the session: send TERM to its commands, close its files and sockets."""
        self._registry.discard(self)
        self._may_write.set()
        if self._heart:
            self._heart.cancel()
        if self._watch:
            self._watch.cancel()
        self._hear()
        self._handshake.leave()
        for task in self._tasks.values():
            task.stop()
        self._tasks.clear()
        self._wire.lost()
        # This object is in a reference cycle, and the collector does not know that it holds 1 MB.
        del self._decoder

    # Used by the channels' tasks

    def send(self, channel: int, command: Command, *data: bytes) -> None:
        """Queue one packet."""
        if not self._transport.is_closing():
            self._wire.outgoing(channel, command, *data)

    async def drained(self) -> None:
        """Wait until there is room again."""
        await asyncio.sleep(0)  # also yield to other tasks if the host always reads fast enough
        await self._may_write.wait()
        await self._wire.drained()

    def hold_back(self, holder: object, *, held: bool) -> None:
        """Stop reading; resume when the last holder releases it."""
        before = bool(self._holders)
        if held:
            self._holders.add(holder)
        else:
            self._holders.discard(holder)
        if before == bool(self._holders) or self._transport.is_closing():
            return
        if self._holders:
            self._transport.pause_reading()
            self._watch_host()
        else:
            self._transport.resume_reading()

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run ``work`` concurrently; the daemon ends it when it stops."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def finish(self, channel: int) -> None:
        """Close the channel of a finished task."""
        self._woken.discard(channel)
        if task := self._tasks.pop(channel, None):
            task.stop()
            self.send(channel, Command.CHANNEL_CLOSE, b"\x01")

    def storage(self, channel: int) -> Storage:
        """Return the files of a channel's transfer."""
        return self._wire.storage(channel)

    def abort(self) -> None:
        """Cut the connection."""
        self._transport.abort()

    # Used by hooks

    def encode(self, channel: int, command: int, *data: Buffer) -> bytes:
        """Return a packet as bytes."""
        return b"".join((encode_prefix(channel, command, sum(map(len, data))), *data))

    def write(self, raw: Buffer) -> None:
        """Send bytes, unless the host is gone."""
        if self._transport.is_closing():
            return
        self._transport.write(raw)
        if self._transport.get_write_buffer_size() > self._board.limits.flood_bytes:
            self.hold_back(self._may_write, held=True)

    def hold(self, *, held: bool) -> None:
        """Stop or resume reading."""
        self.hold_back(self._wire, held=held)

    # Packets

    def deliver(self, channel: int, command: int, data: memoryview) -> None:
        """Handle one packet. Raises ProtocolError."""
        if command == Command.HANDSHAKE:
            self._continue_handshake(SessionHandShake.decode(data))
        elif not self._handshake.has_begun:
            raise ProtocolError("the host did not begin with a handshake")
        elif command == Command.CHANNEL_CLOSE:
            self._close(channel, data[0] if data else 0)
        elif self._handshake.refusal is not None:
            self._turn_away(channel, self._handshake.refusal)
        elif command == Command.WAKEUP_SLAVETASK:
            self._woken.add(channel)
            if len(self._woken) > _MAX_WOKEN:
                raise ProtocolError("the host wakes too many channels")
        elif task := self._tasks.get(channel):
            task.packet(command, data)
        else:
            self._begin(channel, command, data)

    def _hear(self) -> None:
        """Handle a heartbeat of the host."""
        if self._silence:
            self._silence.cancel()
            self._silence = None

    def _continue_handshake(self, packet: SessionHandShake) -> None:
        self._handshake.packet(packet)
        if self._handshake.refusal is None and self._handshake.wants_heartbeats and not self._heart:
            self._heart = self.spawn(self._beat())

    async def _beat(self) -> None:
        count = 0
        while True:
            await asyncio.sleep(self._board.limits.heartbeat_seconds)
            self.send(0, Command.HEARTBEAT, Heartbeat(count).encode())
            count += 1

    def _turn_away(self, channel: int, reason: str) -> None:
        if channel != 0:  # replies to heartbeats
            self.send(channel, Command.ECHO, bytes([EchoLevel.FAIL]) + reason.encode())
            self.send(channel, Command.CHANNEL_CLOSE, b"\x01")

    def _close(self, channel: int, counter: int) -> None:
        if channel == 0:  # the session itself: hdcd ends all its tasks and closes their channels
            self._woken.clear()
            for number in list(self._tasks):
                self.finish(number)
        self._woken.discard(channel)
        if task := self._tasks.pop(channel, None):
            task.stop()
        if counter:
            self.send(channel, Command.CHANNEL_CLOSE, bytes([counter - 1]))

    def _begin(self, channel: int, command: int, data: memoryview) -> None:
        if not self._board.parameters.allow(command):
            self._woken.discard(channel)
            self._turn_away(channel, "debugging is not allowed")
            return
        kind = _TASKS.get(command)
        if kind is None and channel in self._woken:
            kind = _WOKEN_TASKS.get(command)
        if kind is None:
            self._answer(channel, command, bytes(data))
            return
        self._woken.discard(channel)
        task = self._tasks[channel] = kind(self, channel, self._board, bytes(data))
        task.start()
        if command in _WOKEN_TASKS:  # the packet that begins a task is also its first input
            task.packet(command, data)

    def _answer(self, channel: int, command: int, data: bytes) -> None:
        """Handle a command that has one reply. Ignore unknown commands, as hdcd does."""
        if echo := answer(command, data, self._board.parameters):
            level, text = echo
            if text:
                raw = text.encode(errors="surrogateescape")
                self.send(channel, Command.ECHO, bytes([level]) + raw)
        elif command not in (Command.UNITY_ROOTRUN, Command.UNITY_REBOOT):
            return
        self._woken.discard(channel)
        self.send(channel, Command.CHANNEL_CLOSE, b"\x01")
        if command == Command.UNITY_ROOTRUN:  # hdcd restarts itself
            self._transport.close()
        elif command == Command.UNITY_REBOOT and self._board.on_reboot:
            self._board.on_reboot(data.decode(errors="replace"))

    def _watch_host(self) -> None:
        """Check for a lost host while reading is paused: otherwise it goes unnoticed."""
        if not self._holders or self._transport.is_closing():
            return
        sock = self._transport.get_extra_info("socket")
        if sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_CLOSE_WAIT:
            self._transport.abort()
            return
        loop = asyncio.get_running_loop()
        if self._watch:
            self._watch.cancel()
        self._watch = loop.call_later(_WATCH_SECONDS, self._watch_host)
