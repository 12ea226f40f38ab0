"""The hdc protocols, a library of its own: both ends of a session, and the client of a server."""

from labctl.hdc.host.handshake import Consent
from labctl.hdc.host.link import PLAIN_FILES, FileOptions, Forwarding, HostLink
from labctl.hdc.host.operations import receive_file, send_file, shell
from labctl.hdc.host.session import Session
from labctl.hdc.server.server import HdcServer, Target
from labctl.hdc.server.session import ServerSession

__all__ = [
    "PLAIN_FILES",
    "Consent",
    "FileOptions",
    "Forwarding",
    "HdcServer",
    "HostLink",
    "ServerSession",
    "Session",
    "Target",
    "receive_file",
    "send_file",
    "shell",
]
