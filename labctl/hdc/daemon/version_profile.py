"""Differences between releases of hdcd on the wire. Everything else is identical."""

from dataclasses import dataclass
from typing import Literal

Version = Literal["3.1.0e", "3.2.0c", "3.2.0f"]


@dataclass(frozen=True)
class VersionProfile:
    """The differences of one release."""

    #: The features that it reports; if empty, it neither sends nor wants heartbeats.
    features: str
    #: Accepts compressed blocks, and sends blocks uncompressed that LZ4 cannot make smaller.
    #: 3.1.0e refuses the former and loses the bytes of the latter.
    sound_compression: bool
    #: Reports a failed write to the host at once, not in place of the summary.
    fails_at_once: bool
    #: The largest piece of a command's output. 3.2.0f sends smaller ones, sooner: the size is
    #: unknown; a page is what a pipe takes in one piece.
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
