"""Transports: commands and bytes to and from a board."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.transport.base import (
        CommandResult,
        Copied,
        Forwarded,
        HdcFeatures,
        OpenOptions,
        Reboot,
        Terminal,
        TransferOptions,
        Transport,
        Write,
        board_error,
        last_object,
        remote_words,
        require,
    )
    from labctl.transport.copy import Delivered, receive, send
    from labctl.transport.directories import pull_directory, push_directory
    from labctl.transport.file_transfer import BoardHash
    from labctl.transport.hdc import HdcServerConfig, HdcTcpConfig, HdcTransport, find_server
    from labctl.transport.linked import Stream
    from labctl.transport.local import LocalConfig, LocalTransport
    from labctl.transport.port_forwarding import forwarded_port
    from labctl.transport.readiness import (
        board_state,
        boot_id,
        reboot,
        states_status,
        wait_until_ready,
    )
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "base": "CommandResult Copied Forwarded HdcFeatures OpenOptions Reboot Terminal"
            " TransferOptions Transport Write remote_words board_error last_object require",
            "copy": "Delivered receive send",
            "directories": "pull_directory push_directory",
            "hdc": "HdcServerConfig HdcTcpConfig HdcTransport find_server",
            "local": "LocalConfig LocalTransport",
            "port_forwarding": "forwarded_port",
            "readiness": "board_state boot_id reboot states_status wait_until_ready",
            "linked": "Stream",
            "file_transfer": "BoardHash",
        },
    )

__all__ = [
    "BoardHash",
    "CommandResult",
    "Copied",
    "Delivered",
    "Forwarded",
    "HdcFeatures",
    "HdcServerConfig",
    "HdcTcpConfig",
    "HdcTransport",
    "LocalConfig",
    "LocalTransport",
    "OpenOptions",
    "Reboot",
    "Stream",
    "Terminal",
    "TransferOptions",
    "Transport",
    "Write",
    "board_error",
    "board_state",
    "boot_id",
    "find_server",
    "forwarded_port",
    "last_object",
    "pull_directory",
    "push_directory",
    "reboot",
    "receive",
    "remote_words",
    "require",
    "send",
    "states_status",
    "wait_until_ready",
]
