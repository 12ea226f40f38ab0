"""How commands and bytes reach a board."""

from labctl.transport.answers import board_error, require
from labctl.transport.base import (
    CommandResult,
    Copied,
    Progress,
    Reboot,
    Transport,
    Write,
    remote_words,
)
from labctl.transport.connecting import connect
from labctl.transport.digests import BoardHash
from labctl.transport.hdc import HdcTransport
from labctl.transport.local import LocalTransport
from labctl.transport.readiness import boot_id, reboot, wait_until_ready

__all__ = [
    "BoardHash",
    "CommandResult",
    "Copied",
    "HdcTransport",
    "LocalTransport",
    "Progress",
    "Reboot",
    "Transport",
    "Write",
    "board_error",
    "boot_id",
    "connect",
    "reboot",
    "remote_words",
    "require",
    "wait_until_ready",
]
