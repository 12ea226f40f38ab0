"""The hdc protocols, a separate library: both ends of a session, and the client of a server."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.hdc.host.files import Sending, receive_file, send_file
    from labctl.hdc.host.handshake import Consent
    from labctl.hdc.host.link import (
        Forwarding,
        HostLink,
        InteractiveShell,
        RebootTarget,
        hilog,
        interactive_shell,
        reboot,
        remount,
        set_mode,
        shell,
    )
    from labctl.hdc.host.session import Session
    from labctl.hdc.server_client.server import HdcServer, Target
    from labctl.hdc.server_client.session import ServerSession
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "host.files": "Sending receive_file send_file",
            "host.handshake": "Consent",
            "host.link": "Forwarding HostLink InteractiveShell RebootTarget hilog"
            " interactive_shell reboot remount set_mode shell",
            "host.session": "Session",
            "server_client.server": "HdcServer Target",
            "server_client.session": "ServerSession",
        },
    )

__all__ = [
    "Consent",
    "Forwarding",
    "HdcServer",
    "HostLink",
    "InteractiveShell",
    "RebootTarget",
    "Sending",
    "ServerSession",
    "Session",
    "Target",
    "hilog",
    "interactive_shell",
    "reboot",
    "receive_file",
    "remount",
    "send_file",
    "set_mode",
    "shell",
]
