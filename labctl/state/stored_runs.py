"""The run directories in the lab's shared store: the digest of each archive."""

from typing import TYPE_CHECKING

from labctl.state import sql

if TYPE_CHECKING:
    from labctl.state.sql import StateDatabase


class StoredRuns:
    """Archives by run. Methods raise HostError and ConfigError as the database does."""

    def __init__(self, state: "StateDatabase"):
        self._state = state

    def list(self) -> dict[str, str]:
        """Return the SHA-256 of each run's archive."""
        return dict(self._state.ask("SELECT run, sha256 FROM stored_run", {}))

    def get(self, run: str) -> str | None:
        """Return the SHA-256 of a run's archive; None if it is not stored."""
        rows = self._state.ask("SELECT sha256 FROM stored_run WHERE run = :run", {"run": run})
        return rows[0][0] if rows else None

    def set(self, run: str, sha256: str, host: str) -> None:
        """Record the digest of a run's archive; it replaces an earlier one."""
        with self._state.changing() as connection:
            sql.run(
                connection,
                "INSERT INTO stored_run (run, sha256, host, stored_at)"
                f" VALUES (:run, :sha256, :host, CAST({self._state.now} AS DOUBLE PRECISION))"
                " ON CONFLICT (run) DO UPDATE SET sha256 = excluded.sha256, host = excluded.host,"
                " stored_at = excluded.stored_at",
                {"run": run, "sha256": sha256, "host": host},
            )
