"""All transports: their models in devices.yaml, whose ``open`` makes the transport.

``config.lab`` reads a board's ``transport:`` with these models; ``cli.lab`` opens it.
"""

from typing import Final

from labctl.transport.adb import AdbConfig
from labctl.transport.hdc import HdcServerConfig, HdcTcpConfig
from labctl.transport.local import LocalConfig
from labctl.transport.ssh.config import SshConfig

TRANSPORTS: Final = (HdcTcpConfig, HdcServerConfig, AdbConfig, SshConfig, LocalConfig)
