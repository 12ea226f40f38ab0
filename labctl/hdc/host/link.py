"""The link to a board, of either kind, and requests over it: commands, a shell, a reboot, its log.

:class:`~labctl.hdc.host.session.Session` connects directly to the board's hdcd,
:class:`~labctl.hdc.server_client.session.ServerSession` through an hdc server. Both use the same
task packets, but open conversations differently. So each link has methods for that.
"""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

from labctl.errors import (
    BoardError,
    BoardNoSpace,
    BoardPermission,
    CommandTimeout,
    ConfigError,
    DeviceLost,
    LinkError,
    ProtocolError,
    tells_full_disk,
    tells_refusal,
)
from labctl.hdc.messages import Buffer, EchoLevel
from labctl.hdc.wire import Command


@dataclass(frozen=True)
class Forwarding:
    """Connections to ``listen`` at one end go to ``connect`` at the other.

    Both are nodes as hdc writes them: ``tcp:PORT``, ``localfilesystem:PATH``,
    ``localabstract:NAME``. ``listen`` contains the actual port if the system chose it.
    """

    listen: str
    connect: str

    @property
    def port(self) -> int:
        """The listening port. Raises ConfigError if the listening node is not a TCP port."""
        kind, _, port = self.listen.partition(":")
        if kind != "tcp" or not (port.isascii() and port.isdigit()):
            raise ConfigError(f"not a TCP port: {self.listen}")
        return int(port)


class HostChannel(Protocol):
    """One conversation with a board: a command, a file."""

    @property
    def timeout(self) -> float:
        """Limit (s) of each single wait, for room to send and for the next packet."""

    def send(self, command: Command, *data: Buffer) -> None:
        """Send one packet; several buffers are sent as one packet. Raises LinkError."""

    def pending(self) -> bool:
        """Return True if :meth:`receive` would return something at once."""

    def receive(self, timeout: float | None = None) -> tuple[int, bytes]:
        """Return the next packet's command and data, in order; CHANNEL_CLOSE is the last packet.

        Raises CommandTimeout if no packet comes within ``timeout`` seconds (default: the
        channel's), another LinkError if the link broke.
        """


class PortConnection(Protocol):
    """A connection to a port, with the methods of a socket; sockets are such connections too."""

    def settimeout(self, seconds: float) -> None:
        """Limit each wait from now on."""

    def sendall(self, data: bytes | memoryview, /) -> None:
        """Send all data. Raises OSError, LinkError."""

    def recv(self, count: int, /) -> bytes:
        """Return the next bytes, at most ``count``; empty at the end. Raises OSError, LinkError."""


class HostLink(Protocol):
    """A connected board. ``label`` names it in messages; ``failure`` is set at its end.

    Each ``open_…`` begins a conversation that ends with the context, on the board too. It raises
    LinkError, BoardError, ConfigError (text that hdc cannot send).
    """

    @property
    def label(self) -> str:
        """Name of the link in messages."""

    @property
    def name(self) -> str | None:
        """The board's own name, as `hdc list targets -v` shows it; None if it is unknown."""

    @property
    def failure(self) -> LinkError | None:
        """The reason why no further channel can be opened; None if no reason is known."""

    @property
    def can_compress(self) -> bool:
        """True if the board is known to handle LZ4 in files well: hdcd 3.2 and later."""

    def open_task(
        self, command: Command, data: bytes, *, text: str, timeout: float
    ) -> AbstractContextManager[HostChannel]:
        """Open a channel and request a task: ``command`` with ``data``, or a server's ``text``.

        ECHO_RAW packets with its output follow. SHELL_DATA packets are its input.
        """

    def open_send(self, remote: str, *, timeout: float) -> AbstractContextManager[HostChannel]:
        """Open a channel on which the board waits for the FILE_CHECK of files for ``remote``."""

    def open_receive(
        self, remote: str, *, timeout: float, compress: bool = False
    ) -> AbstractContextManager[HostChannel]:
        """Open a channel and request the files at ``remote``; their FILE_CHECK packets follow.

        ``compress`` lets the board send LZ4 blocks: only if :attr:`can_compress`.
        """

    def connect_port(self, port: int, *, timeout: float) -> AbstractContextManager[PortConnection]:
        """Within the context, connect to a TCP port on the board's loopback.

        ``timeout`` (s) limits the start. Raises LinkRefused (nothing listens there), LinkError.
        """

    def forward(
        self, listen: str, connect: str, *, timeout: float
    ) -> AbstractContextManager[Forwarding]:
        """Within the context, forward connections to ``listen`` here to ``connect`` on the board.

        With ``tcp:0`` the system chooses a port, if the link itself listens. ``timeout`` (s) limits
        the start. Raises ConfigError (no such node), HostError (cannot listen), LinkError,
        BoardError.
        """

    def reverse(
        self, listen: str, connect: str, *, timeout: float
    ) -> AbstractContextManager[Forwarding]:
        """Within the context, forward connections to ``listen`` on the board to ``connect`` here.

        Raises as :meth:`forward`; BoardError if the board cannot listen.
        """

    def close(self) -> None:
        """End the link and all its conversations. Idempotent."""


