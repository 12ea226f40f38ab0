"""The hdc protocols, a library of its own: both ends of a session, and the client of a server."""

from labctl.hdc.host import HostLink
from labctl.hdc.operations import receive_file, send_file, shell
from labctl.hdc.server import HdcServer, Target
from labctl.hdc.server_session import ServerSession
from labctl.hdc.session import Session

__all__ = [
    "HdcServer",
    "HostLink",
    "ServerSession",
    "Session",
    "Target",
    "receive_file",
    "send_file",
    "shell",
]
