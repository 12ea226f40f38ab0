"""Tunnels to another host's hdc server: each connection is a channel of one ssh connection.

Nothing listens on this host, so its other users cannot reach the server.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import paramiko
from paramiko.ssh_exception import SSHException

from labctl.errors import LinkError
from labctl.hdc.messages import Buffer
from labctl.hdc.server_client.tunnel import TunnelLost
from labctl.transport.ssh.link import SshLink

#: Maximum bytes that a channel takes at once; more would be copied uselessly.
_PIECE_BYTES = 1 << 15


class SshTunnel:
    """A tunnel to ports that an ssh host can reach; see :class:`labctl.hdc.server_client.Way`."""

    def __init__(self, link: SshLink):
        self.name = link.name
        self._link = link

    @property
    def failure(self) -> LinkError | None:
        """The reason why nothing is forwarded any more; None if no reason is known."""
        failure = self._link.failure
        return None if failure is None else failure.of_host()

    def connect(self, host: str, port: int, *, timeout: float) -> "TunnelSocket":
        """Connect to a port within ``timeout`` seconds. Raises LinkRefused, LinkError."""
        try:
            return TunnelSocket(self._link.connect_port(port, timeout=timeout, address=host))
        except LinkError as error:
            if self.failure is not None:
                error.of_host()
            raise

    def close(self) -> None:
        """Close the tunnel and its connections. Idempotent."""
        self._link.close()


class TunnelSocket:
    """A channel, used like a socket by the client of an hdc server.

    If the tunnel breaks, reading raises an error instead of reporting the end.
    """

    def __init__(self, channel: paramiko.Channel):
        self._channel = channel

    def settimeout(self, seconds: float) -> None:
        """Limit each wait from now on."""
        self._channel.settimeout(seconds)

    def fileno(self) -> int:
        """Return the descriptor for poll(2)."""
        return int(self._channel.fileno())

    def close(self) -> None:
        """Close the channel. Idempotent."""
        with suppress(OSError, EOFError):  # the connection is already gone
            self._channel.close()

    def sendmsg(self, views: Sequence[Buffer], /) -> int:
        """Send the bytes that can be sent at once; return their number. Raises OSError."""
        piece = bytearray()
        for view in views:
            piece += memoryview(view)[: _PIECE_BYTES - len(piece)]
            if len(piece) == _PIECE_BYTES:
                break
        with _lost():
            return self._channel.send(bytes(piece))

    def sendall(self, data: bytes | memoryview, /) -> None:
        """Send all data. Raises OSError."""
        with _lost():
            self._channel.sendall(bytes(data))

    def recv(self, count: int, /) -> bytes:
        """Return the next bytes; empty at the end. Raises OSError, also TimeoutError."""
        data = self._channel.recv(count)
        if not data and not self._channel.eof_received:
            raise TunnelLost("the ssh connection to its host has ended")
        return data

    def recv_into(self, room: memoryview, /) -> int:
        """Receive the next bytes into ``room``; return their number, 0 at the end."""
        data = self.recv(len(room))
        room[: len(data)] = data
        return len(data)

    def shutdown(self, how: int, /) -> None:
        """End both directions: waiting threads get an error."""
        del how
        self.close()


@contextmanager
def _lost() -> Iterator[None]:
    """Raise TunnelLost (an OSError) for paramiko's errors of a lost connection."""
    try:
        yield
    except (SSHException, EOFError) as error:
        raise TunnelLost(f"the ssh connection to its host is lost: {error}") from error