def check_path(path: str) -> str:
    """Return ``path``. Raises ConfigError if hdc cannot name it."""
    if any(character in path for character in '"%\0'):
        raise ConfigError(
            f"hdc cannot name a path with a double quote, a percent sign or a NUL byte: {path!r}"
        )
    return path


def quoted(path: str) -> str:
    """Quote a path as one word of hdc's command lines. Raises ConfigError."""
    return f'"{check_path(path)}"'


def expect(
    channel: HostChannel,
    wanted: Command,
    *,
    also: Callable[[int, bytes], bool] = lambda _command, _data: False,
) -> bytes:
    """Return the data of the next packet, which must be ``wanted``, after any messages.

    ``also`` gets other packets, and returns True if it handled the packet. Others are errors.
    """
    deadline = time.monotonic() + channel.timeout  # a message alone is not progress
    while True:
        kind, data = channel.receive(deadline - time.monotonic())
        if kind == wanted:
            return data
        if not also(kind, data):
            refuse(kind, data, wanted.name)


def refuse(kind: int, data: bytes, due: str) -> None:
    """Raise the error for an unexpected packet, unless it only informs."""
    if kind == Command.CHANNEL_CLOSE:
        raise DeviceLost("the board broke off the transfer without a reason")
    if kind != Command.ECHO:
        raise ProtocolError(f"the board sent command {kind}; expected {due}")
    raise_echo(data)


def raise_echo(data: bytes) -> None:
    """Raise the error for an ECHO packet, unless it only informs."""
    text = data[1:].decode(errors="replace").strip()
    if not data or data[0] != EchoLevel.FAIL:
        return
    if tells_full_disk(text):
        raise BoardNoSpace(f"the board's storage is full: {text}", hint="free space on the board")
    if tells_refusal(text):
        raise BoardPermission(
            f"the board refuses access: {text}", hint="use a path below the board's workdir"
        )
    raise BoardError(f"the board answers: {text}")


#: Maximum time (s) of one wait for output by a command's reader.
LOOK_SECONDS = 0.25
#: hdc's command for each mode into which a board restarts.
RebootTarget = Literal["", "bootloader", "recovery", "flashd", "shutdown"]
_REBOOT_TEXTS = {
    "": "target boot",
    "bootloader": "target boot -bootloader",
    "recovery": "target boot -recovery",
    "flashd": "target boot -flashd",
    "shutdown": "target boot shutdown",
}


def shell(link: HostLink, command: str, *, timeout: float) -> Generator[bytes, None, None]:
    """Run ``command`` in the board's shell; yield its output, piece by piece, until it ends.

    Without output, an empty piece comes every ``LOOK_SECONDS``. Close the iterator to end the
    command early. The protocol has no exit status, and the end of the output alone proves nothing.
    ``timeout`` (s) limits the whole command. Raises LinkError, BoardError.
    """
    raw = command.encode(errors="surrogateescape")
    with link.open_task(
        Command.UNITY_EXECUTE, raw, text=f"shell {command}", timeout=timeout
    ) as channel:
        yield from _output(channel, timeout, look=LOOK_SECONDS)


