"""The board side of a session."""

from labctl.hdc.daemon.authorisation import Authorisation
from labctl.hdc.daemon.board import Board
from labctl.hdc.daemon.daemon import Daemon, PortTaken
from labctl.hdc.daemon.limits import allow_boards
from labctl.hdc.daemon.parameters import FOLDER as PARAMETERS
from labctl.hdc.daemon.version_profile import Version

__all__ = ["PARAMETERS", "Authorisation", "Board", "Daemon", "PortTaken", "Version", "allow_boards"]
