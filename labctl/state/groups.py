"""Groups of jobs: a batch, a night.

A group may have an owner: the process that waits for it, which renews it like a lease. Once the
owner is gone, no further job of the group begins until another owner takes the group over or leaves
it to the workers. Only the database's clock counts.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from labctl.database.questions import select
from labctl.errors import Blame, ExitStatus, HostTimeout
from labctl.state import sql
from labctl.state.attempts import wait_again
from labctl.state.events import clock
from labctl.state.job import end, jobs_where
from labctl.state.job_parts import boards_of
from labctl.state.sql import rows_of
from labctl.state.tables import read, short_line, stored_names

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.database.base import Ask, Row
    from labctl.state.sql import StateDatabase

GroupKind = Literal["batch", "nightly"]
_NAMES = (
    "id", "state", "board", "run", "exit_status", "blame", "reason", "failures", "ended_at",
    "started_at", "attempts",
)  # fmt: skip
_NEWS = select(
    _NAMES,
    "job",
    "group_id = :group",
    "(ended_at >= :since OR (ended_at IS NULL AND (state <> 'waiting' OR failures > 0)))",
    order="ended_at, id",
)


@dataclass(frozen=True)
class NewGroup:
    """A group to begin."""

    id: str
    kind: GroupKind
    #: For people.
    name: str
    #: ``USER@HOST``
    submitter: str
    #: True if a unit interrupted between its jobs is cancelled; else it continues.
    restarts: bool = False


@dataclass(frozen=True)
class GroupJob:
    """Progress of a job of a group. Times are seconds since 1970 by the database's clock."""

    id: str
    state: str
    board: str | None
    run: str | None
    exit_status: int | None
    blame: Blame | None
    reason: str | None
    #: Number of attempts that infrastructure interrupted.
    failures: int
    ended_at: float | None
    started_at: float | None
    attempts: int
    #: Why its row cannot be read; None if it can.
    damaged: str | None = None

    @property
    def has_ended(self) -> bool:
        """True once the job is done or cancelled."""
        return self.state in ("done", "cancelled")


