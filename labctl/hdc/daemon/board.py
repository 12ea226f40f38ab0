"""The board that a daemon serves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from labctl.hdc.daemon.authorisation import Authorisation
from labctl.hdc.daemon.hooks import Interference
from labctl.hdc.daemon.parameters import Parameters
from labctl.hdc.daemon.version_profile import PROFILES, Version, VersionProfile


@dataclass(frozen=True)
class Limits:
    """Limits of a daemon for its hosts: sizes, and waiting times in s."""

    heartbeat_seconds: float = 5.0
    #: Time for a host's first whole packet; then the host is disconnected. The host sends first.
    silence_seconds: float = 30.0
    #: Reading from a host stops while this many bytes of replies wait for it.
    flood_bytes: int = 32 << 20
    #: Hosts connected at once, including silent ones; further hosts are disconnected.
    hosts: int = 512
    #: Directories of one transfer, whose modes are kept in memory. Real transfers have fewer.
    directories: int = 100_000


@dataclass(frozen=True)
class Board:
    """The board that a daemon serves.

    ``shell`` is a program and its ``-c``; the text of a command follows. ``version`` is the release
    of hdcd that the daemon imitates, including its bugs.
    """

    name: str
    directory: Path
    shell: tuple[str, ...] = ("/bin/sh", "-c")
    environment: Mapping[str, str] = field(default_factory=dict)
    version: Version = "3.2.0c"
    #: Decides which hosts may connect; None: all, without a key.
    authorisation: Authorisation | None = None
    #: Called when a host asks for a reboot, with ``""``, ``"bootloader"`` or ``"shutdown"``.
    on_reboot: Callable[[str], None] | None = None
    #: Hooks between the board and its hosts; by default none.
    interference: Interference = field(default_factory=Interference)
    limits: Limits = Limits()

    @property
    def parameters(self) -> Parameters:
        """The board's system parameters."""
        return Parameters(self.directory)

    @property
    def profile(self) -> VersionProfile:
        """The version profile of its release."""
        return PROFILES[self.version]
