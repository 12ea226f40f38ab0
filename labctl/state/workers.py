"""Workers: the processes of lab hosts that run jobs, and their last signs of life."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from labctl.state import sql

if TYPE_CHECKING:
    from labctl.state.sql import StateDatabase

#: A worker counts as dead after this time (s) without a sign of life.
ALIVE_SECONDS = 60.0
#: The record of a dead worker is kept for this time (s).
_KEPT_SECONDS = 7 * 86_400.0


@dataclass(frozen=True)
class Worker:
    """A worker. Times are seconds since 1970 by the database's clock."""

    name: str
    host: str
    boards: tuple[str, ...]
    #: Version of labctl.
    version: str
    started_at: float
    alive_at: float
    #: Time (s) since its last sign of life.
    silent_seconds: float

    @property
    def is_alive(self) -> bool:
        """True if its last sign of life is recent."""
        return self.silent_seconds <= ALIVE_SECONDS

    def document(self) -> dict[str, object]:
        """Return it as JSON."""
        return {**asdict(self), "is_alive": self.is_alive}


class Workers:
    """All workers of a lab. Methods raise HostError and ConfigError as the database does."""

    def __init__(self, state: "StateDatabase"):
        self._state = state

    def list(self) -> Sequence[Worker]:
        """Return living workers and those that died recently, by host."""
        rows = self._state.ask(
            "SELECT name, host, boards, version, started_at, alive_at,"
            f" {self._state.now} - alive_at FROM worker ORDER BY host, started_at",
            {},
        )
        return [
            Worker(name, host, tuple(json.loads(boards)), *others)
            for name, host, boards, *others in rows
        ]

    def give_sign(self, name: str, host: str, boards: Sequence[str], version: str) -> None:
        """Record a sign of life of a worker; remove workers that died long ago."""
        now = f"CAST({self._state.now} AS DOUBLE PRECISION)"
        with self._state.changing() as connection:
            sql.run(
                connection,
                "INSERT INTO worker (name, host, boards, version, started_at, alive_at)"
                f" VALUES (:name, :host, :boards, :version, {now}, {now})"
                f" ON CONFLICT (name) DO UPDATE SET alive_at = {now}",
                {
                    "name": name,
                    "host": host,
                    "boards": json.dumps(list(boards)),
                    "version": version,
                },
            )
            sql.run(
                connection,
                f"DELETE FROM worker WHERE alive_at < {now} - :kept",
                {"kept": _KEPT_SECONDS},
            )

    def remove(self, name: str) -> None:
        """Remove a worker that ended."""
        with self._state.changing() as connection:
            sql.run(connection, "DELETE FROM worker WHERE name = :name", {"name": name})
