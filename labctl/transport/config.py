"""The usual answers of a transport's model in devices.yaml, for its own kind to differ from.

The contract is :class:`labctl.config.transport.TransportConfig`. It is not imported here: a command
on a board that needs no lab does not wait for the configuration.
"""

from labctl.errors import HostError


class UsualConfig:
    """Base of the models: a machine of its own, which this host reaches without an hdc server."""

    @property
    def is_this_host(self) -> bool:
        """True if its programs run on this host."""
        return False

    @property
    def is_on_this_host(self) -> bool:
        """True if this host's folders may be the board's too."""
        return self.is_this_host

    @property
    def port_on_this_host(self) -> int | None:
        """TCP port of this host at which the board listens."""
        return None

    @property
    def attached_to(self) -> str | None:
        """Another host on whose cables the board is."""
        return None

    def problem(self) -> tuple[str, str] | None:
        """Nothing: each key stands for itself."""
        return None

    def clash(self, other: object, name: str) -> tuple[str, str] | None:
        """Nothing: each board has its own way."""
        del other, name
        return None

    def restart_problem(self) -> str | None:
        """Refuse: there is no server."""
        return "only a board with `link: server` has an hdc server on its way"

    def end_server(self, timeout: float) -> None:
        """Refuse: there is no server. Raises HostError."""
        del timeout
        raise HostError("there is no hdc server on the way to this board")
