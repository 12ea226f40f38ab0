"""Log-in over ssh to a host whose identity is verified.

Fabric reads ``~/.ssh/config`` (HostName, Port, User, IdentityFile, ProxyJump, ProxyCommand). The
host's key must be in ``known_hosts``, also for each jump host; it is never added automatically.
"""

import logging
import shlex
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
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

from labctl import process
from labctl.errors import ConfigError, LinkRefused, NotAuthorised
from labctl.transport.ssh.known_hosts import KeyRevoked, KeyUnknown, KnownHosts
from labctl.transport.ssh.link import SshLink, Watch

#: Time-out of each step: the TCP connection, the banner, the log-in.
CONNECT_SECONDS = 15.0
SYSTEM_KNOWN_HOSTS = Path("/etc/ssh/ssh_known_hosts")
_USUAL = Watch()

_ssh_says = logging.getLogger("paramiko")
_ssh_says.addHandler(logging.NullHandler())  # the errors raised here have all relevant details


def _run_of_match(command: str, **_how: Any) -> SimpleNamespace:
    """Run the command of a ``Match exec`` in ssh's configuration."""
    done = process.run(["sh", "-c", command], timeout=CONNECT_SECONDS)
    return SimpleNamespace(ok=done.exit_status == 0)


# paramiko would run it in the current folder.
paramiko.config.invoke = SimpleNamespace(run=_run_of_match)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Login:
    """A host to log in to. None means the value of ssh's own configuration.

    ``name`` is the host's name in messages, ``through`` a jump host.
    """

    name: str
    host: str
    port: int | None = None
    user: str | None = None
    identity_file: Path | None = None
    known_hosts: Path | None = None
    through: "Login | None" = None

    @property
    def label(self) -> str:
        """Name and address of the host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name} ({host}{'' if self.port is None else f':{self.port}'})"


@dataclass(frozen=True)
class _Hop:
    """One host of a connection: a jump host, or the final host."""

    label: str
    known_hosts: Path | None
    connection: Connection
    timeout: float


class _Connection(Connection):  # type: ignore[misc]  # Fabric has no types
    """Reads ``ProxyJump`` like ssh: `none` means no host, and the first host is nearest."""

    def get_gateway(self) -> Connection | str | None:
        """Return the connection or command to go through; see Fabric."""
        jumps = self.ssh_config.get("proxyjump")
        if jumps is None:
            return super().get_gateway()
        if jumps.lower() == "none":
            return None
        gateway: Connection | None = None
        for hop in jumps.split(","):
            if self.derive_shorthand(hop)["host"] == self.host:
                return None  # a Host pattern with wildcards: this is the jump host itself
            gateway = _Connection(hop, config=self.config, gateway=gateway)
        return gateway


def log_in(login: Login, *, timeout: float = CONNECT_SECONDS, watch: Watch = _USUAL) -> SshLink:
    """Open a link to a host. ``timeout`` (s) limits the TCP connection, the banner and the log-in.

    Raises LinkRefused if the host is missing, NotAuthorised if its identity is not verified or it
    refuses the log-in; ConfigError if a key or ssh's configuration cannot be read.
    """
    way = _way(login, timeout)
    with ExitStack() as stack:
        for hop in way:
            stack.callback(hop.connection.client.close)
            _start_proxy_command(hop.connection, stack)
            with _explained(hop):
                hop.connection.open()
        return SshLink(login.name, way[-1].connection.transport, stack.pop_all(), watch)


def _start_proxy_command(connection: Connection, stack: ExitStack) -> None:
    """Connect to a host through a program (ProxyCommand) if ssh's configuration has one.

    Fabric would start it too, but not stop it.
    """
    if not isinstance(connection.gateway, str):
        return
    try:
        words = shlex.split(connection.gateway)
    except ValueError as error:
        raise ConfigError(
            f"ssh's configuration has a ProxyCommand that cannot be read: {error}: "
            f"{connection.gateway}"
        ) from error
    ours, theirs = socket.socketpair()
    stack.callback(ours.close)
    with theirs:
        program = process.start(
            words,
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.DEVNULL,
        )
    stack.callback(process.stop, program, grace=1.0)
    connection.gateway = None
    connection.connect_kwargs["sock"] = ours


def _way(login: Login, timeout: float) -> list[_Hop]:
    """Return the connections, not open yet; the connection to the final host is last."""
    before = [] if login.through is None else _way(login.through, timeout)
    gateway = before[-1].connection if before else None
    connection = _connection(login, gateway, timeout)
    hop = _Hop(login.label, login.known_hosts, connection, timeout)
    if gateway is None:  # ssh's own configuration may name one
        before = [
            _Hop(
                f"jump host {through.original_host!r} of {login.name}",
                login.known_hosts,
                through,
                timeout,
            )
            for through in reversed(list(_through(connection)))
        ]
    way = [*before, hop]
    for step in way:
        _enforce_host_key(step)
    return way


def _connection(login: Login, gateway: Connection | None, timeout: float) -> Connection:
    options: dict[str, Any] = {}
    if (key := login.identity_file) is not None:
        if not key.is_file():
            raise ConfigError(f"{login.name}: no key file {key}")
        options = {"key_filename": [str(key)], "look_for_keys": False}
    try:
        # Only ssh's own configuration counts: `lazy` ignores fabric.yaml and FABRIC_*.
        config = Config(lazy=True)
        config.load_ssh_config()
        connection = _Connection(
            login.host,
            user=login.user,
            port=login.port,
            config=config,
            gateway=gateway,
            connect_kwargs=options,
        )
    except (ConfigParseError, UnicodeDecodeError) as error:
        raise ConfigError(f"ssh's configuration cannot be read: {error}") from error
    for hop in (connection, *_through(connection)):
        # ssh ignores missing key files named in its configuration.
        keys = hop.connect_kwargs.get("key_filename", [])
        hop.connect_kwargs = {
            **hop.connect_kwargs,
            "key_filename": [file for file in keys if Path(file).is_file()],
            "banner_timeout": timeout,
            "auth_timeout": timeout,
            "channel_timeout": timeout,
        }
        hop.connect_timeout = timeout
    return connection


def _through(connection: Connection) -> Iterator[Connection]:
    """Yield the connections to jump hosts, nearest first."""
    hop = connection.gateway
    while isinstance(hop, Connection):
        yield hop
        hop = hop.gateway


def _enforce_host_key(hop: _Hop) -> None:
    """Replace Fabric's own policy, which accepts every host."""
    client: paramiko.SSHClient = hop.connection.client
    known = KnownHosts()
    client.set_missing_host_key_policy(known)
    host, port = hop.connection.host, hop.connection.port
    name = host if port == paramiko.config.SSH_PORT else f"[{host}]:{port}"
    hop.connection.connect_kwargs["transport_factory"] = partial(_transport, known, name)
    files = [hop.known_hosts or Path.home() / ".ssh" / "known_hosts"]
    if hop.known_hosts is None:
        files.append(SYSTEM_KNOWN_HOSTS)
    elif not hop.known_hosts.is_file():
        raise ConfigError(f"{hop.label}: no known_hosts file {hop.known_hosts}")
    for file in files:
        if file.is_file():
            try:
                known.load(file)
            except (InvalidHostKey, OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"{hop.label}: {file} cannot be read: {error}") from error


