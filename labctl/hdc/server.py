"""Boards behind an hdc server: those on USB and UART cables, and on TCP.

The server (``hdc`` runs it, on TCP port 8710 of loopback) owns the cables and the keys; it is a
client's business to tell what it says from what is so. Written from recorded traffic of 3.2.0c.
"""

import ipaddress
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Self

from labctl.errors import (
    ConfigError,
    DeviceLost,
    LinkError,
    LinkRefused,
    NotAuthorised,
    ProtocolError,
)
from labctl.hdc.dialling import dial
from labctl.hdc.host import expect, quoted
from labctl.hdc.server_channel import Frames, ServerChannel
from labctl.hdc.wire import Command
from labctl.retry import wait_until

#: A server keeps 32 bytes for a board's key, the last of them a NUL.
MAX_KEY_BYTES = 31

_BANNER = b"OHOS HDC"
_BANNER_BYTES = 12
_KEY_BYTES = 32
#: A greeting: banner and channel id; servers that compare versions add 64 bytes with theirs.
_GREETINGS = (44, 108)
_LARGE_BUFFERS = ord("H")
_CHECK_SERVER = b"\x0d\x00"
#: A server sends as many frames as there is to say; more than this is no list of boards.
_MAX_ANSWER_BYTES = 1 << 20
#: States that do not change until somebody does something.
_SETTLED = ("Connected", "Unauthorized")
#: A server that makes its key first, for 2-3 s, says that a connection failed which then succeeds.
_SETTLE_SECONDS = 5.0
_SETTLE_INTERVAL_SECONDS = 0.2


@dataclass(frozen=True)
class Target:
    """A board as a server lists it."""

    key: str
    connection: str  # USB, UART, TCP
    state: str  # Connected, Offline, Unauthorized, Unknown
    name: str


class HdcServer:
    """An hdc server that runs, and what can be asked of it without a board."""

    def __init__(self, host: str, port: int):
        self.host = host
        self.port = port
        self.label = f"the hdc server at {host}:{port}"

    def version(self, *, timeout: float) -> str:
        """What it says it is, ``Ver: 3.2.0c``: the cheapest proof that a server is there.

        Raises LinkError: LinkRefused when nothing listens.
        """
        answer = self._ask("checkserver", timeout)
        if not answer.startswith(_CHECK_SERVER):
            raise ProtocolError(f"{self.label} answers checkserver with {answer[:80]!r}")
        return answer.removeprefix(_CHECK_SERVER).decode(errors="replace")

    def list_targets(self, *, timeout: float) -> list[Target]:
        """The boards it knows, in every state. Raises LinkError."""
        text = self._ask("list targets -v", timeout).decode(errors="replace")
        targets = []
        for line in text.splitlines():
            if not line or line.startswith("[Empty]"):
                continue
            # KEY, an empty column, connection, state, name; a client of 3.2.0f adds "hdc"
            columns = line.split("\t")
            if len(columns) not in (5, 6):
                raise ProtocolError(f"{self.label} lists a board as {line!r}")
            key, _, connection, state, name = columns[:5]
            targets.append(Target(key, connection, state, name))
        return targets

    def find(self, key: str, *, timeout: float) -> Target | None:
        """The board of that key, None if it knows none. Raises LinkError."""
        targets = self.list_targets(timeout=timeout)
        return next((target for target in targets if target.key == key), None)

    def connect_target(self, key: str, *, timeout: float) -> str:
        """Let it connect to the board at ``HOST:PORT``; what it says. Proves nothing: look again.

        Raises LinkError.
        """
        return self._ask(f"tconn {key}", timeout).decode(errors="replace").strip()

    def open(self, key: str, command: bytes, *, label: str, timeout: float) -> tuple[Frames, bool]:
        """A connection on which ``command`` was sent, and whether it carries large buffers.

        ``timeout`` (s) bounds it in all. Raises LinkError.
        """
        deadline = time.monotonic() + timeout
        sock = dial(
            self.host,
            self.port,
            timeout=timeout,
            peer="hdc server",
            hint="start it with `hdc start`; hdc is part of the OpenHarmony SDK's toolchains",
        )
        with ExitStack() as undo:
            undo.callback(sock.close)
            frames = Frames(sock, label)
            greeting = frames.read(deadline - time.monotonic(), at_most=max(_GREETINGS))
            if greeting is None:
                raise DeviceLost(f"{self.label} closed the connection without a greeting")
            if len(greeting) not in _GREETINGS or not greeting.startswith(_BANNER):
                raise ProtocolError(
                    f"{self.label} greets with {greeting[:16]!r}",
                    hint="is this the port of an hdc server (usually 8710)?",
                )
            banner, version = greeting[:_BANNER_BYTES], greeting[min(_GREETINGS) :]
            # Its own version is a version that it accepts.
            answer = banner + key.encode().ljust(_KEY_BYTES, b"\0") + version
            frames.send(answer, timeout=deadline - time.monotonic())
            frames.send(command, b"\0", timeout=deadline - time.monotonic())
            undo.pop_all()
        return frames, banner[-1] == _LARGE_BUFFERS

    def _ask(self, command: str, timeout: float) -> bytes:
        deadline = time.monotonic() + timeout
        frames, _ = self.open("", command.encode(), label=self.label, timeout=timeout)
        try:
            answer = bytearray()
            while (frame := frames.read(deadline - time.monotonic())) is not None:
                answer += frame
                if len(answer) > _MAX_ANSWER_BYTES:
                    raise ProtocolError(f"{self.label} has no end of its answer to {command!r}")
            return bytes(answer)
        finally:
            frames.close()


