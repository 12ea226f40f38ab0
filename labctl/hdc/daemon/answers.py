"""Commands that hdcd answers with one text. A board of software has no more to offer there."""

import re
import struct

from labctl.hdc.messages import EchoLevel
from labctl.hdc.wire import Command

_RECORD = struct.Struct("<II")
_BUNDLE_TAG = 1
_RUN_MODE = re.compile(rb"usb|port( close|( \d{1,5})?)")


def answer(command: int, data: bytes) -> tuple[EchoLevel, str] | None:
    """What to say to a command; None: it is no such command."""
    match command:
        case Command.UNITY_REMOUNT:
            return EchoLevel.FAIL, "Mount failed"
        case Command.UNITY_JPID:
            return EchoLevel.OK, "[Empty]"
        case Command.UNITY_RUNMODE if _RUN_MODE.fullmatch(data.split(b"\0")[0].strip()):
            # Nothing changes: hdcd takes the new mode when it is started again, and this one is
            # always started as a TCP daemon at a port of its host's choice.
            return EchoLevel.OK, "Set device run mode successful."
        case Command.UNITY_RUNMODE:
            return EchoLevel.FAIL, "Unknown command"
        case Command.UNITY_EXECUTE_EX:
            bundle = _bundle_name(data).decode(errors="surrogateescape")
            return EchoLevel.FAIL, f"[E003001] Invalid bundle name: {bundle}"
    return None


def _bundle_name(data: bytes) -> bytes:
    """The record with tag 1 of an EXECUTE_EX packet: u32 tag, u32 size (little-endian), value."""
    position = 0
    while position + _RECORD.size <= len(data):
        tag, size = _RECORD.unpack_from(data, position)
        position += _RECORD.size
        if tag == _BUNDLE_TAG:
            return data[position : position + size]
        position += size
    return b""
