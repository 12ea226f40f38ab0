"""How commands and bytes reach a board."""

from labctl.transport.answers import board_error, require
from labctl.transport.base import (
    Carried,
    CommandResult,
    Copied,
    Progress,
    Reboot,
    Terminal,
    Transport,
    Write,
    remote_words,
)
from labctl.transport.connecting import connect, find_server
from labctl.transport.digests import BoardHash
from labctl.transport.exchange import Delivered, receive, send
from labctl.transport.hdc import HdcTransport
from labctl.transport.local import LocalTransport
from labctl.transport.readiness import boot_id, reboot, wait_until_ready

__all__ = [
    "BoardHash",
    "Carried",
    "CommandResult",
    "Copied",
    "Delivered",
    "HdcTransport",
    "LocalTransport",
    "Progress",
    "Reboot",
    "Terminal",
    "Transport",
    "Write",
    "board_error",
    "boot_id",
    "connect",
    "find_server",
    "reboot",
    "receive",
    "remote_words",
    "require",
    "send",
    "wait_until_ready",
]
