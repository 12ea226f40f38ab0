"""RSA keys by which hosts authenticate to locked boards (``const.hdc.secure=1``).

A board sends a token and asks for its signature, in one of two schemes that the board chooses; the
signature is one line of base64. The user's key is the key that the official hdc makes at its first
authentication (PKCS#8 in PEM): a board that knows it needs no second consent.
"""

import base64
import hashlib
from enum import StrEnum
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa, utils

from labctl.errors import ConfigError
from labctl.files import host_reads, write_atomic
from labctl.folders import state_dir
from labctl.locks import locked

_KEY_BITS = 3072
_PUBLIC_EXPONENT = 65537
#: RSASSA-PSS as boards check it: the salt must be as long as the digest.
_PSS = padding.PSS(mgf=padding.MGF1(hashes.SHA512()), salt_length=hashes.SHA512.digest_size)
#: Time (s) for another labctl to make its key.
_LOCK_SECONDS = 60.0


class Scheme(StrEnum):
    """Signature scheme of a token. The board chooses."""

    #: RSASSA-PSS with SHA-512 over the token.
    PSS = "pss"
    #: PKCS#1 v1.5 padding (type 1) around the token itself, without a hash or DigestInfo.
    PKCS1 = "pkcs1"


class HostKey:
    """The private key of this host."""

    def __init__(self, key: rsa.RSAPrivateKey):
        self._key = key

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a key file (PEM, without a password). Raises ConfigError."""
        with host_reads(path):
            text = path.read_bytes()
        try:
            key = serialization.load_pem_private_key(text, password=None)
        except (
            ValueError,
            TypeError,
            UnsupportedAlgorithm,
        ) as error:  # no key; one with a password
            raise ConfigError(
                f"not a private key in PEM without a password: {path}",
                hint="move it away; labctl makes a new one, which the boards must allow again",
            ) from error
        if not isinstance(key, rsa.RSAPrivateKey):
            raise ConfigError(f"not an RSA key: {path}", hint="hdc supports only RSA keys")
        return cls(key)

    @classmethod
    def create(cls, path: Path) -> Self:
        """Make a key and store it at ``path``, readable by its owner only. Raises HostError."""
        key = cls(rsa.generate_private_key(_PUBLIC_EXPONENT, _KEY_BITS))
        write_atomic(
            path,
            key._key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
            mode=0o600,
        )
        return key

    @classmethod
    def of_this_user(cls) -> Self:
        """Return the key of the user's hdc if it exists, else labctl's, created at first use.

        Raises ConfigError (the file is not a key), HostError (the key cannot be stored).
        """
        theirs = Path("~/.harmony/hdckey").expanduser()
        if theirs.exists():
            return cls.load(theirs)
        return cls.of_labctl()

    @classmethod
    def of_labctl(cls) -> Self:
        """Return labctl's own key, created at first use. Raises as :meth:`of_this_user`."""
        own = own_key_path()
        with locked(own.with_suffix(".lock"), timeout=_LOCK_SECONDS):
            return cls.load(own) if own.exists() else cls.create(own)

    @property
    def public_pem(self) -> str:
        """The public key for boards: SubjectPublicKeyInfo in PEM."""
        return (
            self._key.public_key()
            .public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
            .decode()
        )

    @property
    def fingerprint(self) -> str:
        """``SHA256:`` and the hash of the public key, for users to compare."""
        return fingerprint(self.public_pem)

    def sign_token(self, token: bytes, scheme: Scheme) -> bytes:
        """Sign a board's token: one line of base64 without a line end.

        Raises ValueError for a token that is too long for the key.
        """
        if scheme is Scheme.PSS:
            signature = self._key.sign(token, _PSS, hashes.SHA512())
        else:
            signature = self._key.sign(token, padding.PKCS1v15(), utils.NoDigestInfo())
        return base64.b64encode(signature)


def own_key_path() -> Path:
    """Path of labctl's own key."""
    return state_dir() / "hdckey"


def fingerprint(public_pem: str) -> str:
    """``SHA256:`` and the unpadded base64 hash of a public key (DER), as ssh does.

    Raises ValueError if it is not a public key.
    """
    try:
        key = serialization.load_pem_public_key(public_pem.encode())
    except UnsupportedAlgorithm as error:
        raise ValueError(f"not a key that can be checked: {error}") from error
    der = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return "SHA256:" + base64.b64encode(hashlib.sha256(der).digest()).decode().rstrip("=")


def verify(public_pem: str, token: bytes, signature: bytes, scheme: Scheme) -> bool:
    """Return True if ``signature`` (base64) of ``token`` matches a public RSA key.

    An invalid signature or key returns False, without an error: both come from an unknown host.
    """
    try:
        key = serialization.load_pem_public_key(public_pem.encode())
        raw = base64.b64decode(signature, validate=True)
        if not isinstance(key, rsa.RSAPublicKey):
            return False
        if scheme is Scheme.PSS:
            key.verify(raw, token, _PSS, hashes.SHA512())
            return True
        padded = key.recover_data_from_signature(raw, padding.PKCS1v15(), utils.NoDigestInfo())
    except (ValueError, UnsupportedAlgorithm, InvalidSignature):
        return False
    return padded == token