def _transport(
    known: KnownHosts, name: str, sock: socket.socket | paramiko.Channel, **options: Any
) -> paramiko.Transport:
    """Return a transport that sends each packet at once.

    A program's start takes several small packets. Without this, each waits for the delayed
    acknowledgement of the previous one: 40 ms for every command and every file.
    """
    if isinstance(sock, socket.socket) and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return known.transport(name, sock, **options)


@contextmanager
def _explained(hop: _Hop) -> Iterator[None]:
    """Raise the error of a failed connection to a host, with a hint."""
    try:
        yield
    except KeyRevoked as error:
        raise NotAuthorised(
            f"{hop.label} shows the key {error.key.fingerprint}, which is revoked in known_hosts",
            hint="the connection may be intercepted: ask who revoked the key, and why",
        ) from error
    except (KeyUnknown, BadHostKeyException) as error:
        raise _not_proven(hop, error) from error
    except AuthenticationException as error:
        raise _not_let_in(hop, str(error)) from error
    except socket.gaierror as error:
        raise LinkRefused(
            f"{hop.label}: no such host: {error.strerror}",
            hint="is it spelt right, and does this network know it?",
        ) from error
    except TimeoutError as error:
        raise LinkRefused(
            f"{hop.label} does not answer within {hop.timeout:.0f} s",
            hint="see whether it is up, and whether a jump host is needed to reach it",
        ) from error
    except ChannelException as error:
        raise LinkRefused(
            f"{hop.label}: its jump host cannot reach it: {error.text}",
            hint="is it up, and is its address correct as seen from there?",
        ) from error
    except NoValidConnectionsError as error:
        raise LinkRefused(
            f"{hop.label}: nothing listens there", hint="is sshd running, at that port?"
        ) from error
    except (SSHException, EOFError, OSError) as error:
        if "No authentication methods available" in str(error):
            raise _not_let_in(hop, "there is no key to show it") from error
        raise LinkRefused(
            f"{hop.label}: no ssh connection: {error or 'it hung up'}",
            hint="try `ssh -v` to the same host, which shows every step",
        ) from error


def _not_proven(hop: _Hop, error: KeyUnknown | BadHostKeyException) -> NotAuthorised:
    file = hop.known_hosts or "~/.ssh/known_hosts"
    if isinstance(error, BadHostKeyException):
        return NotAuthorised(
            f"{hop.label} is not the host it was: it shows the key {error.key.fingerprint}, "
            f"known_hosts has {error.expected_key.fingerprint}",
            hint="the connection may be intercepted; if the host was reinstalled, "
            f"remove its old line: ssh-keygen -f {file} -R HOST",
        )
    name, port = _name_and_port(error.host)
    return NotAuthorised(
        f"{hop.label} is not in known_hosts; it shows the "
        f"{error.key.get_name()} key {error.key.fingerprint}",
        hint="compare that with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the host "
        f"itself; if it is the same: ssh-keyscan -p {port} {name} >> {file}",
    )


def _not_let_in(hop: _Hop, why: str) -> NotAuthorised:
    return NotAuthorised(
        f"{hop.label} does not let {hop.connection.user} in: {why}",
        hint="the public key belongs into ~/.ssh/authorized_keys there; "
        "a key with a passphrase has to be in the agent: ssh-add",
    )


def _name_and_port(host: str) -> tuple[str, int]:
    """Return host and port from known_hosts' notation, ``name`` or ``[name]:port``."""
    if not host.startswith("["):
        return host, paramiko.config.SSH_PORT
    name, _, port = host[1:].rpartition("]:")
    return name, int(port)
