"""Tokens of leases that a host recognises as its own, from any of its processes.

A token is a nonce and its HMAC with a secret of the host, so no list of tokens is needed.
"""

import hashlib
import hmac
import secrets
from pathlib import Path

from labctl.errors import HostError
from labctl.files import write_atomic
from labctl.folders import state_dir
from labctl.locks import locked

_NONCE_DIGITS = 16
#: Hexadecimal digits of the secret, and of an HMAC with SHA-256.
_DIGITS = 64
#: Time (s) within which another labctl has written the secret.
_LOCK_SECONDS = 10.0


def secret_path() -> Path:
    """Return the file of this host's secret."""
    return state_dir() / "lease-secret"


def new_own_token() -> str:
    """Make a token for a lease. Raises HostError."""
    secret = _read_secret() or _make_secret()
    nonce = secrets.token_hex(_NONCE_DIGITS // 2)
    return nonce + _signature(secret, nonce)


def is_own_token(token: str) -> bool:
    """Return True if this host took the lease with this token. Raises HostError."""
    nonce, signature = token[:_NONCE_DIGITS], token[_NONCE_DIGITS:]
    if len(signature) != _DIGITS or (secret := _read_secret()) is None:
        return False
    wanted = _signature(secret, nonce)
    return hmac.compare_digest(signature.encode(errors="replace"), wanted.encode())


def _signature(secret: bytes, nonce: str) -> str:
    return hmac.new(secret, nonce.encode(errors="replace"), hashlib.sha256).hexdigest()


def _make_secret() -> bytes:
    """Make the secret, unless another process was faster."""
    path = secret_path()
    with locked(path.with_suffix(".lock"), timeout=_LOCK_SECONDS):
        if (secret := _read_secret()) is None:
            secret = secrets.token_bytes(_DIGITS // 2)
            write_atomic(path, f"{secret.hex()}\n", mode=0o600)
        return secret


def _read_secret() -> bytes | None:
    """Return the secret; None if no token was made yet."""
    path = secret_path()
    try:
        with path.open("rb") as file:
            text = file.read(_DIGITS + 2).decode("ascii").removesuffix("\n")
        if len(text) == _DIGITS:
            return bytes.fromhex(text)
        reason = "it is damaged"
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = error.strerror or str(error)
    except ValueError:
        reason = "it is damaged"
    raise HostError(
        f"cannot read {path}, by which this host knows its leases again: {reason}",
        hint="mend or remove it; without it a lease that a dead process of this host left counts"
        " as another host's, until it is over",
    )
