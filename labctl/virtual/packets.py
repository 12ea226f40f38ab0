"""Meaning of a daemon's packets for faults and logs: which operation they begin, carry or end."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable

from labctl.adb import packets as adb
from labctl.adb import sync
from labctl.adb.shell_frames import Frame, FrameId, encode_frame
from labctl.hdc.messages import TransferConfig
from labctl.hdc.wire import Command
from labctl.virtual.fault_script import Kind

Begun = tuple[Kind, str] | None
_BEGINNINGS: dict[int, Kind] = {
    Command.HANDSHAKE: "handshake",
    Command.UNITY_EXECUTE: "shell",
    Command.UNITY_HILOG: "shell",
    Command.SHELL_INIT: "interactive",
    Command.FILE_CHECK: "send",
    Command.FILE_INIT: "receive",
    Command.FORWARD_CHECK: "forward",
    Command.FORWARD_INIT: "reverse",
    Command.UNITY_REBOOT: "reboot",
}
#: In FORWARD_CHECK the node follows the context's number and 8 empty bytes.
_NODE_OFFSET = 12


class Packets(ABC):
    """The packets of one protocol."""

    #: Command that ends an operation.
    end: int

    @abstractmethod
    def begun_by(self, command: int, data: memoryview) -> Begun:
        """Return the kind and text of the operation a packet begins. Raises ProtocolError."""

    @abstractmethod
    def key(self, channel: int, command: int) -> int:
        """Return the number under which a packet's operation is known; 0 for a handshake."""

    @abstractmethod
    def shortened(
        self, command: int, kind: Kind, body: bytes, cut: Callable[[bytes], bytes]
    ) -> bytes | None:
        """Apply ``cut`` to a command's output in a packet; None if the packet is left out."""

    @abstractmethod
    def accept_reboot(self, channel: int, send: Callable[[int, int, bytes], None]) -> None:
        """Answer a request for a restart as a board does that restarts."""


class _Hdc(Packets):
    end = Command.CHANNEL_CLOSE

    def begun_by(self, command: int, data: memoryview) -> Begun:
        # FILE_MODE may come before FILE_CHECK, without the path.
        kind = _BEGINNINGS.get(command)
        if kind is None or kind == "handshake":
            return None if kind is None else (kind, "")
        raw = bytes(data)
        if kind == "send":
            return kind, TransferConfig.decode(data).path
        if kind == "forward":
            raw = raw[_NODE_OFFSET:]
        return kind, raw.split(b"\0")[0].decode(errors="replace")

    def key(self, channel: int, command: int) -> int:  # noqa: ARG002 - handshakes are channel 0
        return channel

    def shortened(
        self,
        command: int,
        kind: Kind,  # noqa: ARG002
        body: bytes,
        cut: Callable[[bytes], bytes],
    ) -> bytes | None:
        if command != Command.ECHO_RAW:
            return body
        return cut(body) or (None if body else body)

    def accept_reboot(self, channel: int, send: Callable[[int, int, bytes], None]) -> None:
        send(channel, Command.CHANNEL_CLOSE, b"\x01")


class _Adb(Packets):
    end = adb.Command.CLOSE

    def begun_by(self, command: int, data: memoryview) -> Begun:
        if command == adb.Command.CONNECT:
            return "handshake", ""
        if command == adb.Command.WRITE:
            return _file_request(bytes(data))
        if command != adb.Command.OPEN:
            return None
        name, _, text = os.fsdecode(bytes(data).split(b"\0")[0]).partition(":")
        kind: Kind
        match name.split(",")[0]:
            case "shell" | "exec":
                kind = "shell" if text else "interactive"
            case "reboot" | "reverse" as named:
                kind = "reboot" if named == "reboot" else "reverse"
            case "tcp" | "local" | "localabstract" | "localfilesystem" | "localreserved":
                kind, text = "forward", f"{name}:{text}"
            case _:
                return None
        return kind, text

    def key(self, channel: int, command: int) -> int:
        return 0 if command in (adb.Command.CONNECT, adb.Command.AUTH) else channel

    def shortened(
        self, command: int, kind: Kind, body: bytes, cut: Callable[[bytes], bytes]
    ) -> bytes | None:
        # A packet is never left out: OKAY answers it.
        if command != adb.Command.WRITE or kind not in ("shell", "interactive"):
            return body
        frame = _frame(body)
        if frame is None:
            return cut(body)
        is_output = frame.id in (FrameId.STDOUT, FrameId.STDERR)
        return encode_frame(FrameId(frame.id), cut(frame.data)) if is_output else body

    def accept_reboot(self, channel: int, send: Callable[[int, int, bytes], None]) -> None:
        send(channel, adb.Command.OKAY, b"")
        send(channel, adb.Command.CLOSE, b"")


def _frame(body: bytes) -> Frame | None:
    """Return the frame of a packet: the daemon sends one in each; None: it has none."""
    head = len(encode_frame(FrameId.STDOUT))
    is_whole = len(body) >= head and int.from_bytes(body[1:head], "little") == len(body) - head
    return Frame(body[0], body[head:]) if is_whole else None


def _file_request(data: bytes) -> Begun:
    """Return the transfer that begins on a stream for files: its first one."""
    kind = data[:4]
    if kind not in (sync.SEND, sync.SEND_V2, sync.RECEIVE, sync.RECEIVE_V2):
        return None
    size = int.from_bytes(data[4 : sync.HEAD.size], "little")
    path = os.fsdecode(data[sync.HEAD.size : sync.HEAD.size + min(size, sync.MAX_PATH_BYTES)])
    if kind == sync.SEND:
        path = path.rpartition(",")[0]
    return ("send" if kind in (sync.SEND, sync.SEND_V2) else "receive"), path


PACKETS: dict[str, Packets] = {"hdc": _Hdc(), "adb": _Adb()}
