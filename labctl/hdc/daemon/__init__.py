"""The board side of a session."""

from labctl.hdc.daemon.authorisation import Authorisation
from labctl.hdc.daemon.board import Board
from labctl.hdc.daemon.daemon import Daemon
from labctl.hdc.daemon.dialect import Version
from labctl.hdc.daemon.limits import allow_boards

__all__ = ["Authorisation", "Board", "Daemon", "Version", "allow_boards"]
