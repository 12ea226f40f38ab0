"""A board with hdcd."""

from dataclasses import dataclass

from labctl.daemon import board
from labctl.hdc.daemon.authorisation import Authorisation
from labctl.hdc.daemon.parameters import Parameters
from labctl.hdc.daemon.version_profile import PROFILES, Version, VersionProfile


@dataclass(frozen=True)
class Board(board.Board):
    """A board with hdcd. ``version`` is the imitated release, including its bugs."""

    version: Version = "3.2.0c"
    #: Decides which hosts may connect; None: all, without a key.
    authorisation: Authorisation | None = None

    @property
    def parameters(self) -> Parameters:
        """The board's system parameters."""
        return Parameters(self.directory)

    @property
    def profile(self) -> VersionProfile:
        """The version profile of its release."""
        return PROFILES[self.version]
