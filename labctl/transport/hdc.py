"""A board over hdc: real exit statuses, verified transfers, reconnection after a loss.

Its hdcd is reached directly over TCP, or through an hdc server. Each has a config model here, which
opens the transport.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from labctl.config.transport import TransportConfig
from labctl.errors import AccessDenied, CommandTimeout, HostError, LinkError, NotAuthorised
from labctl.hdc.host import link as hdc
from labctl.hdc.host.link import HostLink
from labctl.text_types import Endpoint, HdcKey, HostPath, InLab, is_on_loopback, split_endpoint
from labctl.transport.base import (
    CommandResult,
    OpenOptions,
    Reboot,
    TransferOptions,
    Write,
    address_of,
    remote_words,
    rules,
)
from labctl.transport.linked import LinkedTransport
from labctl.transport.ssh.config import SshConfig

if TYPE_CHECKING:  # commands that move no files must not wait for these imports
    from labctl.hdc.keys import HostKey
    from labctl.hdc.server_client.server import HdcServer
    from labctl.transport.hdc_files import HdcFileTransfer
    from labctl.transport.linked import Stream

#: Default address of this host's hdc server.
HDC_SERVER = "127.0.0.1:8710"
_USUAL = OpenOptions()


class HdcTransport(LinkedTransport[HostLink]):
    """A board over hdc, directly to its hdcd or through an hdc server."""

    #: Time-out (s) for the start of a forwarding.
    forward_seconds = 10.0

    def shell(self, link: HostLink, script: str, *, timeout: float) -> Generator[bytes, None, None]:
        """Run a script; see :class:`LinkedTransport`."""
        return hdc.shell(link, script, timeout=timeout)

    def file_transfer(self, options: TransferOptions) -> "HdcFileTransfer":
        """Return the transfer; see :class:`Transport`."""
        from labctl.transport.hdc_files import HdcFileTransfer

        return HdcFileTransfer(self, options, connected=self.connected)

    @contextmanager
    def connect(self, port: int, *, timeout: float) -> Iterator["Stream"]:
        """Connect to a port of the board; see :class:`Transport`.

        On a direct link, a channel of the session is the connection. Through a server, the
        connection uses a port at which the server listens.
        """
        from labctl.transport.linked import Stream

        with self.connected().connect_port(port, timeout=timeout) as connected:
            yield Stream(self.label, connected, timeout=timeout)

    @property
    def name(self) -> str | None:
        """See :attr:`Transport.name`."""
        return self.connected().name

    def over_hdc(self, purpose: str) -> "HdcTransport":
        """Return this transport itself."""
        del purpose
        return self

    @contextmanager
    def forward(self, listen: str, connect: str, *, reverse: bool = False) -> Iterator["Forwarded"]:
        """Within the context, forward connections to ``listen`` here to ``connect`` on the board.

        With ``reverse`` the board listens, and this host connects. Both are nodes as hdc writes
        them: ``tcp:PORT``, ``localabstract:NAME``, ``localfilesystem:PATH``. Raises ConfigError (no
        such node), HostError or BoardError (cannot listen), LinkError.
        """
        link = self.connected()
        start = link.reverse if reverse else link.forward
        with start(listen, connect, timeout=self.forward_seconds) as forwarding:
            yield Forwarded(forwarding.listen, link)

    def request_reboot(self, how: Reboot = "", *, timeout: float) -> None:
        """Request a restart; see :class:`Transport`."""
        hdc.reboot(self.connected(), how, timeout=timeout)
        self.close()

    def remount(self, *, timeout: float) -> str:
        """Make the board's system partitions writable; return the reply."""
        return hdc.remount(self.connected(), timeout=timeout)

    def set_mode(self, mode: str, *, timeout: float) -> str:
        """Let the board's hdcd listen on ``port 5555`` or ``usb``; return the reply."""
        return hdc.set_mode(self.connected(), mode, timeout=timeout)

    def hilog(self, *words: str, timeout: float, write: Write) -> None:
        """Print the board's log as it arrives, for ``timeout`` seconds or until the log ends.

        hdc's own request has no exit status. Raises RemoteExit if the board's ``hilog`` fails,
        LinkError, BoardError.
        """
        command = remote_words("hilog", *words)
        self.connected()  # a board that does not answer is an error, not an empty log
        with suppress(CommandTimeout):
            status = self.stream(command, timeout=timeout, write=write)
            CommandResult(command, status, b"", 0).check()

    @contextmanager
    def interact(self, *, timeout: float) -> Iterator[hdc.InteractiveShell]:
        """Open an interactive shell on a terminal; ``timeout`` (s) limits each sending."""
        with hdc.interactive_shell(self.connected(), timeout=timeout) as terminal:
            yield terminal


