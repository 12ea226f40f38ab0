"""The transports that there are: the models of what devices.yaml says of each."""

from typing import Final

from labctl.transport.hdc import HdcServerConfig, HdcTcpConfig
from labctl.transport.local import LocalConfig
from labctl.transport.ssh.transport import SshConfig

TRANSPORTS: Final = (HdcTcpConfig, HdcServerConfig, SshConfig, LocalConfig)
