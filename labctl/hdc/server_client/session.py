"""A board behind an hdc server: on a USB or UART cable, or on TCP."""

import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Self

from labctl.errors import ConfigError, DeviceLost, LinkError, LinkRefused
from labctl.hdc.host.link import Forwarding, expect, quoted
from labctl.hdc.server_client.channel import ChannelKind, ServerChannel
from labctl.hdc.server_client.connect_key import check_key
from labctl.hdc.server_client.reaching import reach
from labctl.hdc.server_client.server import HdcServer, Rule
from labctl.hdc.server_client.tunnel import Connection
from labctl.hdc.wire import Command

#: Commands answered by messages, without output.
_SPEAKING = (Command.UNITY_REMOUNT, Command.UNITY_RUNMODE)


class ServerSession:
    """A board behind a server. Use :meth:`connect`; safe to use from several threads.

    ``failure`` is set if the server refused the board, the server or its tunnel was lost, or the
    session was closed. If the board is lost during a command, the output just ends.
    """

    def __init__(self, server: HdcServer, key: str, name: str | None = None):
        self.label = f"the board {key} behind {server.label}"
        self.name = name
        self._failure: LinkError | None = None
        self._server = server
        self._key = key
        self._channels: set[ServerChannel] = set()
        self._state = threading.Lock()

    @classmethod
    def connect(
        cls, server: HdcServer, key: str, *, timeout: float, is_asking: bool = False
    ) -> Self:
        """Connect to the board with this key if the server has it ready within ``timeout`` seconds.

        The server connects again to a board on TCP that it lost, never had, or holds by a dead
        connection: servers do not do that by themselves. ``is_asking``: see :func:`reach`.

        Raises ConfigError (not a key), LinkRefused (no server; board unknown or offline),
        NotAuthorised, CommandTimeout (the board does not answer), another LinkError.
        """
        target = reach(server, check_key(key), timeout=timeout, is_asking=is_asking)
        return cls(server, key, target.name)

    @property
    def failure(self) -> LinkError | None:
        """The reason for the end of the session; None if no reason is known."""
        tunnel = self._server.tunnel
        return self._failure or (None if tunnel is None else tunnel.failure)

    @property
    def can_compress(self) -> bool:
        """False: a server does not report the board's version."""
        return False

    @contextmanager
    def open_task(
        self,
        command: Command,
        data: bytes,  # noqa: ARG002
        *,
        text: str,
        timeout: float,
    ) -> Iterator[ServerChannel]:
        """See :class:`HostLink`: the text is used."""
        if command == Command.UNITY_EXECUTE:
            text = _without_options(text)
        kind = ChannelKind.WORDS if command in _SPEAKING else ChannelKind.OUTPUT
        with self._open(text, timeout, kind) as channel:
            yield channel

    @contextmanager
    def open_send(self, remote: str, *, timeout: float) -> Iterator[ServerChannel]:
        """See :class:`HostLink`."""
        name = quoted(remote.rpartition("/")[2])
        request = f'file send remote -cwd "/" {name} {quoted(remote)}'
        with self._open(request, timeout, ChannelKind.FILES) as channel:
            expect(channel, Command.FILE_INIT)  # the server is ready
            channel.send(Command.WAKEUP_SLAVETASK)
            yield channel

    @contextmanager
    def open_receive(
        self,
        remote: str,
        *,
        timeout: float,
        compress: bool = False,  # noqa: ARG002
    ) -> Iterator[ServerChannel]:
        """See :class:`HostLink`."""
        request = f'file recv remote -cwd "/" {quoted(remote)} file'
        with self._open(request, timeout, ChannelKind.FILES) as channel:
            yield channel

    @contextmanager
    def connect_port(self, port: int, *, timeout: float) -> Iterator[Connection]:
        """See :class:`HostLink`: the server listens on its host, only for this connection."""
        wanted, tunnel = (
            Rule(self._key, "tcp:0", f"tcp:{port}", is_reverse=False),
            self._server.tunnel,
        )
        with self._forwarded(wanted, timeout) as rule:
            if tunnel is not None:
                with closing(tunnel.connect("127.0.0.1", rule.port, timeout=timeout)) as channel:
                    yield channel
                return
            try:
                connected = socket.create_connection(("127.0.0.1", rule.port), timeout=timeout)
            except OSError as error:
                raise LinkRefused(
                    f"{self.label}: cannot connect to port {port}: {error.strerror or error}"
                ) from error
            with connected:
                yield connected

    def forward(
        self, listen: str, connect: str, *, timeout: float
    ) -> AbstractContextManager[Forwarding]:
        """See :class:`HostLink`: the server listens, so it must be on this host."""
        self._require_here()
        return self._forwarded(Rule(self._key, listen, connect, is_reverse=False), timeout)

    def reverse(
        self, listen: str, connect: str, *, timeout: float
    ) -> AbstractContextManager[Forwarding]:
        """See :class:`HostLink`: the server connects, so it must be on this host."""
        self._require_here()
        return self._forwarded(Rule(self._key, listen, connect, is_reverse=True), timeout)

    def _require_here(self) -> None:
        if self._server.tunnel is not None:
            from labctl.hdc.server_client.forwarding import elsewhere

            raise elsewhere(self._server)

    def _forwarded(self, rule: Rule, timeout: float) -> AbstractContextManager[Forwarding]:
        from labctl.hdc.server_client.forwarding import forwarded

        def say(text: str) -> AbstractContextManager[ServerChannel]:
            return self._open(text, timeout, ChannelKind.WORDS)

        return forwarded(self._server, say, rule, timeout=timeout)

    @contextmanager
    def _open(self, command: str, timeout: float, kind: ChannelKind) -> Iterator[ServerChannel]:
        if "\0" in command:
            raise ConfigError("hdc cannot send a command with a NUL byte")
        with self._noting_a_lost_server():
            frames, large_buffers = self._server.open(
                self._key,
                command.encode(errors="surrogateescape"),
                label=self.label,
                timeout=timeout,
            )
            channel = ServerChannel(
                frames,
                timeout=timeout,
                kind=kind,
                large_buffers=large_buffers,
                on_refusal=self._fail,
            )
            with channel:
                with self._state:
                    if self.failure is not None:
                        raise self.failure.again()
                    self._channels.add(channel)
                try:
                    yield channel
                finally:
                    with self._state:
                        self._channels.discard(channel)

    @contextmanager
    def _noting_a_lost_server(self) -> Iterator[None]:
        """Attribute the loss of a server to the host; otherwise it looks like a lost board."""
        try:
            yield
        except LinkError as error:
            if isinstance(error, DeviceLost) and self.failure is None and self._server.is_gone():
                error.of_host()
            if error.is_of_host:
                self._fail(error)
            raise

    def close(self) -> None:
        """End all conversations with the board, and the tunnel to the server. Idempotent."""
        self._fail(DeviceLost(f"the link to {self.label} was closed"))
        with self._state:
            for channel in self._channels:
                channel.cut()
        self._server.close()

    def _fail(self, reason: LinkError) -> None:
        with self._state:
            if self._failure is None:
                self._failure = reason


def _without_options(text: str) -> str:
    """Quote a shell command so that the server finds no options in it; the board unquotes it."""
    command = text.removeprefix("shell ")
    return f'shell "{command}"' if command.startswith("-") else text
