"""The transports of installed packages, found by their entry points."""

import inspect
from collections.abc import Collection

from labctl.config.plugins import imported, installed, the_only, unusable
from labctl.config.transport import TransportConfig, kind_of

#: Entry points of packages that bring a transport. The name of one is the kind in devices.yaml; it
#: names a tuple of models.
GROUP = "labctl.transports"


def installed_transports(kinds: Collection[str] | None = None) -> list[type[TransportConfig]]:
    """Import the models that installed packages have of these kinds; None: of all.

    Raises ConfigError that names the package.
    """
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
