"""From plain configuration values to a transport."""

from labctl.errors import ConfigError
from labctl.transport.base import Transport
from labctl.transport.hdc import HdcTransport
from labctl.transport.local import LocalTransport


def connect(
    kind: str, *, link: str = "tcp", address: str = "", connect_timeout: float = 10.0
) -> Transport:
    """The way to a board; the link itself is opened by the first operation, and again when lost.

    ``kind`` is ``hdc`` (``link`` ``tcp``, ``address`` ``HOST:PORT``) or ``local`` (this host).
    ``connect_timeout`` (s) bounds each opening. Raises ConfigError.
    """
    if kind == "local":
        return LocalTransport()
    if kind != "hdc":
        raise ConfigError(f"unknown transport {kind!r}", hint="known are: hdc, local")
    if link != "tcp":
        raise ConfigError(
            f"hdc over {link!r} is not available", hint="use `link: tcp` (on the board: tmode port)"
        )
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit():
        raise ConfigError(f"not an address of a board: {address!r}", hint="write HOST:PORT")
    if not 0 < int(port) < 1 << 16:
        raise ConfigError(f"no TCP port: {port}", hint="ports are 1 to 65535")
    return HdcTransport(host, int(port), connect_timeout=connect_timeout)
