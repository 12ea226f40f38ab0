"""A way to a build host over ssh that is proven to be the right host.

Fabric reads ``~/.ssh/config`` (HostName, Port, User, IdentityFile, ProxyJump, ProxyCommand); the
host's key has to be in ``known_hosts``, for each host on the way, and is never added by itself.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paramiko
from fabric import Config, Connection
from paramiko.hostkeys import InvalidHostKey
from paramiko.ssh_exception import (
    AuthenticationException,
    BadHostKeyException,
    ChannelException,
    ConfigParseError,
    NoValidConnectionsError,
    SSHException,
)

from labctl.config.lab import BuildHost
from labctl.config.types import split_endpoint
from labctl.errors import ConfigError, HostError

#: For each of: the TCP connection, the greeting, the log-in.
CONNECT_SECONDS = 15.0
#: A host is asked whether it is still there this often ...
KEEPALIVE_SECONDS = 15.0
#: ... and is given up when it has not answered for this long.
PATIENCE_SECONDS = 45.0
#: Between the end of a channel and that of the connection that it was lost with.
TEARDOWN_SECONDS = 1.0
SYSTEM_KNOWN_HOSTS = Path("/etc/ssh/ssh_known_hosts")

_ssh_says = logging.getLogger("paramiko")
_ssh_says.addHandler(logging.NullHandler())  # what matters of it is in the errors raised here


class _KeyUnknown(SSHException):
    """The host shows a key, and no known_hosts has one for it."""

    def __init__(self, host: str, key: paramiko.PKey):
        super().__init__(host)
        self.host = host
        self.key = key


class _Refuse(paramiko.MissingHostKeyPolicy):
    def missing_host_key(
        self,
        client: paramiko.SSHClient,  # noqa: ARG002 - the policy's interface
        hostname: str,
        key: paramiko.PKey,
    ) -> None:
        raise _KeyUnknown(hostname, key)


class Link:
    """An open connection to a build host, and the proof that the host is still there."""

    def __init__(self, name: str, transport: paramiko.Transport):
        self.name = name
        self._transport = transport
        self._answered = time.monotonic()
        self._closing = threading.Event()
        self._on_pulse: Callable[[], None] | None = None
        self._pulse = threading.Thread(target=self._keep_asking, name="ssh-pulse", daemon=True)
        self._pulse.start()

    def channel(self) -> paramiko.Channel:
        """A new channel. Raises HostError."""
        self.check()
        try:
            return self._transport.open_session(timeout=CONNECT_SECONDS)
        except (OSError, EOFError, SSHException) as error:
            raise HostError(
                f"build host {self.name!r} opens no channel: {error}",
                hint="does it allow several sessions on one connection (MaxSessions)?",
            ) from error

    def check(self) -> None:
        """Raise HostError when the host has gone, or has not answered for too long."""
        if not self._transport.is_active():
            raise HostError(
                f"build host {self.name!r} is gone: it closed the connection",
                hint="see whether it is up, then build again",
            )
        if time.monotonic() - self._answered > PATIENCE_SECONDS:
            raise HostError(
                f"build host {self.name!r} is gone: no answer for {PATIENCE_SECONDS:.0f} s",
                hint="see whether it is up and its network works, then build again",
            )

    def check_after_break(self) -> None:
        """As :meth:`check`, for a channel that broke: the connection may be about to end too."""
        self._transport.join(TEARDOWN_SECONDS)
        self.check()

    @contextmanager
    def pulsing(self, on_pulse: Callable[[], None]) -> Iterator[None]:
        """Have something done, in another thread, each time that the host has answered."""
        self._on_pulse = on_pulse
        try:
            yield
        finally:
            self._on_pulse = None

    def close(self) -> None:
        """End the connection."""
        self._closing.set()
        self._transport.close()
        self._pulse.join()

    def _keep_asking(self) -> None:
        # Transport.set_keepalive asks for no answer: it would not notice a frozen host.
        while not self._closing.wait(KEEPALIVE_SECONDS):
            try:
                self._transport.global_request("keepalive@openssh.com", wait=True)
            except (OSError, EOFError, SSHException):
                return
            if not self._transport.is_active():
                return
            self._answered = time.monotonic()
            if on_pulse := self._on_pulse:
                on_pulse()


@contextmanager
def connected(name: str, hosts: Mapping[str, BuildHost], root: Path) -> Iterator[Link]:
    """A link to a build host of ``hosts``; files that devices.yaml names begin at ``root``.

    Raises HostError for a host that is not there, not proven or does not let us in; ConfigError for
    a key or configuration of ssh that cannot be read.
    """
    host = hosts[name]
    with _explained(name, host):
        connection = _prepare(name, hosts, root)
    chain = list(_chain(connection))
    try:
        with _explained(name, host):
            connection.open()
        link = Link(name, connection.transport)
        try:
            yield link
        finally:
            link.close()
    finally:
        for hop in chain:
            hop.client.close()


def _prepare(name: str, hosts: Mapping[str, BuildHost], root: Path) -> Connection:
    """A connection that is not open yet, with all hosts on the way."""
    host = hosts[name]
    address, port = _address(host)
    options: dict[str, Any] = {
        "banner_timeout": CONNECT_SECONDS,
        "auth_timeout": CONNECT_SECONDS,
        "channel_timeout": CONNECT_SECONDS,
    }
    if host.key is not None:
        key = root / host.key
        if not key.is_file():
            raise ConfigError(f"build host {name!r}: no key file {key}")
        options |= {"key_filename": [str(key)], "look_for_keys": False}
    # Only ssh's own configuration counts: `lazy` keeps fabric.yaml and FABRIC_* out.
    config = Config(lazy=True)
    config.load_ssh_config()
    connection = Connection(
        address,
        user=host.user,
        port=port,
        config=config,
        gateway=None if host.jump is None else _prepare(host.jump, hosts, root),
        connect_timeout=int(CONNECT_SECONDS),
        connect_kwargs=options,
    )
    known = None if host.known_hosts is None else root / host.known_hosts
    for hop in (connection,) if host.jump else _chain(connection):
        _enforce_host_key(hop, known)
        # ssh passes over key files of its configuration that are not there.
        keys = hop.connect_kwargs.get("key_filename", [])
        hop.connect_kwargs["key_filename"] = [key for key in keys if Path(key).is_file()]
    return connection


def _address(host: BuildHost) -> tuple[str, int | None]:
    try:
        return split_endpoint(host.address)
    except ValueError:
        return host.address.strip("[]"), None


def _chain(connection: Connection) -> Iterator[Connection]:
    """The connection and those that it goes through."""
    hop: object = connection
    while isinstance(hop, Connection):
        yield hop
        hop = hop.gateway


def _enforce_host_key(connection: Connection, known: Path | None) -> None:
    """Replace Fabric's own policy, which lets every host in."""
    client: paramiko.SSHClient = connection.client
    client.set_missing_host_key_policy(_Refuse())
    if known is not None:
        files = [known]
        if not known.is_file():
            raise ConfigError(f"no known_hosts file {known}")
    else:
        files = [Path.home() / ".ssh" / "known_hosts", SYSTEM_KNOWN_HOSTS]
    for file in files:
        if file.is_file():
            client.load_system_host_keys(str(file))


