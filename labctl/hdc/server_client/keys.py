"""Keys of boards on servers."""

import ipaddress
import re

from labctl.errors import ConfigError

#: A server keeps 32 bytes for a board's key, the last of them a NUL.
MAX_KEY_BYTES = 31


def check_key(key: str) -> str:
    """``key`` itself, if a server can be asked for it. Raises ConfigError."""
    if re.fullmatch(r"[!-~]+", key) is None:
        reason = "it is empty or holds blanks or other characters than ASCII's"
    elif len(key) > MAX_KEY_BYTES:
        reason = f"hdc carries at most {MAX_KEY_BYTES} characters"
    elif key == "any":
        reason = "to hdc it means whatever board is connected"
    elif ":" in key and not is_tcp_key(key):
        reason = "hdc takes an IPv4 address and a port, and no names of hosts"
    else:
        return key
    raise ConfigError(
        f"not the key of a board: {key!r}: {reason}", hint="`hdc list targets` shows the keys"
    )


def is_tcp_key(key: str) -> bool:
    """Return True if a key is an address (IPv4, as hdc requires) and a port."""
    return _address(key) is not None


def address_of(key: str) -> tuple[str, int]:
    """Host and port of a key for which :func:`is_tcp_key` holds. Raises ConfigError."""
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
