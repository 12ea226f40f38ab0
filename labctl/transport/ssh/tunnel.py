"""Tunnels to an hdc server of another host: each connection is a channel of one ssh connection.

Nothing listens on this host, so no other user of it gets to the server.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import paramiko
from paramiko.ssh_exception import SSHException

from labctl.errors import LinkError
from labctl.hdc.messages import Buffer
from labctl.hdc.server_client.way import WayLost
from labctl.transport.ssh.link import SshLink

#: A channel takes no more at once; more would be copied for nothing.
_PIECE_BYTES = 1 << 15


class SshTunnel:
    """A way to ports that a host over ssh reaches; see :class:`labctl.hdc.server_client.Way`."""

    def __init__(self, link: SshLink):
        self.name = link.name
        self._link = link

    @property
    def failure(self) -> LinkError | None:
        """The reason why nothing is carried any more; None while none is known."""
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
        """End all that goes through. Idempotent."""
        self._link.close()


class TunnelSocket:
    """A channel, used as the client of an hdc server uses a socket.

    A tunnel that breaks is an error, and no end of what the server says.
    """

    def __init__(self, channel: paramiko.Channel):
        self._channel = channel

    def settimeout(self, seconds: float) -> None:
        """Bound each wait from now on."""
        self._channel.settimeout(seconds)

    def fileno(self) -> int:
        """Return what poll(2) waits for."""
        return int(self._channel.fileno())

    def close(self) -> None:
        """End the channel. Idempotent."""
        with suppress(OSError, EOFError):  # the connection is gone already
            self._channel.close()

    def sendmsg(self, views: Sequence[Buffer], /) -> int:
        """Send what can be sent at once; return how many bytes that were. Raises OSError."""
        piece = bytearray()
        for view in views:
            piece += memoryview(view)[: _PIECE_BYTES - len(piece)]
            if len(piece) == _PIECE_BYTES:
                break
        with _lost():
            return self._channel.send(bytes(piece))

    def sendall(self, data: bytes | memoryview, /) -> None:
        """Send all of it. Raises OSError."""
        with _lost():
            self._channel.sendall(bytes(data))

    def recv(self, count: int, /) -> bytes:
        """Return the next bytes; empty at the end. Raises OSError, also TimeoutError."""
        data = self._channel.recv(count)
        if not data and not self._channel.eof_received:
            raise WayLost("the ssh connection to its host has ended")
        return data

    def recv_into(self, room: memoryview, /) -> int:
        """Receive the next bytes into ``room``; return their number, 0 at the end."""
        data = self.recv(len(room))
        room[: len(data)] = data
        return len(data)

    def shutdown(self, how: int, /) -> None:
        """End both directions: who waits for bytes wakes up with an error."""
        del how
        self.close()


@contextmanager
def _lost() -> Iterator[None]:
    """Turn what paramiko raises where the host no longer exchanges keys into an OSError."""
    try:
        yield
    except (SSHException, EOFError) as error:
        raise WayLost(f"the ssh connection to its host is lost: {error}") from error
