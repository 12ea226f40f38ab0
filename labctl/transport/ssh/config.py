"""Host and user of an ssh log-in, as in devices.yaml: for a board, or for its host."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from labctl.config.transport import TransportConfig
from labctl.distribution import install_extra
from labctl.errors import ToolMissing
from labctl.text_types import HostName, HostPath, InLab, SshHop, Word, split_hop
from labctl.transport.base import OpenOptions, rules

if TYPE_CHECKING:  # a command without ssh must not wait for this import
    from labctl.transport.ssh.link import SshLink
    from labctl.transport.ssh.transport import SshTransport

_USUAL = OpenOptions()
_USUAL_PORT = 22


@dataclass(frozen=True, kw_only=True)
class SshConfig(TransportConfig):
    """A board reached over ssh, by the extra `ssh`; ssh's own configuration counts too."""

    __pydantic_config__: ClassVar[dict[str, Any]] = rules()
    needs_workdir: ClassVar[bool] = True

    kind: Literal["ssh"] = "ssh"
    """Way to reach the board."""
    host: HostName
    """Name or address of the board, or a Host of ssh's own configuration."""
    port: int | None = None
    """Port of its sshd; by default the one of ssh's configuration, else 22."""
    user: Word | None = None
    """User name; by default the one of ssh's configuration."""
    identity_file: Annotated[HostPath, InLab()] | None = None
    """File of the private key; by default the keys of the ssh agent and the default keys."""
    proxy_jump: SshHop | None = None
    """Jump host, [USER@]HOST[:PORT]; by default the one of ssh's configuration."""
    known_hosts: Annotated[HostPath, InLab()] | None = None
    """File with the host keys; by default `~/.ssh/known_hosts`."""

    @property
    def location(self) -> str:
        """Address of the board, for people."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    def problem(self) -> tuple[str, str] | None:
        """Refuse a port that TCP does not have."""
        if self.port is not None and not 0 < self.port < 1 << 16:
            return "port", "must be from 1 to 65535"
        return None

    def clash(self, other: object, name: str) -> tuple[str, str] | None:
        """Refuse another board with the same address."""
        if not isinstance(other, SshConfig) or other.way != self.way:
            return None
        return "host", f"board '{name}' has this host and port too"

    @property
    def way(self) -> tuple[str, int, str | None]:
        """Key of the host: equal for equal hosts."""
        return self.host.lower(), self.port or _USUAL_PORT, self.proxy_jump

    def open(self, options: OpenOptions = _USUAL) -> "SshTransport":
        """Return the transport; the first operation opens the link, and reopens it after a loss."""
        from labctl.transport.ssh.transport import SshTransport

        label = f"ssh {self.login}"
        return SshTransport(label, lambda: self.log_in(label, options.timeout))

    @property
    def login(self) -> str:
        """User and host for messages."""
        return f"{'' if self.user is None else f'{self.user}@'}{self.location}"

    def log_in(self, name: str, timeout: float) -> "SshLink":
        """Open a link to the host, which messages call ``name``; ``timeout`` (s) limits each step.

        Raises LinkError, ConfigError; ToolMissing without the extra.
        """
        try:
            from labctl.transport.ssh.login import Login, log_in
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "labctl":
                raise
            raise ToolMissing(
                f"boards over ssh need the Python package {error.name!r}",
                hint=install_extra("ssh"),
            ) from error
        known_hosts = None if self.known_hosts is None else Path(self.known_hosts)
        key = None if self.identity_file is None else Path(self.identity_file)
        through = None
        if self.proxy_jump is not None:
            user, host, port = split_hop(self.proxy_jump)
            through = Login(f"jump host {host!r} of {name}", host, port, user, key, known_hosts)
        login = Login(name, self.host, self.port, self.user, key, known_hosts, through)
        return log_in(login, timeout=timeout)
