"""Differences between releases of hdcd on the wire. Everything else is identical."""

from dataclasses import dataclass
from typing import Literal

Version = Literal["3.1.0e", "3.2.0c", "3.2.0f"]


@dataclass(frozen=True)
class VersionProfile:
    """The differences of one release."""

    #: What it says that it can do; empty: it says nothing, and neither sends nor wants heartbeats.
    features: str
    #: Takes blocks that LZ4 made smaller, and sends those that it cannot make smaller as they are.
    #: 3.1.0e refuses the ones and loses the bytes of the others.
    sound_compression: bool
    #: Tells the host at once what a write met with, and not in place of the summary.
    fails_at_once: bool
    #: The largest piece of a command's output. 3.2.0f sends less, sooner: how much is not known,
    #: a page is what a pipe takes in one piece.
    output_piece_bytes: int


_FEATURES = "heartbeat,encrypt_tcp"
PROFILES: dict[Version, VersionProfile] = {
    "3.1.0e": VersionProfile(
        "", sound_compression=False, fails_at_once=False, output_piece_bytes=65_536
    ),
    "3.2.0c": VersionProfile(
        _FEATURES, sound_compression=True, fails_at_once=True, output_piece_bytes=65_536
    ),
    "3.2.0f": VersionProfile(
        _FEATURES, sound_compression=True, fails_at_once=True, output_piece_bytes=4_096
    ),
}
