"""How commands and bytes reach a board."""

from labctl.transport.base import CommandResult, Progress, Transport, Write, remote_words
from labctl.transport.connecting import connect
from labctl.transport.digests import BoardHash
from labctl.transport.hdc import HdcTransport
from labctl.transport.local import LocalTransport

__all__ = [
    "BoardHash",
    "CommandResult",
    "HdcTransport",
    "LocalTransport",
    "Progress",
    "Transport",
    "Write",
    "connect",
    "remote_words",
]
