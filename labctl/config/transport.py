"""The base of a transport's model in devices.yaml, and the transports of installed packages."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any, ClassVar, get_args, get_type_hints

from labctl.errors import HostError

#: Entry points of packages that bring a transport. The name of one is the kind in devices.yaml; it
#: names a tuple of models.
GROUP = "labctl.transports"


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


def installed_transports(kinds: Collection[str] | None = None) -> list[type[TransportConfig]]:
    """Import the models that installed packages have of these kinds; None: of all.

    Raises ConfigError that names the package.
    """
    from labctl.config.plugins import imported, installed, the_only, unusable  # slow, seldom needed

    offered = [entry for entry in installed(GROUP) if kinds is None or entry.name in kinds]
    models: list[type[TransportConfig]] = []
    for name in dict.fromkeys(entry.name for entry in offered):
        entry = the_only("transport", [one for one in offered if one.name == name])
        found = imported("transport", entry)
        if not isinstance(found, tuple) or not found or not all(map(_is_model, found)):
            raise unusable("transport", entry, f"{entry.value} is not a tuple of TransportConfigs")
        if {kind_of(model) for model in found} != {name}:
            raise unusable("transport", entry, f"the kind of {entry.value} is not {name!r}")
        models += found
    return models


def _is_model(candidate: object) -> bool:
    is_model = inspect.isclass(candidate) and issubclass(candidate, TransportConfig)
    return is_model and not inspect.isabstract(candidate)
