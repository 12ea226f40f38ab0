"""A board behind an hdc server: on a USB or UART cable, or on TCP."""

import ipaddress
import re
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Self

from labctl.errors import ConfigError, DeviceLost, LinkError, LinkRefused, NotAuthorised
from labctl.hdc.host.link import PLAIN_FILES, FileOptions, Forwarding, expect, quoted
from labctl.hdc.server.channel import ServerChannel
from labctl.hdc.server.server import HdcServer, Target
from labctl.hdc.wire import Command
from labctl.retry import wait_until

#: A server keeps 32 bytes for a board's key, the last of them a NUL.
MAX_KEY_BYTES = 31

#: States that do not change until somebody does something.
_SETTLED = ("Connected", "Unauthorized")
#: A server that makes its key first, for 2-3 s, says that a connection failed which then succeeds.
_SETTLE_SECONDS = 5.0
_SETTLE_INTERVAL_SECONDS = 0.2
#: The least time for a small question.
_QUESTION_SECONDS = 2.0


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
            targets = server.list_targets(timeout=_left(deadline))
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

    @property
    def can_compress(self) -> bool:
        """Never: a server does not tell a board's version."""
        return False

    @contextmanager
    def open_task(
        self,
        command: Command,  # noqa: ARG002
        data: bytes,  # noqa: ARG002
        *,
        text: str,
        timeout: float,
    ) -> Iterator[ServerChannel]:
        """See :class:`HostLink`: a server takes the text."""
        with self._open(text, timeout, carries_files=False) as channel:
            yield channel

    @contextmanager
    def open_send(
        self, remote: str, *, timeout: float, options: FileOptions = PLAIN_FILES
    ) -> Iterator[ServerChannel]:
        """See :class:`HostLink`."""
        name = quoted(remote.rpartition("/")[2])
        request = f'file send remote -cwd "/" {options.words()}{name} {quoted(remote)}'
        with self._open(request, timeout, carries_files=True) as channel:
            expect(channel, Command.FILE_INIT)  # the server's sign to begin
            channel.send(Command.WAKEUP_SLAVETASK)
            yield channel

    @contextmanager
    def open_receive(
        self, remote: str, *, timeout: float, options: FileOptions = PLAIN_FILES
    ) -> Iterator[ServerChannel]:
        """See :class:`HostLink`."""
        request = f'file recv remote -cwd "/" {options.words()}{quoted(remote)} file'
        with self._open(request, timeout, carries_files=True) as channel:
            yield channel

    def forward(
        self, listen: str, connect: str, *, timeout: float
    ) -> AbstractContextManager[Forwarding]:
        """Not carried by a server yet. Raises ConfigError."""
        raise ConfigError(
            f"{self.label}: {listen} cannot be forwarded to {connect} within {timeout:g} s"
        )

    def reverse(
        self, listen: str, connect: str, *, timeout: float
    ) -> AbstractContextManager[Forwarding]:
        """Not carried by a server yet. Raises ConfigError."""
        raise ConfigError(
            f"{self.label}: {listen} cannot be forwarded to {connect} within {timeout:g} s"
        )

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
        server.connect_target(key, timeout=_left(deadline))
    elif target is None or target.state != "Unknown":
        return target
    seen = [target]

    def settled() -> bool:
        seen.append(server.find(key, timeout=_left(deadline)))
        return seen[-1] is not None and seen[-1].state in _SETTLED

    patience = min(_SETTLE_SECONDS, deadline - time.monotonic())
    wait_until(settled, timeout=patience, interval=_SETTLE_INTERVAL_SECONDS)
    return seen[-1]


def _left(deadline: float) -> float:
    """The time (s) for a question: never so little that the server seems silent."""
    return max(deadline - time.monotonic(), _QUESTION_SECONDS)
