"""Workers: the processes of lab hosts that run jobs, and their last signs of life."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from labctl.database.questions import select
from labctl.state import sql
from labctl.state.events import clock
from labctl.state.tables import COLUMNS, read, stored_names
from labctl.state.waiting import Waiting

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.state.sql import StateDatabase

#: Time (s) without a sign of life after which a worker counts as dead.
ALIVE_SECONDS = 60.0
#: Time (s) for which the record of a dead worker is kept.
_KEPT_SECONDS = 7 * 86_400.0
_NAMES = tuple(COLUMNS["worker"])


@dataclass(frozen=True)
class Worker:
    """A worker. Times are seconds since 1970 by the database's clock."""

    name: str
    host: str
    boards: tuple[str, ...]
    #: Ids of jobs, and SHA-256 of contents, that it leaves to others because it cannot run them.
    leaves: tuple[str, ...]
    #: Version of labctl.
    version: str
    started_at: float
    alive_at: float
    #: Time (s) since its last sign of life.
    silent_seconds: float
    #: Why its row cannot be read; None if it can.
    damaged: str | None = None

    @property
    def is_alive(self) -> bool:
        """True if its last sign of life is recent. A sign in the future means a clock set back."""
        return self.damaged is None and abs(self.silent_seconds) <= ALIVE_SECONDS

    def document(self) -> dict[str, object]:
        """Return the worker as JSON, without the jobs that it leaves to others."""
        document = {**asdict(self), "is_alive": self.is_alive}
        del document["leaves"]
        return document


@dataclass(frozen=True)
class GroupOwner:
    """The owner of a group. It runs the group's jobs on ``boards``, except those in ``leaves``."""

    boards: Collection[str]
    leaves: frozenset[str]

    def runs(self, job: Waiting, board: str) -> bool:
        """Return True if the owner runs this job of its group on a board, now or soon."""
        return board in self.boards and self.leaves.isdisjoint((job.id, *job.contents))


class Workers:
    """All workers of a lab. Methods raise HostError and ConfigError as the database does."""

    def __init__(self, state: "StateDatabase"):
        self._state = state

    def list(self) -> Sequence[Worker]:
        """Return living and recently dead workers, by host."""
        question = select((self._state.now, *_NAMES), "worker", order="host, started_at")
        found = []
        for now, *row in self._state.ask(question, {}):
            values, why = read("worker", _NAMES, row)
            found.append(Worker(**values, silent_seconds=now - values["alive_at"], damaged=why))
        return found

    def give_sign(
        self,
        name: str,
        host: str,
        boards: Sequence[str],
        version: str,
        *,
        leaves: Sequence[str] = (),
    ) -> None:
        """Record a sign of life of a worker; remove workers that died long ago."""

        def change(connection: "Connection") -> None:
            from labctl.state.statements import DROP_WORKERS

            now = clock(connection, self._state.now)
            sign = {"alive_at": now, "leaves": stored_names(leaves)}
            if not sql.update(connection, "worker", {"name": name}, sign):
                row = {
                    "name": name,
                    "host": host,
                    "boards": stored_names(boards),
                    "version": version,
                    "started_at": now,
                }
                sql.insert(connection, "worker", row | sign)
            connection.execute(DROP_WORKERS, {"before": now - _KEPT_SECONDS})

        self._state.change(change)

    def of_groups(self) -> Mapping[str, "GroupOwner"]:
        """Return the living owners of groups, by group."""
        alive = f"owner IS NOT NULL AND expires >= {self._state.now}"
        rows = self._state.ask(select("id, boards, leaves", "job_group", alive), {})
        found = [read("job_group", ("id", "boards", "leaves"), row)[0] for row in rows]
        return {
            one["id"]: GroupOwner(frozenset(one["boards"]), frozenset(one["leaves"]))
            for one in found
        }

    def remove(self, name: str) -> None:
        """Remove a worker that ended."""

        def change(connection: "Connection") -> None:
            sql.delete(connection, "worker", {"name": name})

        self._state.change(change)
