"""An adb server, and the requests to it: four hex digits of length, then the request.

Source: ``SERVICES.TXT`` of Android's platform/packages/modules/adb, and recorded traffic of 29.0.6
and 36.0.0. labctl neither starts nor ends a server: it owns the USB cables, the keys and the
pairings of this host.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from labctl.adb import ADB_SERVER
from labctl.adb.server_client.connection import Connection, shown
from labctl.adb.server_client.states import Device, read_device
from labctl.errors import ConfigError, LinkError, LinkRefused
from labctl.tcp import dial

_START_HINT = "start it: `adb start-server` (labctl never starts or ends one)"
_MAX_REQUEST_BYTES = 0xFFFF
#: Time for a working server to report its version.
_QUESTION_SECONDS = 2.0
_NOT_CONNECTED = (b"failed to connect", b"unable to connect", b"cannot connect", b"missing port")


class Refused(LinkRefused):
    """A server's answer FAIL; ``reason`` is its text, which nobody has checked."""

    reason: bytes = b""


def usual_address() -> str:
    """Return the address of this host's adb server, from adb's environment variables.

    Raises ConfigError for a server that has no TCP address.
    """
    socket = os.environ.get("ADB_SERVER_SOCKET")
    host, _, port = ADB_SERVER.partition(":")
    if socket:
        kind, _, place = socket.partition(":")
        if kind != "tcp" or not place:
            raise ConfigError(
                f"ADB_SERVER_SOCKET={socket}: labctl reaches an adb server over TCP only",
                hint="set it to tcp:HOST:PORT or tcp:PORT, and start the server with it",
            )
        return place if ":" in place else f"{host}:{place}"
    host = os.environ.get("ANDROID_ADB_SERVER_ADDRESS") or host
    return f"{host}:{os.environ.get('ANDROID_ADB_SERVER_PORT') or port}"


class AdbServer:
    """A running adb server. Errors of the server itself are attributed to its host."""

    def __init__(self, host: str, port: int):
        self.host = host
        self.port = port
        self.label = f"the adb server at {host}:{port}"

    def version(self, *, timeout: float) -> int:
        """Return the number of the server's protocol: the cheapest proof that it runs.

        Raises LinkError: LinkRefused if nothing listens.
        """
        answer = self.ask("host:version", timeout=timeout)
        try:
            return int(answer, 16)
        except ValueError:
            raise LinkRefused(
                f"{self.label} gives {shown(answer)!r} as its version"
            ).of_host() from None

    def is_gone(self) -> bool:
        """Return True if the server does not even report its version now."""
        try:
            self.version(timeout=_QUESTION_SECONDS)
        except LinkError:
            return True
        return False

    def devices(self, *, timeout: float) -> list[Device]:
        """Return all devices of the server, in every state. Raises LinkError.

        A line that cannot be parsed is logged and skipped.
        """
        found = []
        for line in (
            self.ask("host:devices-l", timeout=timeout).decode(errors="replace").split("\n")
        ):
            if (device := read_device(line)) is not None:
                found.append(device)
            elif line.strip():
                logging.getLogger("labctl.adb").warning("%s: left out: %r", self.label, line[:200])
        return found

    def connect_device(self, address: str, *, timeout: float) -> str | None:
        """Ask the server to connect to a device at HOST:PORT; return why it could not, or None."""
        answer = self.ask(f"host:connect:{address}", timeout=timeout)
        return shown(answer) if answer.lower().startswith(_NOT_CONNECTED) else None

    def ask(self, request: str, *, timeout: float) -> bytes:
        """Return the answer to a request of the server itself. Raises LinkError."""
        with _of_host(), self.open(request, label=self.label, timeout=timeout) as connection:
            return connection.read_answer(timeout)

    def open(self, *requests: str, label: str, timeout: float) -> Connection:
        """Return a new connection on which the requests were accepted, one after another.

        ``timeout`` (s) limits each wait. Raises Refused if the server or the device refuses one,
        another LinkError, ConfigError (too long, not text).
        """
        raw = [_encoded(request) for request in requests]
        with ExitStack() as undo:
            with _of_host():
                sock = dial(
                    self.host, self.port, timeout=timeout, peer="adb server", hint=_START_HINT
                )
            connection = undo.enter_context(Connection(sock, label))
            for request in raw:
                connection.send([b"%04x" % len(request), request], timeout=timeout)
                self._expect_okay(connection, timeout)
            undo.pop_all()
        return connection

    def _expect_okay(self, connection: Connection, timeout: float) -> None:
        status = connection.read(4, timeout)
        if status == b"FAIL":
            reason = connection.read_answer(timeout)
            refused = Refused(f"{connection.label}: adb answers: {shown(reason) or 'no reason'}")
            refused.reason = reason
            raise refused
        if status != b"OKAY":
            raise connection.odd(status).of_host()


def _encoded(request: str) -> bytes:
    try:
        raw = request.encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        raise ConfigError(f"a request to adb is not text: {request[:100]!r}") from error
    if b"\0" in raw or len(raw) > _MAX_REQUEST_BYTES:
        raise ConfigError(f"adb takes requests of at most {_MAX_REQUEST_BYTES} bytes without NUL")
    return raw


@contextmanager
def _of_host() -> Iterator[None]:
    """Attribute errors inside to the server's host."""
    try:
        yield
    except LinkError as error:
        error.of_host()
        raise
