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
    """Limits of a daemon towards its hosts: sizes, and waiting times in s."""

    heartbeat_seconds: float = 5.0
    #: A host sends first. It is dropped if it has not sent a whole packet by then.
    silence_seconds: float = 30.0
    #: Reading from a host stops while this many bytes of answers wait for it.
    flood_bytes: int = 32 << 20
    #: Hosts connected at once, silent ones included; further ones are cut.
    hosts: int = 512
    #: Directories of one transfer. Their modes are kept in memory; nobody sends this many.
    directories: int = 100_000


@dataclass(frozen=True)
class Board:
    """The board that a daemon serves.

    ``shell`` is a program and its ``-c``: a command's text follows. ``version`` is the release of
    hdcd whose behaviour, faults included, the daemon copies.
    """

    name: str
    directory: Path
    shell: tuple[str, ...] = ("/bin/sh", "-c")
    environment: Mapping[str, str] = field(default_factory=dict)
    version: Version = "3.2.0c"
    #: Hosts that may connect; by default all of them, without a key.
    authorisation: Authorisation | None = None
    #: Called when a host asks for a reboot, with ``""``, ``"bootloader"`` or ``"shutdown"``.
    on_reboot: Callable[[str], None] | None = None
    #: Hooks between the board and its hosts; by default none.
    interference: Interference = field(default_factory=Interference)
    limits: Limits = Limits()

    @property
    def parameters(self) -> Parameters:
        """Its system parameters."""
        return Parameters(self.directory)

    @property
    def profile(self) -> VersionProfile:
        """The version profile of its release."""
        return PROFILES[self.version]
