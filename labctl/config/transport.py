"""The contract of a transport's model in devices.yaml, for all kinds of transports."""

from typing import Any, ClassVar, Protocol, runtime_checkable


@runtime_checkable
class TransportConfig(Protocol):
    """Transport to a board: base of all kinds, which a higher floor defines.

    Each kind is a frozen dataclass with the literal field ``kind`` and, if a kind has several
    models, ``link``. :class:`labctl.transport.config.UsualConfig` has the usual values.
    """

    #: True if a board must set ``workdir``, because there is no usual one.
    needs_workdir: ClassVar[bool]

    @property
    def kind(self) -> str:
        """Name of the kind in devices.yaml."""

    @property
    def location(self) -> str:
        """Address of the board, for people."""

    @property
    def is_this_host(self) -> bool:
        """True if the board is not a machine of its own: its programs run on this host."""

    @property
    def is_on_this_host(self) -> bool:
        """True if a board may be this host itself, and so use its folders."""

    @property
    def port_on_this_host(self) -> int | None:
        """TCP port of this host at which the board listens, or None."""

    @property
    def attached_to(self) -> str | None:
        """Host to which the board is connected, [USER@]HOST; None if it is this host."""

    def problem(self) -> tuple[str, str] | None:
        """Return a conflict between its own keys: a key, and a sentence."""

    def clash(self, other: Any, name: str) -> tuple[str, str] | None:
        """Return the conflict with ``other``, of the board ``name``: a key, and a sentence."""

    def restart_problem(self) -> str | None:
        """Return the reason why this host may not restart an hdc server; None if it may."""

    def end_server(self, timeout: float) -> None:
        """End the hdc server; the next contact starts another one. Raises HostError."""

    def open(self, options: Any = ...) -> Any:
        """Open the transport; see :class:`labctl.transport.base.OpenOptions`."""
