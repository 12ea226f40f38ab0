"""Keys of boards on servers."""

import ipaddress
import re

from labctl.errors import ConfigError

#: A server keeps 32 bytes for a board's key, the last of them a NUL.
MAX_KEY_BYTES = 31


def check_key(key: str) -> str:
    """Return ``key``. Raises ConfigError if a server cannot take it."""
    if re.fullmatch(r"[!-~]+", key) is None:
        reason = "it is empty, or holds blanks or characters that are not ASCII"
    elif len(key) > MAX_KEY_BYTES:
        reason = f"hdc takes at most {MAX_KEY_BYTES} characters"
    elif key == "any":
        reason = "hdc reads it as any connected board"
    elif ":" in key and not is_tcp_key(key):
        reason = "hdc takes an IPv4 address and a port, not a host name"
    else:
        return key
    raise ConfigError(
        f"not the key of a board: {key!r}: {reason}", hint="`hdc list targets` shows the keys"
    )


def is_tcp_key(key: str) -> bool:
    """Return True if a key is an address (IPv4, as hdc requires) and a port."""
    return _address(key) is not None


def address_of(key: str) -> tuple[str, int]:
    """Return host and port of a key on TCP (:func:`is_tcp_key`). Raises ConfigError."""
    address = _address(key)
    if address is None:
        raise ConfigError(f"not the key of a board on TCP: {key!r}")
    return address


def _address(key: str) -> tuple[str, int] | None:
    host, _, port = key.rpartition(":")
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return None
    if not (port.isascii() and port.isdigit()) or not 0 < int(port) < 1 << 16:
        return None
    return host, int(port)