def hilog(link: HostLink, arguments: str = "", *, timeout: float) -> Generator[bytes, None, None]:
    """Yield the board's log, piece by piece, for ``timeout`` seconds or until closed.

    hdc itself does not pass arguments. With ``arguments`` (shell text), the board's ``hilog`` runs
    as an ordinary command; it ends by itself only with ``-x``. Raises LinkError, BoardError.
    """
    command = f"hilog {arguments}" if arguments else ""
    with link.open_task(
        Command.UNITY_EXECUTE if command else Command.UNITY_HILOG,
        command.encode(errors="surrogateescape"),
        text=f"shell {command}" if command else "hilog",
        timeout=timeout,
    ) as channel:
        yield from _output(channel, timeout)


def reboot(link: HostLink, how: RebootTarget = "", *, timeout: float) -> None:
    """Restart the board; return once it has accepted the request or is already gone.

    This does not prove that the board restarted or came back: compare its boot id later. Raises
    LinkError, BoardError.
    """
    with link.open_task(
        Command.UNITY_REBOOT, how.encode(), text=_REBOOT_TEXTS[how], timeout=timeout
    ) as channel:
        try:
            for _ in _output(channel, timeout):
                pass
        except DeviceLost:
            return  # as requested


def remount(link: HostLink, *, timeout: float) -> str:
    """Make the board's system partitions writable (``target mount``); return the reply.

    Raises LinkError, BoardError if the board cannot.
    """
    return _answer(link, Command.UNITY_REMOUNT, b"", "target mount", timeout)


def set_mode(link: HostLink, mode: str, *, timeout: float) -> str:
    """Change how the board's hdcd listens (``tmode port 5555``, ``tmode usb``); return the reply.

    Raises LinkError, BoardError if the board cannot.
    """
    return _answer(link, Command.UNITY_RUNMODE, mode.encode(), f"tmode {mode}", timeout)


def _answer(link: HostLink, command: Command, data: bytes, text: str, timeout: float) -> str:
    with link.open_task(command, data, text=text, timeout=timeout) as channel:
        words: list[bytes] = []
        for _ in _output(channel, timeout, words):
            pass
    return b"\n".join(words).decode(errors="replace")


class InteractiveShell:
    """A shell on a terminal of the board. One thread may send while another receives."""

    def __init__(self, channel: HostChannel):
        self._channel = channel
        self._ended = False

    def send(self, data: bytes) -> None:
        """Type ``data``; a byte 4 on an empty line ends the shell. Raises LinkError."""
        self._channel.send(Command.SHELL_DATA, data)

    def receive(self, timeout: float) -> bytes | None:
        """Return the next output; empty (``b""``) after ``timeout`` seconds; None after the end.

        Raises LinkError, BoardError.
        """
        deadline = time.monotonic() + timeout
        while not self._ended:
            try:
                command, data = self._channel.receive(deadline - time.monotonic())
            except CommandTimeout:
                return b""
            if command == Command.CHANNEL_CLOSE:
                self._ended = True
            elif command == Command.ECHO:
                raise_echo(data)
            elif command == Command.ECHO_RAW and data:
                return data
        return None


@contextmanager
def interactive_shell(link: HostLink, *, timeout: float) -> Iterator[InteractiveShell]:
    """Open an interactive shell for the context. ``timeout`` (s) limits each wait to send."""
    with link.open_task(Command.SHELL_INIT, b"", text="shell", timeout=timeout) as channel:
        yield InteractiveShell(channel)


def _output(
    channel: HostChannel,
    timeout: float,
    words: list[bytes] | None = None,
    look: float | None = None,
) -> Generator[bytes, None, None]:
    """Yield a task's output until it ends, within ``timeout`` seconds.

    ``words`` collects the task's messages. With ``look`` (s), an empty piece follows each wait of
    that time without output.
    """
    deadline = time.monotonic() + timeout
    while True:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise CommandTimeout(f"the command did not end within {timeout:g} s")
        waited = remaining if look is None else min(remaining, look)
        until = time.monotonic() + waited
        try:
            kind, data = channel.receive(waited)
        except CommandTimeout:
            if look is None or time.monotonic() < until:  # otherwise the link itself ended
                raise
            yield b""
            continue
        if kind == Command.CHANNEL_CLOSE:
            return
        if kind == Command.ECHO:
            raise_echo(data)
            if words is not None:
                words.append(data[1:].strip())
        elif kind == Command.ECHO_RAW:
            yield data
