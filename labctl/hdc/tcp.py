"""TCP connections to boards and servers, which notice when the other end is gone."""

import socket
import threading
import time
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from asyncio import Server  # slow to import, and most who dial serve nobody

_Address = tuple[
    socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
]


def dial(host: str, port: int, *, timeout: float, peer: str, hint: str) -> socket.socket:
    """Connect within ``timeout`` seconds; ``peer`` says in messages who should be there.

    Raises LinkRefused with ``hint`` (nothing listens, no route), ConfigError (no name of a host).
    """
    deadline = time.monotonic() + timeout
    try:
        addresses = _addresses(host, port, timeout)
    except OSError as error:
        reason = error.strerror or str(error)
        raise LinkRefused(
            f"no {peer} answers at {host}:{port}: {reason}",
            hint=f"is {host!r} spelt right, and known to DNS or in /etc/hosts? An address works"
            " without a name",
        ) from error
    except UnicodeError as error:  # a label of the name is empty or too long
        raise ConfigError(f"not the name of a host: {host!r}") from error
    try:
        sock = _connect(addresses, deadline)
    except OSError as error:
        reason = error.strerror or str(error)
        raise LinkRefused(f"no {peer} answers at {host}:{port}: {reason}", hint=hint) from error
    for option in _KEEPALIVE:
        sock.setsockopt(*option)
    return sock


def close_server(server: "Server") -> None:
    """Stop listening; who was accepted a moment ago still gets to the server's protocol.

    asyncio accepts a connection in one round of its loop and attaches it to the server in the next.
    It loses one whose server is closed between the two: its socket stays open until it is collected
    as garbage. So the server closes after those that are accepted now are attached. Call it on the
    server's loop. ``wait_closed`` then waits for the end of all connections.
    """
    loop = server.get_loop()
    for sock in server.sockets:
        loop.remove_reader(sock.fileno())
    loop.call_soon(server.close)


def _connect(addresses: list[_Address], deadline: float) -> socket.socket:
    """Connect to the first of several addresses that answers; each gets its share of the time."""
    failure = OSError("its name has no address")
    for place, (family, address) in enumerate(addresses):
        sock = socket.socket(family, socket.SOCK_STREAM)
        share = (deadline - time.monotonic()) / (len(addresses) - place)
        try:
            sock.settimeout(max(share, 0.001))
            sock.connect(address)
        except OSError as error:
            failure = error
            sock.close()
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failure


def _addresses(host: str, port: int, timeout: float) -> list[_Address]:
    """Resolve a name. Raises OSError, UnicodeError.

    The resolver takes no time-out. It runs on its own thread, which is left to the resolver's own
    time-outs (some seconds) when it takes longer than ``timeout``.
    """
    if host.isascii():
        try:
            # Bytes are taken as they are: text would bring Python's tables for names along.
            return _look_up(host.encode(), port, socket.AI_NUMERICHOST)
        except socket.gaierror:
            pass  # it is a name
    import queue

    found: queue.SimpleQueue[list[_Address] | Exception] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            found.put(_look_up(host, port, 0))
        except (OSError, UnicodeError) as error:
            found.put(error)

    thread = threading.Thread(target=look_up, name="hdc resolver", daemon=True)
    thread.start()
    try:
        answer = found.get(timeout=max(timeout, 0.001))
    except queue.Empty:
        raise TimeoutError(f"its name was not resolved within {timeout:g} s") from None
    thread.join()
    if isinstance(answer, Exception):
        raise answer
    return answer


def _look_up(host: str | bytes, port: int, flags: int) -> list[_Address]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [(family, address) for family, _, _, _, address in found]
