"""The contract of a transport's model in devices.yaml: all that is asked of any kind of it."""

from typing import Any, ClassVar, Protocol, runtime_checkable


@runtime_checkable
class TransportConfig(Protocol):
    """Way to a board: base of the kinds of transport, which the floor above defines.

    Each is a frozen dataclass with the literal fields ``kind`` and, where a kind has several
    models, ``link``. :class:`labctl.transport.config.UsualConfig` has the usual answers.
    """

    #: True if a board needs its own ``workdir``: there is no usual one.
    needs_workdir: ClassVar[bool]

    @property
    def kind(self) -> str:
        """Name of the kind in devices.yaml."""

    @property
    def location(self) -> str:
        """Address of the board, for people."""

    @property
    def is_this_host(self) -> bool:
        """True if the board is no machine of its own: its programs run on this host."""

    @property
    def is_on_this_host(self) -> bool:
        """True if a board may be this host itself, whose folders are the board's too."""

    @property
    def port_on_this_host(self) -> int | None:
        """TCP port of this host at which the board listens; None if there is none."""

    @property
    def attached_to(self) -> str | None:
        """Host on whose cables the board is, [USER@]HOST; None if this host reaches it itself."""

    def problem(self) -> tuple[str, str] | None:
        """Return a conflict between its keys: a key, and a sentence."""

    def clash(self, other: Any, name: str) -> tuple[str, str] | None:
        """Return why ``other``, of the board ``name``, conflicts with it: a key, and a sentence."""

    def restart_problem(self) -> str | None:
        """Return why there is no hdc server that this host may restart; None if there is one."""

    def end_server(self, timeout: float) -> None:
        """End the hdc server on the way; the next contact starts another one. Raises HostError."""

    def open(self, options: Any = ...) -> Any:
        """Open the transport; see :class:`labctl.transport.base.OpenOptions`."""