@dataclass(frozen=True)
class Forwarded:
    """Connections forwarded over one link; they end with the link.

    ``listen``: the listening node, with the actual port if the system chose it.
    """

    listen: str
    link: HostLink

    @property
    def failure(self) -> LinkError | None:
        """The reason why the link no longer forwards; None if no reason is known."""
        return self.link.failure


def forward_document(listen: str, connect: str, *, reverse: bool) -> dict[str, object]:
    """Return a forwarding as JSON; ``port`` is null if no TCP port listens."""
    kind, _, address = listen.partition(":")
    port = int(address) if kind == "tcp" else None
    return {"listen": listen, "connect": connect, "reverse": reverse, "port": port}


@dataclass(frozen=True, kw_only=True)
class HdcTcpConfig(TransportConfig):
    """A board reached over OpenHarmony's hdc, straight at its hdc daemon on TCP."""

    __pydantic_config__: ClassVar[dict[str, Any]] = rules(required=("kind", "link"))
    needs_workdir: ClassVar[bool] = False

    kind: Literal["hdc"] = "hdc"
    """Way to reach the board."""
    link: Literal["tcp"] = "tcp"
    """`tcp`: straight to the board's hdc daemon; no `hdc` program is needed on this host."""
    address: Endpoint
    """Address of the board's hdc daemon, HOST:PORT."""
    key_file: Annotated[HostPath, InLab()] | None = None
    """Private key for a board that requires authorisation; by default ~/.harmony/hdckey, else
    labctl's own."""

    @property
    def location(self) -> str:
        """Address of the board, for people."""
        return self.address

    @property
    def is_on_this_host(self) -> bool:
        """True if the board may be virtual; its folders are then on this host."""
        return is_on_loopback(self.address)

    @property
    def port_on_this_host(self) -> int | None:
        """Port of hdcd if the board may be virtual."""
        return split_endpoint(self.address)[1] if self.is_on_this_host else None

    def clash(self, other: object, name: str) -> tuple[str, str] | None:
        """Refuse another board with the same address."""
        if not isinstance(other, HdcTcpConfig) or _way(other.address) != _way(self.address):
            return None
        return "address", f"board '{name}' has this address too"

    def open(self, options: OpenOptions = _USUAL) -> HdcTransport:
        """Return the transport; the first operation opens the link, and reopens it after a loss.

        A locked board gets the first of these keys: ``options``, configuration, the user's
        (``~/.harmony/hdckey``), labctl's. Raises ConfigError.
        """
        from labctl.hdc.host.handshake import Consent
        from labctl.hdc.host.session import Session

        host, port = address_of(self.address, "a board")
        key_file = options.key_file or (None if self.key_file is None else Path(self.key_file))

        def find_key() -> "HostKey":
            from labctl.hdc.keys import HostKey  # slow to import, and few boards are locked

            return HostKey.of_this_user() if key_file is None else HostKey.load(key_file)

        return HdcTransport(
            f"hdc tcp {host}:{port}",
            lambda: Session.connect(
                host,
                port,
                timeout=options.timeout,
                find_key=find_key,
                consent=options.consent or Consent(),
            ),
        )


