"""The board side of a session."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.hdc.daemon.authorisation import Authorisation
    from labctl.hdc.daemon.board import Board
    from labctl.hdc.daemon.daemon import Daemon, PortTaken
    from labctl.hdc.daemon.limits import allow_boards
    from labctl.hdc.daemon.parameters import PARAMETERS
    from labctl.hdc.daemon.version_profile import Version
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "authorisation": "Authorisation",
            "board": "Board",
            "daemon": "Daemon PortTaken",
            "limits": "allow_boards",
            "parameters": "PARAMETERS",
            "version_profile": "Version",
        },
    )

__all__ = ["PARAMETERS", "Authorisation", "Board", "Daemon", "PortTaken", "Version", "allow_boards"]
