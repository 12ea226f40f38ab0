"""adbd on a TCP port. On the wire it behaves as official servers expect of a phone.

A host may do everything that the invoking user may.
"""

from labctl.adb.daemon.connection import Connection
from labctl.adb.daemon.phone import Phone
from labctl.daemon import daemon


class Daemon(daemon.Daemon[Phone]):
    """One phone's adbd."""

    def meet(self) -> Connection:
        """Return the protocol for an accepted connection."""
        return Connection(self.board, self._admit, self._connections, self._background)
