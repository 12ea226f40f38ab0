"""The board side of a session."""

from labctl.hdc.daemon.board import Board
from labctl.hdc.daemon.daemon import Daemon

__all__ = ["Board", "Daemon"]
