"""Structures of adb's file service (``sync:``), without input or output.

Every request and answer begins with four letters and a u32, all little-endian; source:
``file_sync_protocol.h`` of Android's platform/packages/modules/adb. Version 2 of a service is
offered by a feature of the device: ``stat_v2``, ``ls_v2``, ``sendrecv_v2``.
"""

import struct
from enum import IntFlag
from typing import Final, NamedTuple, Self

#: Identity of a request or an answer.
LIST: Final = b"LIST"
LIST_V2: Final = b"LIS2"
ENTRY: Final = b"DENT"
ENTRY_V2: Final = b"DNT2"
STAT: Final = b"STAT"
STAT_V2: Final = b"STA2"
LSTAT_V2: Final = b"LST2"
SEND: Final = b"SEND"
SEND_V2: Final = b"SND2"
RECEIVE: Final = b"RECV"
RECEIVE_V2: Final = b"RCV2"
DATA: Final = b"DATA"
DONE: Final = b"DONE"
OKAY: Final = b"OKAY"
FAIL: Final = b"FAIL"
QUIT: Final = b"QUIT"

#: Maximum data of one DATA block.
MAX_DATA_BYTES: Final = 64 << 10
#: Maximum length of a path.
MAX_PATH_BYTES: Final = 1024

#: Four letters and a number: a size, or a time after DONE.
HEAD: Final = struct.Struct("<4sI")
#: Answer to STAT: STAT, mode, size, time of change.
STAT_ANSWER: Final = struct.Struct("<4s3I")
#: Entry of LIST: DENT, mode, size, time of change, length of the name.
ENTRY_HEAD: Final = struct.Struct("<4s4I")
#: Second part of SND2: SND2, mode, flags; of RCV2: RCV2, flags.
SEND_V2_OPTIONS: Final = struct.Struct("<4s2I")
RECEIVE_V2_OPTIONS: Final = struct.Struct("<4sI")

_STAT_V2 = struct.Struct("<4sI2Q4IQ3q")
_ENTRY_V2 = struct.Struct("<4sI2Q4IQ3qI")


class SyncFlags(IntFlag):
    """Flags of SND2 and RCV2."""

    NONE = 0
    BROTLI = 1
    LZ4 = 2
    ZSTD = 4
    DRY_RUN = 0x80000000


class FileStat(NamedTuple):
    """Answer to STA2 and LST2, and each entry of LIS2.

    ``error`` is an errno of Linux, 0 for none; times are seconds since 1970.
    """

    error: int
    device: int
    inode: int
    mode: int
    links: int
    uid: int
    gid: int
    size: int
    accessed: int
    modified: int
    changed: int

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read an answer of :attr:`SIZE` bytes, its identity included."""
        return cls(*_STAT_V2.unpack(data)[1:])

    def encode(self, identity: bytes) -> bytes:
        """Return the answer to ``identity``."""
        return _STAT_V2.pack(identity, *self)

    def encode_entry(self, name: bytes) -> bytes:
        """Return the entry of LIS2 for a file of this name."""
        return _ENTRY_V2.pack(ENTRY_V2, *self, len(name)) + name


#: Size of an answer to STA2, in bytes.
STAT_V2_BYTES: Final = _STAT_V2.size
