"""Sign a bundle's manifest, and verify its signer, with ``ssh-keygen -Y`` and SSH keys.

``bundle.json`` is signed; it has the hashes of all other files. Format: OpenSSH's
``PROTOCOL.sshsig``; namespace: :data:`labctl.bundle.form.NAMESPACE`.
"""

import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from labctl import process
from labctl.bundle.form import MOST_SIGNATURE_BYTES, NAMESPACE, NotABundle
from labctl.errors import ConfigError, HostError

_PROGRAM = "ssh-keygen"
#: Seconds; a key on a hardware token waits for a touch.
_SIGN_SECONDS = 60.0
_VERIFY_SECONDS = 10.0
_KEY = re.compile(r"(?:with|key) (\S+ key )?(SHA256:[A-Za-z0-9+/]{43})")
#: Never ask for a passphrase: there may be no terminal, and nobody expects a window.
_SILENT = {"SSH_ASKPASS_REQUIRE": "never", "LC_ALL": "C"}


@dataclass(frozen=True)
class Signer:
    """Author of a signature. ``name`` None: no list of allowed signers has the key."""

    key: str
    name: str | None

    def __str__(self) -> str:
        if self.name is None:
            return f"signed with {self.key}, not verified: no --allowed-signers given"
        return f"signed by {self.name} ({self.key})"


def sign(manifest: bytes, key: Path) -> bytes:
    """Sign a manifest with a private key, or a public key whose private key is in the agent.

    Raises ConfigError (no such key, a passphrase unknown to the agent), ToolMissing, HostTimeout,
    HostError.
    """
    if not key.is_file():
        raise ConfigError(f"no key {key}", hint="make one: ssh-keygen -t ed25519")
    # ssh-keygen writes next to the signed file; with standard input no file remains.
    done = _run(["sign", "-q", "-f", str(key.absolute())], manifest, _SIGN_SECONDS)
    if done.exit_status != 0 or not done.stdout.startswith(b"-----BEGIN SSH SIGNATURE-----"):
        raise ConfigError(
            f"ssh-keygen cannot sign with {key}",
            hint="a key with a passphrase: `ssh-add` it, and name its .pub file",
            details=done.tail(5) or None,
        )
    return done.stdout


def verify(manifest: bytes, signature: bytes, allowed_signers: Path | None = None) -> Signer:
    """Return the signer of a manifest. Without ``allowed_signers`` only the key is known.

    Format of that file: ALLOWED SIGNERS in ssh-keygen(1). Raises NotABundle if the signature does
    not match this manifest, or its signer is not in the file; ConfigError if the file is missing;
    ToolMissing, HostTimeout, HostError.
    """
    assert len(signature) <= MOST_SIGNATURE_BYTES
    if allowed_signers is not None and not allowed_signers.is_file():
        raise ConfigError(f"no file {allowed_signers} with allowed signers")
    with _in_a_file(signature) as file:
        checked = _run(["check-novalidate", "-s", file.name], manifest, _VERIFY_SECONDS)
        match = _KEY.search(checked.text)
        if checked.exit_status != 0 or match is None:
            raise NotABundle(
                "the signature does not match the bundle",
                hint="the bundle was changed, or the signature belongs to another one",
                details=checked.tail(5) or None,
            )
        key = match[2]
        if allowed_signers is None:
            return Signer(key, None)
        allowed = ["-s", file.name, "-f", str(allowed_signers.absolute())]
        found = _run(["find-principals", *allowed], manifest, _VERIFY_SECONDS)
        names = re.split(r"[,\n]", found.text.strip()) if found.exit_status == 0 else []
        for name in names:
            done = _run(["verify", *allowed, "-I", name], manifest, _VERIFY_SECONDS)
            if done.exit_status == 0:
                return Signer(key, name)
    raise NotABundle(
        f"the bundle is signed with {key}, which {allowed_signers} does not allow",
        hint="ask the bundle's author for the fingerprint of the key, over another channel",
    )


def _run(words: Sequence[str], manifest: bytes, seconds: float) -> process.Completed:
    argv = [_PROGRAM, "-Y", words[0], "-n", NAMESPACE, *words[1:]]
    environment = {k: v for k, v in os.environ.items() if k != "DISPLAY"} | _SILENT
    return process.run(argv, timeout=seconds, env=environment, input_bytes=manifest)


def _in_a_file(signature: bytes) -> "tempfile._TemporaryFileWrapper[bytes]":
    """Return an open file with the signature; closing removes it. Raises HostError."""
    try:
        file = tempfile.NamedTemporaryFile(prefix="labctl-", suffix=".sig")  # noqa: SIM115
        file.write(signature)
        file.flush()
    except OSError as error:
        raise HostError(f"cannot write a temporary file: {error.strerror}") from error
    return file
