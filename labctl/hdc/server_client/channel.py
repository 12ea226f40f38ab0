"""Conversations with an hdc server: the channel protocol, one TCP connection per conversation.

The server begins the handshake. The client answers with the board's key, then sends one command as
text. The reply is text; in file transfers it also contains tasks: a command (u16, little-endian)
and its data, as in the session protocol. The reply ends with the connection: there is no status.
"""

import re
import struct
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Self

from labctl.errors import (
    AccessDenied,
    LinkError,
    LinkRefused,
    NotAuthorised,
)
from labctl.hdc.messages import Buffer, EchoLevel
from labctl.hdc.server_client.frames import Frames
from labctl.hdc.wire import Command

_TASK = struct.Struct("<H")
#: Frames that are tasks, in a file transfer; all other frames are text for users.
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
#: Maximum wait for room to send the end of a transfer.
_CLOSE_SECONDS = 5.0

_CODE = re.compile(r"\[(E\d{6})\]")
_DENIED = "E000003"
_UNAUTHORISED = frozenset({"E000002", "E000010"})
#: Messages of a server that has no such board, or gets no answer from it, by version.
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


class ChannelKind(Enum):
    """Content of a channel's frames, which the frames themselves do not show."""

    #: Output of a command, and its input.
    OUTPUT = auto()
    #: Messages of the server and the board.
    WORDS = auto()
    #: Tasks in both directions, and messages.
    FILES = auto()


class ServerChannel:
    """A conversation with a board behind an hdc server, converted to packets of a session.

    ``timeout`` (s) limits each single wait. ``on_refusal`` is called if the server reports that the
    board is missing or refuses this host. Frames become ECHO_RAW (output), ECHO (messages), tasks
    and, at the end of the connection, CHANNEL_CLOSE.

    If the server refuses a command, it sends a text that begins with ``[Fail]`` instead of output.
    Output that begins with the same text looks identical: print something else first, as a sentinel
    does.
    """

    def __init__(
        self,
        frames: Frames,
        *,
        timeout: float,
        kind: ChannelKind,
        large_buffers: bool,
        on_refusal: Callable[[LinkError], None],
    ):
        self.timeout = timeout
        self._frames = frames
        self._kind = kind
        self._large_buffers = large_buffers
        self._on_refusal = on_refusal
        self._has_spoken = False
        self._ended = False

    def send(self, command: Command, *data: Buffer) -> None:
        """Send one task, or a shell's input unchanged; several buffers are sent as one frame.

        Raises LinkError.
        """
        head = (_TASK.pack(command),) if self._kind is ChannelKind.FILES else ()
        self._frames.send(*head, *data, timeout=self.timeout)

    def pending(self) -> bool:
        """Return True if :meth:`receive` has a packet or the end to return."""
        return self._ended or self._frames.has_more()

    def receive(self, timeout: float | None = None) -> tuple[int, bytes]:
        """Return the next packet's command and data; CHANNEL_CLOSE at the end. Raises LinkError."""
        frame = None if self._ended else self._frames.read(self._seconds(timeout))
        if frame is None:
            self._ended = True
            return Command.CHANNEL_CLOSE, b""
        is_first, self._has_spoken = not self._has_spoken, True
        if self._kind is ChannelKind.OUTPUT and not (is_first and frame.startswith(b"[Fail]")):
            return Command.ECHO_RAW, frame
        if self._kind is ChannelKind.FILES and len(frame) >= _TASK.size:
            (command,) = _TASK.unpack_from(frame)
            if command in _TASKS:
                small = command == Command.FILE_BEGIN and not self._large_buffers
                return command, b"" if small else frame[_TASK.size :]
        return self._words(frame)

    def _seconds(self, timeout: float | None) -> float:
        return self.timeout if timeout is None else max(timeout, 0)

    def _words(self, frame: bytes) -> tuple[int, bytes]:
        prefix, level = next((known for known in _LEVELS if frame.startswith(known[0])), _PLAIN)
        words = frame.removeprefix(prefix)
        if level is EchoLevel.FAIL and (error := refusal(words, self._frames.label)):
            self._on_refusal(error)
            raise error
        return Command.ECHO, bytes([level]) + words.rstrip(b"\r\n")

    def cut(self) -> None:
        """Cut the connection; waiting threads get an error."""
        self._frames.cut()

    def close(self) -> None:
        """End the conversation; on the board, a running ``sh`` gets its TERM. Idempotent."""
        if self._kind is ChannelKind.FILES and not self._ended and self._frames.is_whole:
            # A lost server has already ended it; frames received before stay valid.
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

    def __exit__(self, *_exception: object) -> None:
        self.close()


def refusal(words: bytes, label: str) -> LinkError | None:
    """Return the error for a server's ``[Fail]`` about the link to a board; else None."""
    text = words.decode(errors="replace").strip()
    code = _CODE.match(text)
    if code and code[1] == _DENIED:
        return AccessDenied(
            f"{label} does not accept the hdc server's key: somebody denied it there", details=text
        )
    if code and code[1] in _UNAUTHORISED:
        return NotAuthorised(
            f"{label} does not accept the hdc server's key",
            hint="allow this host in the dialog on the board's screen, then try again",
            details=text,
        )
    if text.startswith(_NO_BOARD):
        return LinkRefused(
            f"the hdc server cannot reach {label}: {text}",
            hint="check power and cable; `labctl boards` shows its state",
        )
    return None
