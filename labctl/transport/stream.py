"""A connection to a port on a board, whatever carries it."""

from typing import Protocol

from labctl.errors import CommandTimeout, DeviceLost


class Connected(Protocol):
    """A carrier of bytes, as sockets are: a socket, an ssh channel, a channel of hdc.

    Waits end with TimeoutError or CommandTimeout; a broken way raises OSError, EOFError or
    another LinkError.
    """

    def settimeout(self, seconds: float) -> None:
        """Bound each wait from now on."""

    def sendall(self, data: bytes | memoryview, /) -> None:
        """Send all of it."""

    def recv(self, count: int, /) -> bytes:
        """Return the next bytes, at most ``count``; empty at the end."""


class Stream:
    """A connection to a port on a board. ``label`` names the board in messages.

    ``timeout`` (s) bounds each wait for the board to take or say something.
    """

    def __init__(self, label: str, connected: Connected, *, timeout: float):
        self.label = label
        self._connected = connected
        self.timeout = timeout

    def send(self, data: bytes | memoryview) -> None:
        """Send all of it. Raises CommandTimeout, DeviceLost."""
        self._connected.settimeout(self.timeout)
        try:
            self._connected.sendall(data)
        except TimeoutError as error:
            raise self._silent() from error
        except (OSError, EOFError) as error:
            raise self._broken(error) from error

    def receive(self, count: int) -> bytes:
        """Return the next bytes, at most ``count``; empty at the end. Raises CommandTimeout,
        DeviceLost.
        """
        self._connected.settimeout(self.timeout)
        try:
            return self._connected.recv(count)
        except TimeoutError as error:
            raise self._silent() from error
        except (OSError, EOFError) as error:
            raise self._broken(error) from error

    def _silent(self) -> CommandTimeout:
        return CommandTimeout(
            f"{self.label}: no progress for {self.timeout:g} s",
            hint="the board may be frozen, or its storage stuck",
        )

    def _broken(self, error: OSError | EOFError) -> DeviceLost:
        reason = getattr(error, "strerror", None) or str(error) or "it was closed"
        return DeviceLost(f"{self.label}: the connection broke: {reason}")
