"""Keys of boards on servers."""

import ipaddress

from labctl.errors import ConfigError
from labctl.text_types import hdc_key


def check_key(key: str) -> str:
    """Return ``key``. Raises ConfigError if a server cannot take it."""
    try:
        return hdc_key(key)
    except ValueError as error:
        raise ConfigError(
            f"not the key of a board: {key!r}: {error}", hint="`hdc list targets` shows the keys"
        ) from error


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
