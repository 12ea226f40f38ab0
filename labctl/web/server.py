"""The server of a dashboard: uvicorn, with limits for slow or greedy clients."""

import asyncio
import os
import socket
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from labctl import interrupts
from labctl.config.lab import LabFile
from labctl.database.base import patience
from labctl.errors import ConfigError, HostError
from labctl.web.app import make_app
from labctl.web.dashboard import Listening
from labctl.web.request_checks import Guard

_MOST_HEAD_BYTES = 16 * 1024
_IDLE_SECONDS = 20
_STOP_SECONDS = 3
#: Time within which many connections of one address may send their requests.
_BURST_SECONDS = 1.0
#: Number of free connections below which waiting connections end at once.
_ROOM = 8
#: Maximum wait (s) of a request for a database that is away: there are few threads.
_DATABASE_SECONDS = 10.0


class BoundedHttp(H11Protocol):
    """HTTP/1.1 with a time limit for heads: uvicorn alone waits forever for the first head.

    Few connections of one address may wait without a request, except a burst that sends its
    requests at once. If few connections are free, the oldest waiting connection ends, of the
    address with the most waiting connections.
    """

    _head_timer: asyncio.TimerHandle | None = None
    _patience: asyncio.TimerHandle | None = None
    _address = ""

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a head."""
        super().connection_made(transport)
        self._address = self._guard.address_of(self.client)
        self._is_idle()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._done()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Receive bytes; if they are part of a head, the rest must follow in time."""
        super().data_received(data)
        waits = self.cycle is None or self.cycle.response_complete
        if not waits:
            self._done()
        elif self._head_timer is None:
            self._wait()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete):
            self._is_idle()

    @property
    def _guard(self) -> Guard:
        guard = self.config.app
        assert isinstance(guard, Guard)
        return guard

    def _is_idle(self) -> None:
        """Count the connection as waiting without a request."""
        if not self._address:
            return
        limits, idle = self._guard.limits, self._guard.idle
        own = idle.setdefault(self._address, {})
        own.pop(self.transport, None)
        own[self.transport] = None
        self._patience = self.loop.call_later(_BURST_SECONDS, self._give_way)
        if len(self.connections) > limits.connections - _ROOM:
            most = max(idle.values(), key=len)
            if len(most) > limits.waiting_of_address:
                oldest = next(iter(most))
                del most[oldest]
                oldest.abort()

    def _give_way(self) -> None:
        """End if the address has too many waiting connections; called for the oldest first."""
        self._patience = None
        own = self._guard.idle.get(self._address, {})
        if self.transport in own and len(own) > self._guard.limits.waiting_of_address:
            self.transport.abort()

    def _wait(self) -> None:
        self._head_timer = self.loop.call_later(self._guard.limits.head_seconds, self._give_up)

    def _done(self) -> None:
        idle = self._guard.idle.get(self._address, {})
        idle.pop(self.transport, None)
        if not idle:
            self._guard.idle.pop(self._address, None)
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()


class Server(uvicorn.Server):
    """A server that ends its streams when it stops."""

    def __init__(self, config: uvicorn.Config, app: Guard):
        super().__init__(config)
        self._guard = app

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, unless a signal came before uvicorn had its handlers."""
        interrupts.check()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop, and end the streams, for which it would wait."""
        self._guard.end_streams()
        super().handle_exit(sig, frame)


def listen(listening: Listening) -> tuple[socket.socket, Listening]:
    """Open the socket; return it with its port. Raises HostError, ConfigError."""
    if listening.socket is not None:
        return _unix_socket(listening.socket), listening
    try:
        family, *_ = socket.getaddrinfo(
            listening.host, listening.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with ExitStack() as undo:
            own = undo.enter_context(socket.socket(family))
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            own.bind((listening.host, listening.port))
            own.listen()  # before the address is printed
            undo.pop_all()
    except OSError as error:
        raise HostError(
            f"cannot listen at {listening.host}:{listening.port}: {error.strerror}",
            hint="--listen names an address of this host; --port 0 takes any free port",
        ) from error
    return own, Listening(listening.host, own.getsockname()[1])


def configured(app: Guard) -> uvicorn.Config:
    """Return the settings of the server."""
    return uvicorn.Config(
        app,
        http=BoundedHttp,
        ws="none",
        loop="asyncio",
        lifespan="on",
        # By default it trusts X-Forwarded-For from every client on this host.
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_level="error",
        limit_concurrency=app.limits.connections,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_STOP_SECONDS,
        h11_max_incomplete_event_size=_MOST_HEAD_BYTES,
    )


def serve(lab: LabFile, own: socket.socket, listening: Listening) -> None:
    """Serve until a signal comes. Raises ConfigError, HostError."""
    path = listening.socket
    made = None if path is None else _identity(path)
    try:
        app = make_app(lab, listening)
        with patience(_DATABASE_SECONDS, note=lambda _line: None):  # the watcher reports it once
            Server(configured(app), app).run(sockets=[own])
    finally:
        own.close()
        if path is not None and _identity(path) == made:  # not the file of a later server
            path.unlink(missing_ok=True)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the identity of the file at a path; None without a file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _refuse_if_answered(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(5)
        try:
            link.connect(str(path))
        except ConnectionRefusedError:  # left by a killed server
            return
    raise ConfigError(
        f"another server listens at {path}", hint="end that one first, or name another path"
    )


def _unix_socket(path: Path) -> socket.socket:
    """Open a socket that its owner and group may use; the proxy belongs to the group."""
    own = socket.socket(socket.AF_UNIX)
    before = os.umask(0o117)
    try:
        if path.is_socket():
            _refuse_if_answered(path)
            path.unlink()
        own.bind(str(path))
        own.listen()  # from now on, another server sees that it is taken
    except ConfigError:
        own.close()
        raise
    except OSError as error:
        own.close()
        raise ConfigError(f"cannot listen at {path}: {error.strerror or error}") from error
    finally:
        os.umask(before)
    return own
