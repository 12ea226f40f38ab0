"""Workers: the processes of lab hosts that run jobs, and their last signs of life."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from labctl.state import sql

if TYPE_CHECKING:
    from labctl.state.sql import StateDatabase

#: A worker without a sign of life for so long is taken for dead.
ALIVE_SECONDS = 60.0
#: What is known of a dead one is kept so long.
_KEPT_SECONDS = 7 * 86_400.0


@dataclass(frozen=True)
class Worker:
    """A worker. Times are seconds since 1970 by the database's clock."""

    name: str
    host: str
    boards: tuple[str, ...]
    #: Of labctl.
    version: str
    started_at: float
    alive_at: float
    #: How long ago it gave its last sign of life.
    silent_seconds: float

    @property
    def is_alive(self) -> bool:
        """True if it gave a sign of life lately."""
        return self.silent_seconds <= ALIVE_SECONDS

    def document(self) -> dict[str, object]:
        """Return it as JSON."""
        return {**asdict(self), "is_alive": self.is_alive}


class Workers:
    """All workers of a lab. Methods raise HostError and ConfigError as the database does."""

    def __init__(self, state: "StateDatabase"):
        self._state = state

    def list(self) -> Sequence[Worker]:
        """Return those that live, and those that died lately, by host."""
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
        """Say that a worker lives; those that died long ago are forgotten."""
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
        """Forget a worker that ended."""
        with self._state.changing() as connection:
            sql.run(connection, "DELETE FROM worker WHERE name = :name", {"name": name})
