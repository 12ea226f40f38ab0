"""The plan of a deploy: which files a board needs, before the first byte is sent."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from labctl.board import BoardStore, StoredObject
from labctl.errors import ConfigError
from labctl.files import sha256_file
from labctl.records import BoardFacts


@dataclass(frozen=True)
class Object:
    """A file of this host that a board must have. ``name`` is for people and for look-up."""

    sha256: str
    size_bytes: int
    local: Path
    name: str
    executable: bool = False

    def document(self) -> dict[str, object]:
        """Return name, hash and size as JSON."""
        return {"name": self.name, "sha256": self.sha256, "size_bytes": self.size_bytes}

    @property
    def stored(self) -> StoredObject:
        """The same as the board's store knows it."""
        return StoredObject(self.sha256, self.size_bytes, self.name)


@dataclass(frozen=True)
class DeployPlan:
    """All objects wanted, and those of them that have to be sent."""

    objects: tuple[Object, ...]
    missing: tuple[Object, ...]

    @property
    def bytes(self) -> int:
        """Bytes that will cross the link."""
        return sum(item.size_bytes for item in self.missing)


def describe(local: Path, *, name: str | None = None, executable: bool = False) -> Object:
    """Return an object of a file, with its SHA-256. Raises ConfigError if it cannot be read."""
    try:
        return Object(
            sha256=sha256_file(local),
            size_bytes=local.stat().st_size,
            local=local,
            name=name or local.name,
            executable=executable,
        )
    except OSError as error:
        raise ConfigError(f"cannot read {local}: {error.strerror}") from error


def agent_object(facts: BoardFacts, agent_for: Callable[[str], Path]) -> Object:
    """Return the agent for the machine that the board natively runs.

    ``agent_for`` gives the file for a machine as ``uname -m`` names it, and raises ConfigError when
    there is none. A virtual board on a PC gets a PC's agent, whatever its programs are built for.
    """
    return describe(agent_for(facts.machine), name="agent", executable=True)


def plan(store: BoardStore, objects: Iterable[Object]) -> DeployPlan:
    """Ask the board what it has and say what has to be sent. Raises LinkError, BoardError."""
    wanted = tuple(objects)
    absent = {item.sha256 for item in store.missing(item.stored for item in wanted)}
    missing = {item.sha256: item for item in wanted if item.sha256 in absent}
    return DeployPlan(wanted, tuple(missing.values()))
