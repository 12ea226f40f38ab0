"""The host keys of known_hosts files, see sshd(8), and the check of the key that a host shows."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import paramiko
from paramiko.hostkeys import HostKeyEntry, HostKeys
from paramiko.ssh_exception import BadHostKeyException, SSHException


class KeyUnknown(SSHException):
    """The host's key is unknown: no known_hosts file has a key for the host."""

    def __init__(self, host: str, key: paramiko.PKey):
        super().__init__(host)
        self.host = host
        self.key = key


class KeyRevoked(SSHException):
    """The host's key is revoked in a known_hosts file."""

    def __init__(self, key: paramiko.PKey):
        super().__init__(key.fingerprint)
        self.key = key


class KnownHosts(paramiko.MissingHostKeyPolicy):
    """Accepts all keys that known_hosts files have for a host, see sshd(8).

    paramiko's own reader ignores markers, and keeps one key of each type for a host. A revoked key
    is refused for all hosts; certificate authorities are ignored.
    """

    def __init__(self) -> None:
        self._known: list[HostKeys] = []
        self._revoked: list[paramiko.PKey] = []

    def load(self, file: Path) -> None:
        """Read a file. Raises InvalidHostKey, OSError, UnicodeDecodeError."""
        for line in file.read_text(encoding="utf-8").splitlines():
            marker, *rest = line.split(maxsplit=1) or [""]
            if not marker or marker.startswith("#") or marker == "@cert-authority":
                continue
            is_revoked = marker == "@revoked"
            with suppress(SSHException):  # a type of key that paramiko does not support
                entry = HostKeyEntry.from_line((rest[0] if is_revoked and rest else line).strip())
                if entry is None:
                    continue
                if is_revoked:
                    self._revoked.append(entry.key)
                    continue
                keys = HostKeys()
                for name in entry.hostnames:
                    keys.add(name, entry.key.get_name(), entry.key)
                self._known.append(keys)

    def missing_host_key(
        self,
        client: paramiko.SSHClient,  # noqa: ARG002 - the policy's interface
        hostname: str,
        key: paramiko.PKey,
    ) -> None:
        """Raise unless a host's key is known. ``hostname`` is written as in known_hosts."""
        if key in self._revoked:
            raise KeyRevoked(key)
        known = self._keys(hostname)
        if not known:
            raise KeyUnknown(hostname, key)
        if key not in known:
            alike = [other for other in known if other.get_name() == key.get_name()]
            raise BadHostKeyException(hostname, key, (alike or known)[0])

    def transport(self, hostname: str, *words: Any, **options: Any) -> paramiko.Transport:
        """Return a transport that asks a host for a key of a known type, if there is one."""
        transport = paramiko.Transport(*words, **options)
        names = {key.get_name() for key in self._keys(hostname)}
        kinds = transport.get_security_options()
        kinds.key_types = sorted(
            kinds.key_types,
            key=lambda kind: ("ssh-rsa" if kind.startswith("rsa-sha2-") else kind) not in names,
        )
        return transport

    def _keys(self, hostname: str) -> list[paramiko.PKey]:
        return [key for keys in self._known for key in (keys.lookup(hostname) or {}).values()]
