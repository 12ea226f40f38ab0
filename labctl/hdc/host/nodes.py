"""This host's ends of forwarded connections, named as hdc does: ``KIND:ADDRESS``.

A board knows more kinds than a host (``jdwp``, ``ark``, ``dev``). For nodes of a board, only the
form is checked here.
"""

import re
import socket
from contextlib import suppress
from pathlib import Path

from labctl.errors import ConfigError, HostError

_FORM = re.compile(r"[a-z]+:[^\s\0]+")
_LOOPBACK = "127.0.0.1"
_BACKLOG = 128


def check_node(node: str) -> str:
    """Return ``node``. Raises ConfigError if hdc cannot send it (blanks separate words)."""
    if _FORM.fullmatch(node) is None:
        raise ConfigError(
            f"not a port or socket: {node!r}",
            hint="write tcp:PORT, localabstract:NAME or localfilesystem:PATH",
        )
    return node


def port_of(node: str) -> int | None:
    """Return the port of a TCP node; None for other kinds. Raises ConfigError."""
    kind, _, address = check_node(node).partition(":")
    if kind != "tcp":
        return None
    if not (address.isascii() and address.isdecimal() and int(address) <= 65535):
        raise ConfigError(f"not a TCP port: {node!r}", hint="ports go from 0 to 65535")
    return int(address)


class Listener:
    """A node of this host that accepts connections; TCP on loopback only.

    ``node`` is its name; a port 0 is replaced by the port that the system chose. Raises ConfigError
    (a kind that hosts do not have), HostError (in use, not allowed).
    """

    def __init__(self, node: str):
        self._file: Path | None = None
        family, address = _address(node)
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            if family == socket.AF_INET:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(address)
            if isinstance(address, str) and not address.startswith("\0"):
                self._file = Path(address)
            self._socket.listen(_BACKLOG)
        except OSError as error:
            self.close()
            raise HostError(
                f"cannot listen at {node}: {error.strerror or error}",
                hint="choose another port" if family == socket.AF_INET else None,
            ) from error
        if family == socket.AF_INET:
            node = f"tcp:{self._socket.getsockname()[1]}"
        self.node = node

    def accept(self) -> socket.socket | None:
        """Return the next connection; None once the listener is stopped."""
        try:
            return self._socket.accept()[0]
        except OSError:
            return None

    def detached(self) -> socket.socket:
        """Return a duplicate descriptor of the listening socket; the caller closes it."""
        return self._socket.dup()

    def stop(self) -> None:
        """Accept no more connections, and wake the waiting thread. Idempotent."""
        with suppress(OSError):  # it never listened, or has already stopped
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Release the socket. No thread may be in :meth:`accept`: the descriptor may be reused.

        Idempotent.
        """
        self.stop()
        self._socket.close()
        if self._file is not None:
            self._file.unlink(missing_ok=True)
            self._file = None


def dial_node(node: str, *, timeout: float) -> socket.socket:
    """Connect to a node of this host within ``timeout`` seconds. Raises OSError."""
    family, address = _address(node)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout)
        sock.connect(address)
        sock.settimeout(None)
    except BaseException:
        sock.close()
        raise
    return sock


def check_local_node(node: str) -> str:
    """Return ``node``. Raises ConfigError if this host has no such kind of node."""
    _address(node)
    return node


def _address(node: str) -> tuple[socket.AddressFamily, str | tuple[str, int]]:
    port = port_of(node)
    if port is not None:
        return socket.AF_INET, (_LOOPBACK, port)
    kind, _, name = node.partition(":")
    if kind == "localfilesystem":
        return socket.AF_UNIX, name
    if kind == "localabstract":
        return socket.AF_UNIX, f"\0{name}"
    raise ConfigError(
        f"a host has no {kind!r} to forward: {node}",
        hint="write tcp:PORT, localabstract:NAME or localfilesystem:PATH",
    )
