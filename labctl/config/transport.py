"""The base of a transport's model in devices.yaml."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, get_args, get_type_hints

from labctl.errors import HostError


class TransportConfig(ABC):
    """Way to a board, with the usual answers: a machine of its own, reached without an hdc server.

    Each kind is a frozen dataclass with the literal fields ``kind`` and, where a kind has several
    models, ``link``.
    """

    kind: str
    """Name of the kind in devices.yaml."""
    #: True if a board needs its own ``workdir``: there is no usual one.
    needs_workdir: ClassVar[bool]

    @property
    @abstractmethod
    def location(self) -> str:
        """Address of the board, for people."""

    @abstractmethod
    def open(self, options: Any = ...) -> Any:
        """Open the transport; see :class:`labctl.transport.base.OpenOptions`."""

    @property
    def is_this_host(self) -> bool:
        """True if the board is no machine of its own: its programs run on this host."""
        return False

    @property
    def is_on_this_host(self) -> bool:
        """True if a board may be this host itself, whose folders are the board's too."""
        return self.is_this_host

    @property
    def port_on_this_host(self) -> int | None:
        """TCP port of this host at which the board listens; None if there is none."""
        return None

    @property
    def attached_to(self) -> str | None:
        """Host on whose cables the board is, [USER@]HOST; None if this host reaches it itself."""
        return None

    def problem(self) -> tuple[str, str] | None:
        """Return a conflict between its keys: a key, and a sentence."""
        return None

    def clash(self, other: object, name: str) -> tuple[str, str] | None:
        """Return why ``other``, of the board ``name``, conflicts with it: a key, and a sentence."""
        del other, name
        return None

    def restart_problem(self) -> str | None:
        """Return why there is no hdc server that this host may restart; None if there is one."""
        return "only a board with `link: server` has an hdc server on its way"

    def end_server(self, timeout: float) -> None:
        """End the hdc server on the way; the next contact starts another one. Raises HostError."""
        del timeout
        raise HostError("there is no hdc server on the way to this board")


def kind_of(model: type[TransportConfig]) -> str:
    """Return the kind of a model."""
    (kind,) = get_args(get_type_hints(model)["kind"])
    return str(kind)