@dataclass(frozen=True, kw_only=True)
class HdcServerConfig(TransportConfig):
    """A board reached over OpenHarmony's hdc, through an hdc server: on a USB cable, say."""

    __pydantic_config__: ClassVar[dict[str, Any]] = rules(required=("kind", "link"))
    needs_workdir: ClassVar[bool] = False

    kind: Literal["hdc"] = "hdc"
    """Way to reach the board."""
    link: Literal["server"] = "server"
    """`server`: through an hdc server that runs, or that the `hdc` program on PATH starts."""
    key: HdcKey
    """The board's key, as `hdc list targets` shows it: a serial number, or IPv4:PORT."""
    server: Endpoint | None = None
    """Address of the server, HOST:PORT; by default 127.0.0.1:8710. With `ssh`, as that host has
    it."""
    ssh: SshConfig | None = None
    """Host of the server, reached through an ssh tunnel that labctl makes; the keys of `kind:
    ssh`."""
    trust_network: bool = False
    """True if `server` may be on another host without `ssh`: hdc has no password and no
    encryption."""
    private: bool = False
    """True if labctl runs its own server for the board, instead of `server`."""

    @property
    def location(self) -> str:
        """Address of the board, for people."""
        return self.key

    @property
    def attached_to(self) -> str | None:
        """Host of the server, if ``ssh`` leads to another host."""
        return None if self.ssh is None else self.ssh.login

    def problem(self) -> tuple[str, str] | None:
        """Refuse an address for a private server, and a connection that others could intercept."""
        if self.private and self.server is not None:
            return "server", "a private server listens where it likes: drop this"
        if self.private and self.ssh is not None:
            return "ssh", "a private server is on this host: drop this"
        if self.ssh is not None and (wrong := self.ssh.problem()):
            return "ssh", f"{wrong[0]} {wrong[1]}"
        is_open = self.server is not None and not is_on_loopback(self.server)
        return self._problem_of_network() if is_open else None

    def _problem_of_network(self) -> tuple[str, str] | None:
        if self.ssh is not None:
            return "server", "must be on that host's loopback (127.0.0.1:8710): hdc has no password"
        if self.trust_network:
            return None
        host, _ = split_endpoint(self.server or HDC_SERVER)
        return "server", (
            "is on another host, and hdc has neither password nor encryption: let labctl make a"
            f" tunnel (`ssh: {{host: {host}}}` in place of this), or say that everybody on the way"
            " is trusted (`trust_network: true`)"
        )

    def clash(self, other: object, name: str) -> tuple[str, str] | None:
        """Refuse an equal key on the same server, and cables of one host on different servers."""
        if not isinstance(other, HdcServerConfig):
            return None
        if self.key == other.key and self._server == other._server:
            return "key", f"board '{name}' has this key too"
        if self._has_cables and other._has_cables and self._server != other._server:
            other_server = "is on a cable of this host too, with another server"
            return "key", f"board '{name}' {other_server}"
        return None

    @property
    def _server(self) -> tuple[object, ...] | None:
        if self.private:
            return None
        return (self.ssh and self.ssh.way, *_way(self.server or HDC_SERVER))

    @property
    def _has_cables(self) -> bool:
        """True if the board is on a cable of this host: one server owns all its cables."""
        here = self.ssh is None and is_on_loopback(self.server or HDC_SERVER)
        return ":" not in self.key and here

    def restart_problem(self) -> str | None:
        """Refuse a server behind a tunnel."""
        if self.ssh is None:
            return None
        return "an hdc server is restarted on its own host, not through `ssh`"

    def end_server(self, timeout: float) -> None:
        """End the server by the ``hdc`` program; see :class:`TransportConfig`."""
        if self.private:
            raise HostError("its hdc server is labctl's own, and restarted whenever it hangs")
        from labctl.transport.hdc_server.process import end_server

        end_server(self.server or HDC_SERVER, timeout=timeout)

    def open(self, options: OpenOptions = _USUAL) -> HdcTransport:
        """Return the transport; the first operation opens the link, and reopens it after a loss.

        If no server runs, one is started; this takes time in addition to that of ``options``. The
        server shows its own key to locked boards. Raises ConfigError.
        """
        from labctl.hdc.server_client.connect_key import check_key
        from labctl.hdc.server_client.session import ServerSession
        from labctl.transport.hdc_server.shared import private_server, running_server

        key, timeout = check_key(self.key), options.timeout
        host, port = address_of(self.server or HDC_SERVER, "an hdc server")
        find: Callable[[], HdcServer]
        if self.private:
            name, find = "private server", partial(private_server, key, timeout=timeout)
        elif self.ssh is not None:
            name = f"server of {self.ssh.login}"
            find = partial(_through_tunnel, self.ssh, host, port, timeout)
        else:
            name = f"server {host}:{port}"
            find = partial(running_server, host, port, timeout=timeout)

        is_asking = False

        def connect() -> ServerSession:
            nonlocal is_asking
            server = find()
            try:
                return ServerSession.connect(server, key, timeout=timeout, is_asking=is_asking)
            except BaseException as error:
                is_asking = isinstance(error, NotAuthorised) and not isinstance(error, AccessDenied)
                server.close()
                raise

        return HdcTransport(f"hdc {name} {key}", connect)


def find_server(address: str) -> "HdcServer":
    """Return the hdc server at ``HOST:PORT``, for requests; does not start a server.

    Raises ConfigError.
    """
    from labctl.hdc.server_client.server import HdcServer

    return HdcServer(*address_of(address, "an hdc server"))


def _through_tunnel(ssh: SshConfig, host: str, port: int, timeout: float) -> "HdcServer":
    """Log in at the host of an hdc server. Raises LinkError, ConfigError, ToolMissing."""
    from labctl.hdc.server_client.server import HdcServer

    try:
        link = ssh.log_in(f"lab host {ssh.login}", timeout)
    except LinkError as error:
        error.of_host()
        raise
    from labctl.transport.ssh.tunnel import SshTunnel

    return HdcServer(host, port, SshTunnel(link))


@lru_cache(maxsize=4096)  # every board is compared with all others
def _way(endpoint: str) -> tuple[str, int]:
    host, port = split_endpoint(endpoint)
    return host.lower(), port
