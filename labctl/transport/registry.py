"""The transports that there are: the models of what devices.yaml says of each."""

from typing import Final

from labctl.transport.hdc import HdcServerConfig, HdcTcpConfig
from labctl.transport.local import LocalConfig

TRANSPORTS: Final = (HdcTcpConfig, HdcServerConfig, LocalConfig)
