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
    """Sizes that a daemon takes from its hosts at most, and times (s) that it waits for them."""

    heartbeat_seconds: float = 5.0
    #: A host sends first. One that has not sent a whole packet by then is dropped.
    silence_seconds: float = 30.0
    #: With this many waiting bytes of answers, nothing more is read from a host that takes none.
    flood_bytes: int = 32 << 20
    #: Hosts that are connected at a time, in words or without; more are cut.
    hosts: int = 512
    #: Directories of one transfer: more than anybody sends, for their modes are kept in memory.
    directories: int = 100_000


@dataclass(frozen=True)
class Board:
    """The board that a daemon serves.

    ``shell`` is a program and its ``-c``: a command's text follows. ``version`` is the release of
    hdcd that the daemon behaves like, its faults included.
    """

    name: str
    directory: Path
    shell: tuple[str, ...] = ("/bin/sh", "-c")
    environment: Mapping[str, str] = field(default_factory=dict)
    version: Version = "3.2.0c"
    #: Who may come in: everybody, without a key.
    authorisation: Authorisation | None = None
    #: Called when a host asks for a reboot, with ``""``, ``"bootloader"`` or ``"shutdown"``.
    on_reboot: Callable[[str], None] | None = None
    #: What stands between the board and its hosts: nothing.
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
