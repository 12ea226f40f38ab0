"""Defaults for the models of transports in devices.yaml; each kind overrides what differs.

The contract is :class:`labctl.config.transport.TransportConfig`. It is not imported here: a command
on a board without a lab must not wait for the configuration.
"""

from labctl.errors import HostError


class UsualConfig:
    """Base of the models: a separate machine, reached from this host without an hdc server."""

    @property
    def is_this_host(self) -> bool:
        """True if the board's programs run on this host."""
        return False

    @property
    def is_on_this_host(self) -> bool:
        """True if the board may use this host's folders."""
        return self.is_this_host

    @property
    def port_on_this_host(self) -> int | None:
        """TCP port of this host at which the board listens."""
        return None

    @property
    def attached_to(self) -> str | None:
        """Other host to whose cables the board is attached."""
        return None

    def problem(self) -> tuple[str, str] | None:
        """Return None: the keys have no problem together."""
        return None

    def clash(self, other: object, name: str) -> tuple[str, str] | None:
        """Return None: boards do not share a transport."""
        del other, name
        return None

    def restart_problem(self) -> str | None:
        """Refuse: there is no server."""
        return "only a board with `link: server` has an hdc server on its way"

    def end_server(self, timeout: float) -> None:
        """Refuse: there is no server. Raises HostError."""
        del timeout
        raise HostError("there is no hdc server on the way to this board")
