"""From plain configuration values to a transport; each way imports what it needs itself."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from labctl.errors import ConfigError
from labctl.hdc import Consent
from labctl.transport.base import Transport
from labctl.transport.hdc import HdcTransport

if TYPE_CHECKING:
    from labctl.hdc import HdcServer
    from labctl.hdc.keys import HostKey


def connect(
    kind: str,
    *,
    link: str = "tcp",
    address: str = "",
    key: str = "",
    server: str = "",
    private: bool = False,
    key_file: Path | None = None,
    consent: Consent | None = None,
    connect_timeout: float = 10.0,
) -> Transport:
    """The way to a board; the link itself is opened by the first operation, and again when lost.

    ``kind`` is ``local`` (this host) or ``hdc``, that with ``link`` ``tcp`` (to the board's hdcd at
    ``address``, ``HOST:PORT``) or ``server`` (to the board ``key`` of the hdc server at
    ``server``, or of a ``private`` one that labctl runs). ``connect_timeout`` (s) bounds each
    opening; starting a server comes on top.

    A board on TCP that is locked is shown the host key in ``key_file``; without one the user's own
    (``~/.harmony/hdckey``), else labctl's; a server has a key of its own. ``consent`` says how long
    to wait on TCP for somebody who allows this host on the board. Raises ConfigError.
    """
    if kind == "local":
        from labctl.transport.local import LocalTransport

        return LocalTransport()
    if kind != "hdc":
        raise ConfigError(f"unknown transport {kind!r}", hint="known are: hdc, local")
    if link == "tcp":
        from labctl.hdc import Session

        host, port = _split(address, "a board")

        def find_key() -> "HostKey":
            from labctl.hdc.keys import HostKey  # costly to import, and few boards are locked

            return HostKey.of_this_user() if key_file is None else HostKey.load(key_file)

        return HdcTransport(
            f"hdc tcp {host}:{port}",
            lambda: Session.connect(
                host,
                port,
                timeout=connect_timeout,
                find_key=find_key,
                consent=consent or Consent(),
            ),
        )
    if link != "server":
        raise ConfigError(f"hdc over {link!r} is not available", hint="links are: tcp, server")
    from labctl.hdc import ServerSession
    from labctl.hdc.server_client.keys import check_key

    check_key(key)
    server_of, name = _server(server, key, connect_timeout, private=private)
    return HdcTransport(
        f"hdc {name} {key}",
        lambda: ServerSession.connect(server_of(), key, timeout=connect_timeout),
    )


def find_server(address: str) -> "HdcServer":
    """The hdc server at ``HOST:PORT``, to be asked what it knows; nothing is started.

    Raises ConfigError.
    """
    from labctl.hdc import HdcServer

    return HdcServer(*_split(address, "an hdc server"))


def _server(
    address: str, key: str, timeout: float, *, private: bool
) -> "tuple[Callable[[], HdcServer], str]":
    """What finds a board's server, or starts it, and its name."""
    from labctl.transport.hdc_server.shared import private_server, running_server

    if private:
        return lambda: private_server(key, timeout=timeout), "private server"
    host, port = _split(address, "an hdc server")
    return lambda: running_server(host, port, timeout=timeout), f"server {host}:{port}"


def _split(address: str, what: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit():
        raise ConfigError(f"not an address of {what}: {address!r}", hint="write HOST:PORT")
    if not 0 < int(port) < 1 << 16:
        raise ConfigError(f"no TCP port: {port}", hint="ports are 1 to 65535")
    return host, int(port)
