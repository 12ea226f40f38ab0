"""Commands that hdcd answers with one text. A virtual board supports only these."""

import struct

from labctl.hdc.daemon.parameters import Parameters
from labctl.hdc.messages import EchoLevel
from labctl.hdc.wire import Command

_RECORD = struct.Struct("<II")
_BUNDLE_TAG = 1


def answer(command: int, data: bytes, parameters: Parameters) -> tuple[EchoLevel, str] | None:
    """Return the reply to a command, possibly empty (""); None for other commands."""
    match command:
        case Command.UNITY_REMOUNT:
            return EchoLevel.FAIL, "Mount failed"
        case Command.UNITY_JPID:
            return EchoLevel.OK, "[Empty]"
        case Command.UNITY_RUNMODE:
            return _set_run_mode(data.split(b"\0")[0].decode(errors="replace"), parameters)
        case Command.UNITY_EXECUTE_EX:
            bundle = _bundle_name(data).decode(errors="surrogateescape")
            return EchoLevel.FAIL, f"[E003001] Invalid bundle name: {bundle}"
    return None


def _set_run_mode(text: str, parameters: Parameters) -> tuple[EchoLevel, str]:
    """Answer ``tmode``.

    hdcd applies the parameters when it restarts. This daemon always listens at the address that its
    host gave it.
    """
    if text == "usb":
        return (
            EchoLevel.FAIL,
            "[E001000]For USB debugging, please set it on the device's Settings UI",
        )
    if not text.startswith("port"):
        return EchoLevel.FAIL, "[E001001]Unknown command"
    port = "".join(text.split()[1:2])
    if port == "close":
        parameters.set("persist.hdc.port", "0")
        parameters.set("persist.hdc.mode.tcp", "disable")
        return EchoLevel.OK, ""
    if port and not (port.isascii() and port.isdecimal()):
        return EchoLevel.FAIL, "[E001100]Invalid port"
    if port:
        parameters.set("persist.hdc.port", port)
    parameters.set("persist.hdc.mode", "tcp")
    parameters.set("persist.hdc.mode.tcp", "enable")
    return EchoLevel.OK, "Set device run mode successful."


def _bundle_name(data: bytes) -> bytes:
    """Return the value with tag 1 of an EXECUTE_EX packet.

    A record: u32 tag, u32 size (little-endian), value.
    """
    position = 0
    while position + _RECORD.size <= len(data):
        tag, size = _RECORD.unpack_from(data, position)
        position += _RECORD.size
        if tag == _BUNDLE_TAG:
            return data[position : position + size]
        position += size
    return b""
