"""The board side of the hdc session protocol: hdcd's replies, for virtual boards.

On the wire it behaves like the recorded hdcd: packet order, error texts, counters of CHANNEL_CLOSE,
no reply to unknown channels and commands. An admitted host may do everything that the invoking user
may. Without an :class:`Authorisation`, every host is admitted.
"""

from labctl.daemon import daemon
from labctl.hdc.daemon.board import Board
from labctl.hdc.daemon.connection import Connection


class Daemon(daemon.Daemon[Board]):
    """One board's hdcd."""

    def meet(self) -> Connection:
        """Return the protocol for an accepted connection."""
        return Connection(self.board, self._admit, self._connections, self._background)
