"""Hosts that a phone accepts, by adb's RSA keys.

The phone sends a token of 20 bytes, which the host signs as if it were a SHA-1. The signature names
no key: the phone tries each that it knows. A host whose keys are all refused shows a public key,
and the phone's dialog asks its user. Source: ``adbd_auth`` and ``adb_auth.cpp`` of Android's
platform/packages/modules/adb.
"""

import base64
import hashlib
import struct
from collections.abc import Iterable

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa, utils

from labctl.daemon import authorisation
from labctl.daemon.authorisation import Mode

TOKEN_BYTES = 20
#: Words of the modulus, -1/n mod 2^32, modulus, R^2 mod n, exponent; numbers are little-endian.
_PUBLIC_KEY = struct.Struct("<2I256s256sI")
_MODULUS_WORDS = 64


class Authorisation(authorisation.Authorisation):
    """The lock of a phone. ``known`` are public keys as in ``adbkey.pub``. Raises ValueError."""

    def __init__(self, mode: Mode = "accept-known", known: Iterable[str] = ()):
        self._keys: dict[str, rsa.RSAPublicKey] = {}
        super().__init__(mode, [self.take(text.encode()) for text in known])

    def take(self, shown: bytes) -> str:
        """Return the fingerprint of a public key that a host shows. Raises ValueError."""
        raw = base64.b64decode((shown.strip(b"\0").split() or [b""])[0], validate=True)
        fingerprint = base64.b64encode(hashlib.sha256(raw).digest()).decode().rstrip("=")
        self._keys[f"SHA256:{fingerprint}"] = _decoded(raw)
        return f"SHA256:{fingerprint}"

    def is_signed(self, token: bytes, signature: bytes) -> bool:
        """Return True if a key that is admitted has signed the token."""
        return any(
            self.consider(name) and _has_signed(key, token, signature)
            for name, key in self._keys.items()
        )


def _decoded(raw: bytes) -> rsa.RSAPublicKey:
    try:
        words, _, modulus, _, exponent = _PUBLIC_KEY.unpack(raw)
    except struct.error as error:
        raise ValueError(f"not a public key of adb: {error}") from error
    if words != _MODULUS_WORDS:
        raise ValueError(f"a key of {words} words: adb has {_MODULUS_WORDS}")
    return rsa.RSAPublicNumbers(exponent, int.from_bytes(modulus, "little")).public_key()


def _has_signed(key: rsa.RSAPublicKey, token: bytes, signature: bytes) -> bool:
    try:
        key.verify(signature, token, padding.PKCS1v15(), utils.Prehashed(hashes.SHA1()))  # noqa: S303 - adb's
    except InvalidSignature:
        return False
    return True
