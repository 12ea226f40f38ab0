"""Tunnels to the host of an hdc server, made by another package, and connections through them."""

from collections.abc import Sequence
from typing import Protocol

from labctl.errors import LinkError
from labctl.hdc.host.link import PortConnection
from labctl.hdc.messages import Buffer


class TunnelLost(ConnectionResetError):
    """A tunnel broke under a connection; neither the server nor the board ended it."""


class Connection(PortConnection, Protocol):
    """A connection to a server, with the methods of a socket; sockets are such connections too."""

    def sendmsg(self, buffers: Sequence[Buffer], /) -> int:
        """Send the bytes that can be sent at once; return their number. Raises OSError."""

    def recv_into(self, room: memoryview, /) -> int:
        """Receive the next bytes; return their number, 0 at the end. Raises OSError."""

    def fileno(self) -> int:
        """Return the descriptor for poll(2)."""

    def shutdown(self, how: int, /) -> None:
        """Cut the connection; waiting threads get an error."""

    def close(self) -> None:
        """Release the connection. Idempotent."""


class Tunnel(Protocol):
    """A tunnel to the host of a server."""

    @property
    def name(self) -> str:
        """Name of that host in messages."""

    @property
    def failure(self) -> LinkError | None:
        """The reason why nothing is forwarded any more; None if no reason is known."""

    def connect(self, host: str, port: int, *, timeout: float) -> Connection:
        """Connect to an address as seen from that host. Raises LinkRefused, LinkError."""

    def close(self) -> None:
        """Close the tunnel and its connections. Idempotent."""
