"""Differences between releases of hdcd on the wire. Everything else is identical."""

from dataclasses import dataclass
from typing import Literal

Version = Literal["3.1.0e", "3.2.0c", "3.2.0f"]


@dataclass(frozen=True)
class VersionProfile:
    """The differences of one release."""

    #: Reported features; if empty, the release neither sends nor wants heartbeats.
    features: str
    #: Accepts compressed blocks, and sends blocks uncompressed that LZ4 cannot make smaller. 3.1.0e
    #: refuses compressed blocks, and loses the bytes of blocks that LZ4 cannot make smaller.
    sound_compression: bool
    #: Reports a failed write to the host at once; other releases report it instead of the summary.
    fails_at_once: bool
    #: Maximum piece of a command's output. 3.2.0f sends smaller pieces, sooner. Their size is
    #: unknown; a pipe takes a page in one piece.
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
