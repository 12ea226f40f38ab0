"""What has to move to a board, before the first byte of it does."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from labctl.board import BoardStore, StoredObject
from labctl.errors import BoardNoSpace, ConfigError
from labctl.files import sha256_file
from labctl.records import BoardFacts

#: Left free on the board: file systems need room for their own, and jobs for their output.
SPARE_BYTES = 32 << 20


@dataclass(frozen=True)
class Object:
    """A file of this host that a board must have. ``name`` is for people and for look-up."""

    sha256: str
    size_bytes: int
    local: Path
    name: str
    executable: bool = False

    @property
    def stored(self) -> StoredObject:
        """The same as the board's store knows it."""
        return StoredObject(self.sha256, self.size_bytes)


@dataclass(frozen=True)
class DeployPlan:
    """All objects wanted, and those of them that have to be sent.

    ``free_bytes`` is None where the board does not tell.
    """

    objects: tuple[Object, ...]
    missing: tuple[Object, ...]
    free_bytes: int | None

    @property
    def bytes(self) -> int:
        """Bytes that will cross the link."""
        return sum(item.size_bytes for item in self.missing)


def describe(local: Path, *, name: str | None = None, executable: bool = False) -> Object:
    """An object made from a file, which is hashed. Raises ConfigError when it cannot be read."""
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
    """The agent for the machine that the board natively runs.

    ``agent_for`` gives the file for a machine as ``uname -m`` names it, and raises ConfigError when
    there is none. A virtual board on a PC gets a PC's agent, whatever its programs are built for.
    """
    return describe(agent_for(facts.machine), name="agent", executable=True)


def plan(
    store: BoardStore,
    objects: Iterable[Object],
    facts: BoardFacts,
    *,
    limit_bytes: int | None = None,
) -> DeployPlan:
    """Ask the board what it has and say what has to be sent. Nothing is written.

    ``limit_bytes`` is the most that the store may hold afterwards.

    Raises BoardNoSpace when it cannot take that much, LinkError, BoardError.
    """
    wanted = tuple(objects)
    absent = {item.sha256 for item in store.missing(item.stored for item in wanted)}
    missing = {item.sha256: item for item in wanted if item.sha256 in absent}
    result = DeployPlan(wanted, tuple(missing.values()), facts.storage_free_bytes)
    if limit_bytes is not None and result.missing:
        _keep_limit(store, result, limit_bytes)
    needed = result.bytes + SPARE_BYTES
    if result.missing and result.free_bytes is not None and result.free_bytes < needed:
        short = needed - result.free_bytes
        raise BoardNoSpace(
            f"the board lacks {_mb(short)}: {_mb(result.bytes)} have to be sent"
            f" (and {_mb(SPARE_BYTES)} stay free), it has {_mb(result.free_bytes)}",
            hint=f"remove what is not needed from {store.directory} on the board",
            details="\n".join(f"{item.name}: {_mb(item.size_bytes)}" for item in result.missing),
        )
    return result


def _keep_limit(store: BoardStore, wanted: DeployPlan, limit_bytes: int) -> None:
    used = store.used_bytes()
    if used + wanted.bytes > limit_bytes:
        raise ConfigError(
            f"the board's limits.storage is {_mb(limit_bytes)}: {_mb(used)} are in use and "
            f"{_mb(wanted.bytes)} have to be sent",
            hint=f"raise the limit in devices.yaml, or remove files from {store.directory}",
        )


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"
