"""Entry points of installed packages that add engines or transports to labctl."""

import sys
import traceback
from collections.abc import Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from labctl.errors import ConfigError
from labctl.suggestions import listed


def installed(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of installed packages; import nothing."""
    return _installed(group, tuple(sys.path))


@cache
def _installed(group: str, _path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Search the metadata of all distributions on the path, once: it takes milliseconds."""
    return tuple(sorted(entry_points(group=group), key=lambda entry: entry.name))


def owner(entry: EntryPoint) -> str:
    """Name the distribution of an entry point, with its version."""
    if entry.dist is None:
        return "labctl itself"
    return f"{entry.dist.name or 'a package without a name'} {entry.dist.version}"


def the_only(what: str, found: Sequence[EntryPoint]) -> EntryPoint:
    """Return the entry point of a name. Raises ConfigError if several packages have it."""
    if len(found) > 1:
        owners = listed(map(owner, found), joiner="and")
        raise ConfigError(
            f"several packages provide the {what} {found[0].name!r}: {owners}",
            hint="uninstall all but one of them",
        )
    return found[0]


def imported(what: str, entry: EntryPoint) -> object:
    """Import what an entry point names. Raises ConfigError that names the distribution."""
    try:
        return entry.load()
    except (Exception, SystemExit) as error:  # third-party code may raise anything
        details = traceback.format_exc()
        raise unusable(what, entry, f"{type(error).__name__}: {error}", details) from error


def unusable(what: str, entry: EntryPoint, why: str, details: str | None = None) -> ConfigError:
    """Return the error for a package that does not fit; ``what``: "engine", for instance."""
    return ConfigError(
        f"the {what} {entry.name!r} of {owner(entry)} cannot be used: {why}",
        hint="install a version made for this labctl, or uninstall it",
        details=details,
    )
