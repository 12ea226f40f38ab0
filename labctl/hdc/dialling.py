"""TCP connections to boards and servers, which notice when the other end is gone."""

import socket

from labctl.errors import ConfigError, LinkRefused

#: Kernel probes of an idle link: the board's kernel answers them even while hdcd is starved. They
#: pause while bytes are unacknowledged (our heartbeats, say): for those the last option is the
#: bound, without which the kernel would repeat them for a quarter of an hour.
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)


def dial(host: str, port: int, *, timeout: float, peer: str, hint: str) -> socket.socket:
    """Connect within ``timeout`` seconds; ``peer`` says in messages who should be there.

    Raises LinkRefused with ``hint`` (nothing listens, no route), ConfigError (no name of a host).
    """
    try:
        sock = socket.create_connection((host, port), timeout=max(timeout, 0.001))
    except OSError as error:
        reason = error.strerror or str(error)
        raise LinkRefused(f"no {peer} answers at {host}:{port}: {reason}", hint=hint) from error
    except UnicodeError as error:  # a label of the name is empty or too long
        raise ConfigError(f"not the name of a host: {host!r}") from error
    for option in _KEEPALIVE:
        sock.setsockopt(*option)
    return sock
