"""Conversations with an hdc server: the channel protocol, one TCP connection for each.

Both ways go frames of a length (u32, big-endian) and that many bytes. The server greets first, the
client answers with the key of the board it wants, then sends one command as text. What comes back
is text, and in file transfers also tasks: a command (u16, little-endian) and its data as in the
session protocol. The end of the connection is the end of the answer: there is no status.
"""

import re
import select
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from labctl.errors import (
    CommandTimeout,
    DeviceLost,
    LinkError,
    LinkRefused,
    NotAuthorised,
    ProtocolError,
)
from labctl.hdc.messages import EchoLevel
from labctl.hdc.protobuf import Buffer
from labctl.hdc.wire import MAX_DATA_BYTES, Command

_LENGTH = struct.Struct(">I")
_TASK = struct.Struct("<H")
#: Frames that are tasks, when a file was asked for; all others are text for people.
_TASKS = frozenset(
    {
        Command.FILE_INIT,
        Command.FILE_CHECK,
        Command.FILE_BEGIN,
        Command.FILE_DATA,
        Command.FILE_FINISH,
        Command.FILE_MODE,
        Command.DIR_MODE,
    }
)
_LEVELS = ((b"[Fail]", EchoLevel.FAIL), (b"[Info]", EchoLevel.INFO))
_PLAIN = (b"", EchoLevel.OK)
#: Longest wait for room to say that a transfer is over.
_CLOSE_SECONDS = 5.0

_CODE = re.compile(r"\[(E\d{6})\]")
_UNAUTHORISED = frozenset({"E000002", "E000003", "E000010"})
#: How a server says that it has no such board, or none that answers, by version.
_NO_BOARD = (
    "[E000004]",  # the board is being connected
    "[E001003]",  # USB
    "[E001005]",
    "[E002106]",
    "Device not found",  # also "founded" (3.1.0e)
    "ExecuteCommand need connect-key",
    "No target available",
    "Not match target found",
)


class Frames:
    """A connection that carries frames. ``timeout`` (s) bounds a whole read and each write."""

    def __init__(self, sock: socket.socket, label: str):
        self.label = label
        self._socket = sock
        self._buffer = bytearray(_LENGTH.size)
        self._filled = 0
        self._in_head = True
        self._whole = True

    @property
    def is_whole(self) -> bool:
        """Whether another frame may be sent: none was cut short."""
        return self._whole

    def send(self, *parts: Buffer, timeout: float) -> None:
        """Send one frame. Raises CommandTimeout.

        A connection that the server has ended is no error here: why it did so is to be read.
        """
        if not self._whole:
            raise DeviceLost(f"the link to {self.label} is not in order: a frame was cut short")
        self._whole = False
        views = [memoryview(part) for part in (_LENGTH.pack(sum(map(len, parts))), *parts)]
        self._socket.settimeout(max(timeout, 0.001))
        try:
            while views:
                sent = self._socket.sendmsg(views)
                while views and sent >= len(views[0]):
                    sent -= len(views.pop(0))
                if views:
                    views[0] = views[0][sent:]
        except TimeoutError:
            raise CommandTimeout(
                f"{self.label} took no bytes for {timeout:g} s",
                hint="the board may be frozen, or its storage stuck",
            ) from None
        except OSError:
            return
        self._whole = True

    def read(self, timeout: float, *, at_most: int = MAX_DATA_BYTES) -> bytes | None:
        """The next frame; None when the server ended the connection after the last one.

        Raises CommandTimeout (what had arrived is kept), DeviceLost (cut short), ProtocolError
        (larger than ``at_most`` bytes).
        """
        deadline = time.monotonic() + timeout
        while True:
            while self._filled < len(self._buffer):
                if not self._more(deadline, timeout):
                    return None
            whole, self._filled = self._buffer, 0
            self._in_head = not self._in_head
            if self._in_head:
                self._buffer = bytearray(_LENGTH.size)
                return bytes(whole)
            (size,) = _LENGTH.unpack(whole)
            if size > at_most:
                raise ProtocolError(
                    f"{self.label} sent {bytes(whole)!r} where the length of a frame is due",
                    hint="is this the port of an hdc server (usually 8710)?",
                )
            self._buffer = bytearray(size)

    def _more(self, deadline: float, timeout: float) -> bool:
        self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            count = self._socket.recv_into(memoryview(self._buffer)[self._filled :])
        except TimeoutError:
            raise CommandTimeout(
                f"no answer from {self.label} within {timeout:.3g} s",
                hint="the board may be frozen or overloaded, or the step needs more time",
            ) from None
        except OSError as error:
            raise self._lost(error.strerror or str(error)) from error
        self._filled += count
        if count == 0 and (self._filled or not self._in_head):
            raise self._lost("the hdc server ended in the middle of a frame")
        return count > 0

    def _lost(self, reason: str) -> DeviceLost:
        return DeviceLost(f"lost {self.label}: {reason}", hint="does the hdc server still run?")

    def has_more(self) -> bool:
        """Whether something has arrived, be it the end."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(self._filled or not self._in_head or poll.poll(0))

    def cut(self) -> None:
        """End the connection under whoever waits for it; they are told that it ended."""
        with suppress(OSError):  # the peer may have ended it first
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the connection back. Idempotent."""
        self._socket.close()


