"""The board that a daemon serves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from labctl.daemon.hooks import Interference


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

    ``shell`` is a program and its ``-c``; the text of a command follows.
    """

    name: str
    directory: Path
    shell: tuple[str, ...] = ("/bin/sh", "-c")
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Called when a host asks for a reboot, with ``""``, ``"bootloader"`` or ``"shutdown"``.
    on_reboot: Callable[[str], None] | None = None
    #: Hooks between the board and its hosts; by default none.
    interference: Interference = field(default_factory=Interference)
    limits: Limits = Limits()
