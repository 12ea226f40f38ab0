"""What a daemon serves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from labctl.hdc.daemon.interference import Interference


@dataclass(frozen=True)
class Board:
    """What a daemon serves: ``shell`` gets the command text as its last argument."""

    name: str
    directory: Path
    shell: tuple[str, ...] = ("/bin/sh", "-c")
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Called when a host asks for a reboot, with ``""``, ``"bootloader"`` or ``"shutdown"``.
    on_reboot: Callable[[str], None] | None = None
    #: What stands between the board and its hosts: nothing.
    interference: Interference = field(default_factory=Interference)
