"""The run directories in the lab's shared store: the digest of each archive."""

from typing import TYPE_CHECKING

from labctl.state import sql
from labctl.state.events import clock
from labctl.state.tables import read

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.state.sql import StateDatabase


class StoredRuns:
    """Archives by run. Methods raise HostError and ConfigError as the database does."""

    def __init__(self, state: "StateDatabase"):
        self._state = state

    def list(self) -> dict[str, str]:
        """Return the SHA-256 of each run's archive, except those whose row is damaged."""
        rows = [
            read("stored_run", ("run", "sha256"), row)
            for row in self._state.ask("SELECT run, sha256 FROM stored_run", {})
        ]
        return {values["run"]: values["sha256"] for values, damaged in rows if damaged is None}

    def get(self, run: str) -> str | None:
        """Return the SHA-256 of a run's archive; None if it is missing or damaged."""
        rows = self._state.ask("SELECT sha256 FROM stored_run WHERE run = :run", {"run": run})
        values, damaged = read("stored_run", ("sha256",), rows[0]) if rows else ({}, None)
        return None if damaged else values.get("sha256")

    def set(self, run: str, sha256: str, host: str) -> None:
        """Record the digest of a run's archive, in place of an earlier digest."""

        def change(connection: "Connection") -> None:
            now = clock(connection, self._state.now)
            row = {"run": run, "sha256": sha256, "host": host, "stored_at": now}
            sql.delete(connection, "stored_run", {"run": run})
            sql.insert(connection, "stored_run", row)

        self._state.change(change)