@contextmanager
def _explained(name: str, host: BuildHost) -> Iterator[None]:
    """Say what went wrong on the way to a host, and what to do about it."""
    what = f"build host {name!r} ({host.address})"
    try:
        yield
    except _KeyUnknown as error:
        shown, port = _name_and_port(error.host)
        file = host.known_hosts or "~/.ssh/known_hosts"
        raise HostError(
            f"{what} is not in known_hosts; the host at {error.host} shows the "
            f"{error.key.get_name()} key {error.key.fingerprint}",
            hint="compare that with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the "
            f"host itself; if it is the same: ssh-keyscan -p {port} {shown} >> {file}",
        ) from error
    except BadHostKeyException as error:
        raise HostError(
            f"{what} is not the host it was: it shows the key {error.key.fingerprint}, "
            f"known_hosts has {error.expected_key.fingerprint}",
            hint="somebody may be in between; if the host was set up anew, "
            "remove its old line: ssh-keygen -R HOST",
        ) from error
    except AuthenticationException as error:
        raise HostError(
            f"{what} does not let {host.user or 'this user'} in: {error}",
            hint="the public key belongs into ~/.ssh/authorized_keys there; "
            "a key with a passphrase has to be in the agent: ssh-add",
        ) from error
    except ConfigParseError as error:
        raise ConfigError(f"ssh's configuration cannot be read: {error}") from error
    except InvalidHostKey as error:
        raise ConfigError(f"known_hosts holds a line that is no key: {error.line}") from error
    except socket.gaierror as error:
        raise HostError(f"{what}: there is no host of that name: {error.strerror}") from error
    except TimeoutError as error:
        raise HostError(
            f"{what} does not answer within {CONNECT_SECONDS:.0f} s",
            hint="see whether it is up, and whether a jump host is needed to reach it",
        ) from error
    except ChannelException as error:
        raise HostError(f"{what}: its jump host cannot reach it: {error.text}") from error
    except NoValidConnectionsError as error:
        raise HostError(
            f"{what}: nothing listens there", hint="is sshd running, at that port?"
        ) from error
    except (SSHException, EOFError, OSError) as error:
        raise HostError(f"{what}: no ssh connection: {error or type(error).__name__}") from error


def _name_and_port(host: str) -> tuple[str, int]:
    """From known_hosts' own way to write it, ``name`` or ``[name]:port``."""
    if not host.startswith("["):
        return host, paramiko.config.SSH_PORT
    name, _, port = host[1:].rpartition("]:")
    return name, int(port)
