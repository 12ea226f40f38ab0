"""TCP connections to boards and servers that notice a lost peer."""

import socket
import threading
import time
from typing import TYPE_CHECKING

from labctl import interrupts
from labctl.errors import ConfigError, LinkRefused

#: Kernel probes of an idle link: the board's kernel answers them even if hdcd is starved. They
#: pause while sent bytes (heartbeats, for example) are unacknowledged. The last option limits that
#: time: without it, the kernel would retransmit for 15 minutes.
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)

if TYPE_CHECKING:
    from asyncio import Server  # slow to import, and most clients run no server

_Address = tuple[
    socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
]


def dial(host: str, port: int, *, timeout: float, peer: str, hint: str) -> socket.socket:
    """Connect within ``timeout`` seconds; ``peer`` names the expected peer in messages.

    Raises LinkRefused with ``hint`` (nothing listens, no route), ConfigError (not a host name).
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
    """Stop listening; connections accepted just before still reach the server's protocol.

    asyncio accepts a connection in one round of its loop and attaches it to the server in the next.
    If the server is closed between the two, the connection is lost: its socket stays open until
    garbage collection. So the server is closed only after accepted connections are attached. Call
    this on the server's loop. ``wait_closed`` then waits for the end of all connections.
    """
    loop = server.get_loop()
    for sock in server.sockets:
        loop.remove_reader(sock.fileno())
    loop.call_soon(server.close)


def _connect(addresses: list[_Address], deadline: float) -> socket.socket:
    """Connect to the first address that answers; each address gets an equal share of the time."""
    failure = OSError("its name has no address")
    for place, (family, address) in enumerate(addresses):
        sock = socket.socket(family, socket.SOCK_STREAM)
        share = (deadline - time.monotonic()) / (len(addresses) - place)
        try:
            sock.settimeout(max(share, 0.001))
            with interrupts.waiting():
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

    The resolver takes no time-out, so it runs in its own thread. After ``timeout``, the thread is
    left behind; it ends by the resolver's own time-outs (some seconds).
    """
    if host.isascii():
        try:
            # Bytes are used unchanged: text would load Python's tables for host names.
            return _look_up(host.encode(), port, socket.AI_NUMERICHOST)
        except socket.gaierror:
            pass  # not an address but a name
    import queue

    found: queue.SimpleQueue[list[_Address] | Exception] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            found.put(_look_up(host, port, 0))
        except (OSError, UnicodeError) as error:
            found.put(error)

    thread = threading.Thread(target=look_up, name="resolver", daemon=True)
    thread.start()
    try:
        answer = interrupts.get(found, max(timeout, 0.001))
    except queue.Empty:
        raise TimeoutError(f"its name was not resolved within {timeout:g} s") from None
    thread.join()
    if isinstance(answer, Exception):
        raise answer
    return answer


def _look_up(host: str | bytes, port: int, flags: int) -> list[_Address]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [(family, address) for family, _, _, _, address in found]