class Groups:
    """The groups of a lab. Methods raise HostError and ConfigError as the database does."""

    def __init__(self, state: "StateDatabase"):
        self._state = state

    def own(
        self,
        group: NewGroup,
        owner: str | None,
        is_dead: Callable[[str], bool] = lambda _: False,
        *,
        boards: Collection[str] = (),
    ) -> None:
        """Begin a group, or take it over; without an owner, its jobs need only workers.

        ``is_dead`` returns True for an owner known to be gone: its jobs wait again at once. On
        ``boards`` without a living worker the owner runs the group's jobs itself. Raises
        HostTimeout while another owner is alive.
        """

        def change(connection: "Connection") -> None:
            now = clock(connection, self._state.now)
            question = "SELECT owner, expires FROM job_group WHERE id = :id"
            row = next(iter(sql.asker(connection)(question, {"id": group.id})), None)
            if row is None:
                new = {
                    "id": group.id,
                    "kind": group.kind,
                    "name": short_line(group.name) or "",
                    "submitter": group.submitter,
                    "restarts": int(group.restarts),
                    "boards": stored_names(()),
                    "leaves": stored_names(()),
                    "made_at": now,
                }
                sql.insert(connection, "job_group", new)
                row = (None, None)
            found, damaged = read("job_group", ("owner", "expires"), row)
            before = found["owner"] if damaged is None else None
            if before is not None and before != owner:
                if is_dead(before):
                    _free(connection, before, now)
                elif (found["expires"] or 0.0) >= now:
                    raise HostTimeout(
                        f"{group.kind} {group.name} is in use by {before}",
                        hint="wait for its end; an owner that died is gone after"
                        f" {self._state.lease_seconds:.0f} s",
                    )
            expires = None if owner is None else now + self._state.lease_seconds
            values = {
                "owner": owner,
                "expires": expires,
                "boards": stored_names(boards),
                "leaves": stored_names(()),
            }
            sql.update(connection, "job_group", {"id": group.id}, values)

        self._state.change(change)

    def tell_leaves(self, group: str, owner: str, leaves: Sequence[str]) -> None:
        """Record the jobs and contents that the owner does not run: no other job waits for them."""

        def change(connection: "Connection") -> None:
            values = {"leaves": stored_names(leaves)}
            sql.update(connection, "job_group", {"id": group, "owner": owner}, values)

        self._state.change(change)

    def leave(self, group: str, owner: str) -> None:
        """Stop further jobs of a group from beginning, unless another owner has the group now."""

        def change(connection: "Connection") -> None:
            sql.update(connection, "job_group", {"id": group, "owner": owner}, {"expires": 0.0})

        self._state.change(change)

    def stopped(self) -> Mapping[str, str]:
        """Return the groups whose owner is gone, with kind and name: no job of them begins."""
        gone = f"owner IS NOT NULL AND expires < {self._state.now}"
        rows = self._state.ask(select("id, kind, name", "job_group", gone), {})
        found = (read("job_group", ("id", "kind", "name"), row)[0] for row in rows)
        return {one["id"]: f"{one['kind']} {one['name']}" for one in found}

    def jobs(self, jobs: Collection[str]) -> Sequence[GroupJob]:
        """Return the jobs with these ids, except ids that do not exist."""
        question = select(_NAMES, "job", "id IN")
        return self._state.asking(lambda ask: [*map(_group_job, rows_of(ask, question, jobs))])

    def news(self, group: str, since: float) -> tuple[Sequence[GroupJob], int]:
        """Return the jobs of a group that run, were interrupted, or ended since ``since``.

        Also return the number of jobs that have not ended.
        """

        def found(ask: "Ask") -> tuple[Sequence[GroupJob], int]:
            asked = {"group": group, "since": since}
            left = "SELECT COUNT(*) FROM job WHERE group_id = :group AND ended_at IS NULL"
            counted = ask(left, asked)
            rows = ask(_NEWS, asked)
            return [*map(_group_job, rows)], int(counted[0][0]) if counted else 0

        return self._state.asking(found)

    def waiting(self, group: str) -> Mapping[tuple[str, ...], Sequence[str]]:
        """Return the waiting jobs of a group, by the boards on which they may run."""

        def found(ask: "Ask") -> Mapping[tuple[str, ...], Sequence[str]]:
            question = "SELECT id, boards FROM job WHERE group_id = :group AND state = 'waiting'"
            rows = [(str(job), str(digest)) for job, digest in ask(question, {"group": group})]
            lists = boards_of(ask, {digest for _, digest in rows})
            jobs: dict[tuple[str, ...], list[str]] = {}
            for job, digest in rows:
                jobs.setdefault(lists.get(digest, ()), []).append(job)
            return jobs

        return self._state.asking(found)

    def damaged(self, group: str) -> Mapping[str, str]:
        """Return the damaged jobs of a group that have not ended, with the damage."""
        where = "group_id = :group AND ended_at IS NULL"
        found = self._state.asking(lambda ask: jobs_where(ask, where, {"group": group}))
        return {job.id: job.damaged for job in found if job.damaged}

    def give_up(
        self,
        jobs: Collection[str],
        reason: str,
        *,
        blame: Blame = Blame.INFRA,
        exit_status: int = ExitStatus.INFRA,
    ) -> None:
        """End waiting jobs: no board is left for them, or their inputs cannot be fetched."""

        def change(connection: "Connection") -> None:
            now, why = clock(connection, self._state.now), short_line(reason)
            for job in jobs:
                where = "id = :id AND state = 'waiting'"
                for found in jobs_where(sql.asker(connection), where, {"id": job}):
                    end(connection, found, now, why, exit_status=exit_status, blame=blame)

        self._state.change(change)


def _group_job(row: "Row") -> GroupJob:
    values, damaged = read("job", _NAMES, row)
    blame = Blame(values["blame"]) if values["blame"] else None
    return GroupJob(**{**values, "blame": blame}, damaged=damaged)


def _free(connection: "Connection", worker: str, now: float) -> None:
    """Let the jobs of a dead process wait again."""
    where = "worker = :worker AND state = 'running'"
    for job in jobs_where(sql.asker(connection), where, {"worker": worker}):
        wait_again(
            connection, job, now, f"{worker} is gone", None, blame_board=False, counted=False
        )