class ServerChannel:
    """A conversation with a board behind an hdc server, as the packets that a session would give.

    ``timeout`` (s) bounds each single wait. ``carries_files``: tasks go both ways. ``on_refusal``
    is told when the server says that the board is not there or does not want us. Frames are turned
    into ECHO_RAW (output of a command), ECHO (what server and board say themselves) and, at the end
    of the connection, CHANNEL_CLOSE.

    The server refuses a command with a text that begins with ``[Fail]`` in place of output; output
    that begins so itself is not told from it. Print something else first, as a sentinel does.
    """

    def __init__(
        self,
        frames: Frames,
        *,
        timeout: float,
        carries_files: bool,
        large_buffers: bool,
        on_refusal: Callable[[LinkError], None],
    ):
        self.timeout = timeout
        self._frames = frames
        self._carries_files = carries_files
        self._large_buffers = large_buffers
        self._on_refusal = on_refusal
        self._has_spoken = False
        self._ended = False

    def send(self, command: Command, *data: Buffer) -> None:
        """Send one task; several buffers are sent as one. Raises LinkError."""
        self._frames.send(_TASK.pack(command), *data, timeout=self.timeout)

    def pending(self) -> bool:
        """Whether :meth:`receive` has something to read, or the end to tell."""
        return self._ended or self._frames.has_more()

    def receive(self, timeout: float | None = None) -> tuple[int, bytes]:
        """The next packet's command and data; CHANNEL_CLOSE at the end. Raises LinkError."""
        frame = None if self._ended else self._frames.read(self._patience(timeout))
        if frame is None:
            self._ended = True
            return Command.CHANNEL_CLOSE, b""
        is_first, self._has_spoken = not self._has_spoken, True
        if not self._carries_files:
            if is_first and frame.startswith(b"[Fail]"):
                return self._words(frame)
            return Command.ECHO_RAW, frame
        if len(frame) >= _TASK.size:
            (command,) = _TASK.unpack_from(frame)
            if command in _TASKS:
                small = command == Command.FILE_BEGIN and not self._large_buffers
                return command, b"" if small else frame[_TASK.size :]
        return self._words(frame)

    def _patience(self, timeout: float | None) -> float:
        return self.timeout if timeout is None else max(timeout, 0)

    def _words(self, frame: bytes) -> tuple[int, bytes]:
        prefix, level = next((known for known in _LEVELS if frame.startswith(known[0])), _PLAIN)
        words = frame.removeprefix(prefix)
        if level is EchoLevel.FAIL and (error := refusal(words, self._frames.label)):
            self._on_refusal(error)
            raise error
        return Command.ECHO, bytes([level]) + words.rstrip(b"\r\n")

    def cut(self) -> None:
        """End it under whoever waits for it."""
        self._frames.cut()

    def close(self) -> None:
        """End the conversation; on the board, a running ``sh`` gets its TERM. Idempotent."""
        if self._carries_files and not self._ended and self._frames.is_whole:
            # A server that is gone has ended it already, and what arrived before stays true.
            with suppress(LinkError):
                self._frames.send(
                    _TASK.pack(Command.CHANNEL_CLOSE),
                    b"\x01",
                    timeout=min(self.timeout, _CLOSE_SECONDS),
                )
        self._ended = True
        self._frames.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def refusal(words: bytes, label: str) -> LinkError | None:
    """What a server's ``[Fail]`` says of the way to a board; None when it is about other things."""
    text = words.decode(errors="replace").strip()
    code = _CODE.match(text)
    if code and code[1] in _UNAUTHORISED:
        return NotAuthorised(
            f"{label} does not accept the hdc server's key",
            hint="look at the board's screen and allow this host in its dialog, then try again",
            details=text,
        )
    if text.startswith(_NO_BOARD):
        return LinkRefused(
            f"the hdc server does not reach {label}: {text}",
            hint="is it on, and its cable in place? `labctl boards` shows its state",
        )
    return None