class ServerSession:
    """A board behind a server. Use :meth:`connect`; safe to use from several threads.

    ``failure`` is set when the server refused the board or the session was closed. A board lost in
    mid-command shows as an answer that just ends.
    """

    def __init__(self, server: HdcServer, key: str):
        self.label = f"the board {key} behind {server.label}"
        self.failure: LinkError | None = None
        self._server = server
        self._key = key
        self._channels: set[ServerChannel] = set()
        self._state = threading.Lock()

    @classmethod
    def connect(cls, server: HdcServer, key: str, *, timeout: float) -> Self:
        """The board of that key, if the server has it ready within ``timeout`` seconds.

        A board on TCP that the server lost or never had is connected by it first: servers do not do
        that by themselves.

        Raises ConfigError (no key), LinkRefused (no server; board unknown or offline),
        NotAuthorised, another LinkError.
        """
        check_key(key)
        deadline = time.monotonic() + timeout
        target = server.find(key, timeout=timeout)
        if target is None or target.state not in _SETTLED:
            target = _bring(server, key, target, deadline)
        if target is None:
            targets = server.list_targets(timeout=deadline - time.monotonic())
            known = ", ".join(known.key for known in targets)
            raise LinkRefused(
                f"{server.label} knows no board {key}",
                hint=f"it knows {known}" if known else "it knows none: is one on and plugged in?",
            )
        if target.state == "Unauthorized":
            raise NotAuthorised(
                f"the board {key} does not accept the key of {server.label}",
                hint="look at the board's screen and allow this host in its dialog, then try again",
            )
        if target.state != "Connected":
            raise LinkRefused(
                f"the board {key} is {target.state.lower()}, says {server.label}",
                hint="is it on, and its cable in place? `hdc list targets -v` shows what it knows",
            )
        return cls(server, key)

    @contextmanager
    def open_shell(self, command: str, *, timeout: float) -> Iterator[ServerChannel]:
        """See :class:`HostLink`."""
        with self._open(f"shell {command}", timeout, carries_files=False) as channel:
            yield channel

    @contextmanager
    def open_send(self, remote: str, *, timeout: float) -> Iterator[ServerChannel]:
        """See :class:`HostLink`."""
        name = quoted(remote.rpartition("/")[2])
        request = f'file send remote -cwd "/" {name} {quoted(remote)}'
        with self._open(request, timeout, carries_files=True) as channel:
            expect(channel, Command.FILE_INIT)  # the server's sign to begin
            channel.send(Command.WAKEUP_SLAVETASK)
            yield channel

    @contextmanager
    def open_receive(self, remote: str, *, timeout: float) -> Iterator[ServerChannel]:
        """See :class:`HostLink`."""
        request = f'file recv remote -cwd "/" {quoted(remote)} file'
        with self._open(request, timeout, carries_files=True) as channel:
            yield channel

    @contextmanager
    def _open(
        self, command: str, timeout: float, *, carries_files: bool
    ) -> Iterator[ServerChannel]:
        frames, large_buffers = self._server.open(
            self._key,
            command.encode(errors="surrogateescape"),
            label=self.label,
            timeout=timeout,
        )
        channel = ServerChannel(
            frames,
            timeout=timeout,
            carries_files=carries_files,
            large_buffers=large_buffers,
            on_refusal=self._fail,
        )
        with channel:
            with self._state:
                if self.failure is not None:
                    raise type(self.failure)(self.failure.message, hint=self.failure.hint)
                self._channels.add(channel)
            try:
                yield channel
            finally:
                with self._state:
                    self._channels.discard(channel)

    def close(self) -> None:
        """End every conversation with the board. Idempotent."""
        self._fail(DeviceLost(f"the link to {self.label} was closed"))
        with self._state:
            for channel in self._channels:
                channel.cut()

    def _fail(self, reason: LinkError) -> None:
        with self._state:
            if self.failure is None:
                self.failure = reason


def check_key(key: str) -> str:
    """``key`` itself, if a server can be asked for it. Raises ConfigError."""
    if re.fullmatch(r"[!-~]+", key) is None:
        reason = "it is empty or holds blanks or other characters than ASCII's"
    elif len(key) > MAX_KEY_BYTES:
        reason = f"hdc carries at most {MAX_KEY_BYTES} characters"
    elif key == "any":
        reason = "to hdc it means whatever board is connected"
    else:
        return key
    raise ConfigError(
        f"not the key of a board: {key!r}: {reason}", hint="`hdc list targets` shows the keys"
    )


def is_tcp_key(key: str) -> bool:
    """Whether a key is an address (IPv4, as hdc wants it) and a port."""
    host, colon, port = key.rpartition(":")
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return bool(colon) and port.isascii() and port.isdigit()


def _bring(server: HdcServer, key: str, target: Target | None, deadline: float) -> Target | None:
    """The board once its state is settled, or as it is when that takes too long."""
    if is_tcp_key(key):  # servers never connect to those again by themselves
        server.connect_target(key, timeout=deadline - time.monotonic())
    elif target is None or target.state != "Unknown":
        return target
    seen = [target]

    def settled() -> bool:
        seen.append(server.find(key, timeout=deadline - time.monotonic()))
        return seen[-1] is not None and seen[-1].state in _SETTLED

    patience = min(_SETTLE_SECONDS, deadline - time.monotonic())
    wait_until(settled, timeout=patience, interval=_SETTLE_INTERVAL_SECONDS)
    return seen[-1]
