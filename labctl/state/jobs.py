"""Jobs: the queue of a lab. A job waits, runs on one board under one worker, and ends once.

Each attempt has a number. Its worker renews it; an attempt that is not renewed counts as lost with
its worker, and the job waits again. Late reports of an older attempt are refused. Only the
database's clock counts. The order of jobs: :mod:`labctl.state.job_order`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from labctl.database.questions import select
from labctl.errors import Blame, ConfigError, LeaseLost
from labctl.state import sql
from labctl.state.attempts import (
    free_lost,
    keep_board,
    left_of_unit,
    lost_jobs,
    renew,
    wait_again,
)
from labctl.state.job import (
    IN_FORCE,
    Job,
    NewJob,
    add,
    end,
    follows,
    homes_of,
    job_in,
    jobs_of,
    jobs_where,
    remaining,
    update,
    waiting_for,
    waiting_of,
)
from labctl.state.job_order import Suits, in_order
from labctl.state.job_parts import boards_of, drop_unused
from labctl.state.tables import MOST_WHOLE, read, short_line
from labctl.state.uses import UseKind
from labctl.state.waiting import Waiting
from labctl.state.workers import Workers

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.database.base import Ask
    from labctl.state.sql import StateDatabase

#: Time (s) for which an ended job is kept.
_KEPT_SECONDS = 90 * 86_400.0
#: Maximum number of old jobs that one submission removes.
_MOST_REMOVED = 200
#: A board is kept for the next job of a unit for this number of leases.
KEPT_LEASES = 2.0
#: Time (s) that is too long for any renewal of an attempt.
_AHEAD_SECONDS = 86_400.0
_SOUND_PLACE = f"position BETWEEN {-MOST_WHOLE} AND {MOST_WHOLE - 1}"
_ENDED = "state IN ('done', 'cancelled')"
#: Groups whose owner left long ago, and in which no job has ended lately.
_GONE_GROUPS = select(
    "id",
    "job_group",
    "owner IS NOT NULL AND made_at < :before AND expires < :before",
    "id NOT IN (SELECT group_id FROM job WHERE group_id IS NOT NULL AND ended_at >= :before)",
)
#: The jobs that are no longer needed.
_OLD = (
    select(
        "id", "job", "ended_at BETWEEN 0 AND :before", _ENDED, order="ended_at", limit=_MOST_REMOVED
    ),
    select("id", "job", f"state = 'waiting' AND group_id IN ({_GONE_GROUPS})", limit=_MOST_REMOVED),
)
_CONTENTS = select(
    "kind, request, boards, MIN(id)",
    "job",
    "state = 'waiting' AND runner = 'worker'",
    IN_FORCE,
    group="kind, request, boards",
)


class Jobs:
    """All jobs of a lab. Methods raise HostError and ConfigError as the database does."""

    def __init__(self, state: "StateDatabase"):
        self._state = state

    def submit(self, *jobs: NewJob) -> Sequence[Job]:
        """Append jobs to the queue, in this order, in one transaction; skip existing ids."""

        def change(connection: "Connection") -> Sequence[Job]:
            now, seconds = self._now(connection), self._state.lease_seconds
            ((last,),) = sql.asker(connection)(select("MAX(position)", "job", _SOUND_PLACE), {})
            last = last or 0.0
            homes = homes_of(sql.asker(connection), jobs)
            for number, job in enumerate(jobs, 1):
                expires = now + seconds if job.runner == "process" else None
                add(connection, job, now, max(last, 0.0) + number, expires, home=homes.get(job.id))
            remove_old(connection, now)
            stored = jobs_of(sql.asker(connection), {job.id for job in jobs})
            return [stored[job.id] for job in jobs]

        return self._state.change(change)

    def list(self, *, ended: int = 0) -> Sequence[Job]:
        """Return running jobs, waiting jobs in order, then the last ``ended`` jobs that ended.

        Damaged jobs that have not ended are among the running jobs or after the waiting jobs. The
        jobs of a group whose owner is gone are among the waiting jobs.
        """

        def found(ask: "Ask") -> tuple[list[Job], list[Job]]:
            last = "ended_at DESC, id"
            return (
                jobs_where(ask, "state NOT IN ('done', 'cancelled')"),
                jobs_where(ask, _ENDED, order=last, limit=ended) if ended else [],
            )

        present, over = self._state.asking(found)
        running = sorted(
            (job for job in present if job.state == "running"),
            key=lambda job: job.started_at or 0.0,
        )
        waiting = [job for job in present if job.waits]
        damaged = [job for job in present if job.state != "running" and job.damaged]
        known = {job.id: job for job in waiting}
        counts = Counter((job.submitter, job.group_id) for job in running)
        units: dict[str, list[Job]] = {}
        for job in sorted(waiting, key=lambda one: (one.position, one.id)):
            units.setdefault(job.unit or job.id, []).append(job)
        heads = [waiting_of(jobs[0]) for jobs in units.values()]
        ordered = [
            job for head in in_order(heads, counts) for job in units[known[head.id].unit or head.id]
        ]
        return [*running, *ordered, *damaged, *over]

    def get(self, job: str) -> Job | None:
        """Return a job by its id; None if the id is unknown."""
        return self._state.asking(lambda ask: jobs_of(ask, {job})).get(job)

    def find(self, name: str) -> Job:
        """Return a job by its id or by the start of its id. Raises ConfigError."""
        asked = {"id": name, "length": len(name)}
        found = self._state.asking(
            lambda ask: jobs_where(ask, "substr(id, 1, :length) = :id", asked) if name else []
        )
        exact = [job for job in found if job.id == name]
        if len(exact or found) != 1:
            what = "more than one job begins with" if found else "no job"
            raise ConfigError(f"{what} {name!r}", hint="`labctl queue` shows the jobs")
        return (exact or found)[0]

    def now(self) -> float:
        """Return the time by the database's clock. At least one job must exist."""
        return float(self._state.ask(f"SELECT {self._state.now}", {})[0][0])

    def cancel(self, job: str, reason: str) -> Job:
        """Cancel a waiting job, or ask the worker of a running job to stop it; return it.

        A damaged job is removed. A job that its worker last renewed by a clock years ahead ends at
        once. Raises ConfigError if the job has ended.
        """
        why = short_line(reason) or ""

        def change(connection: "Connection") -> Job:
            found = job_in(connection, job)
            if found.damaged:
                _remove(connection, [job])
                return replace(found, state="cancelled", reason=why)
            is_ahead = (found.expires or 0.0) > self._now(connection) + _AHEAD_SECONDS
            if found.state == "waiting" or (found.state == "running" and is_ahead):
                end(connection, found, self._now(connection), why, state="cancelled")
                if found.state == "waiting" and found.expires is not None:
                    keep_board(connection, found, found.expires)
            elif found.state == "running":
                update(connection, job, stop=why)
            else:
                raise ConfigError(f"job {job} is {found.state}: nothing to cancel")
            return job_in(connection, job)

        return self._state.change(change)

    def expect(self, job: str, seconds: float) -> None:
        """Record the expected duration (s) of a job."""
        self._state.change(lambda connection: update(connection, job, expected_seconds=seconds))

    def move(self, job: str, *, priority: int | None = None, first: bool = False) -> Job:
        """Change the priority of a waiting job, or move it to the front. Raises ConfigError.

        The waiting jobs of its unit move with it, in their order.
        """

        def change(connection: "Connection") -> Job:
            found = job_in(connection, job)
            if not found.waits:
                what = found.damaged or found.state
                raise ConfigError(f"job {job} is {what}: only a waiting job can be moved")
            position = found.position
            if first:
                question = select("MIN(position)", "job", _SOUND_PLACE)
                ((least,),) = sql.asker(connection)(question, {})
                position = min(least or 0.0, 0.0) - 1.0
            other = found.priority if priority is None else priority
            if found.unit is None:
                update(connection, job, priority=other, position=position)
                return job_in(connection, job)
            of_unit = left_of_unit(connection, found)
            for place, one in enumerate(of_unit, -len(of_unit)):
                moved = position + place if first else one.position
                update(connection, one.id, priority=other, position=moved)
            return job_in(connection, job)

        return self._state.change(change)

    def free_lost(self) -> None:
        """Let the jobs of lost workers wait again."""
        if self._state.asking(lambda ask: any(lost_jobs(ask, self._asked_now(ask)))):
            self._state.change(lambda connection: free_lost(connection, self._now(connection)))

    def wanted_boards(self) -> set[tuple[str, UseKind]]:
        """Return each board that a waiting job or a lost worker's job may use, with the kind."""
        now = self._state.now
        kinds = self._kinds(
            f"runner = 'worker' AND {IN_FORCE.replace(':now', now)} AND"
            f" (state = 'waiting' OR (state = 'running' AND expires < {now}))"
        )
        return {(board, kind) for kind, boards in kinds for board in boards}

    def claim(
        self,
        boards: Sequence[str],
        worker: str,
        *,
        suits: Callable[[], Suits] = lambda: _always,
        group: str | None = None,
    ) -> Sequence[Job]:
        """Give free boards to the next jobs; return this worker's new running jobs.

        ``suits`` is called at the start of each try, because its function may count admitted jobs.

        Before that, jobs of lost workers wait again. A board stays free for its next job if that
        job waits in the foreground, or is not of the given ``group``. A job is skipped if its user
        may not have the board for the job's maximum duration; its ``reason`` then says why.
        """
        from labctl.state.claims import Claim

        return Claim(self._state, boards, worker, suits, group=group).jobs() if boards else []

    def claim_own(self, job: str, boards: Sequence[str], worker: str) -> Job | None:
        """Give a free board to a job of this process, if it is its turn.

        Jobs that no process can run now do not come before it, for example without a worker. This
        also renews the wait; the job keeps its place even if the database was unreachable for
        renewals. Raises LeaseLost if somebody cancelled the job.
        """
        from labctl.state.claims import Claim

        claimed = Claim(self._state, boards, worker, self._run_by_somebody, own=job).jobs()
        return claimed[0] if claimed else None

    def _run_by_somebody(self) -> Suits:
        """Return a function: False if no process runs the job on the board."""
        left: dict[str, list[Collection[str]]] = {}
        workers = Workers(self._state)
        for worker in workers.list():
            for board in worker.boards if worker.is_alive else ():
                left.setdefault(board, []).append(worker.leaves)
        groups = workers.of_groups()

        def suits(job: Waiting, board: str) -> bool:
            owner = groups.get(job.group or "")
            if job.is_foreground or (owner is not None and owner.runs(job, board)):
                return True
            return any(
                not any(one in leaves for one in (job.id, *job.contents))
                for leaves in left.get(board, ())
            )

        return suits

    def renew(self, worker: str) -> Sequence[Job]:
        """Record a sign of life of a worker; return its jobs that have to stop."""

        def change(connection: "Connection") -> None:
            renew(connection, worker, self._now(connection) + self._state.lease_seconds)

        self._state.change(change)
        return self.to_stop(worker)

    def attempts(self, worker: str) -> Mapping[str, str | None]:
        """Return the jobs of a worker -> why they must stop; None if they may continue."""
        question = "SELECT id, stop FROM job WHERE worker = :worker AND state = 'running'"
        rows = self._state.ask(question, {"worker": worker})
        found = (read("job", ("id", "stop"), row)[0] for row in rows)
        return {one["id"]: one["stop"] for one in found}

    def waiting(self, boards: Sequence[str]) -> Sequence[Waiting]:
        """Return the jobs that may begin on any of these boards."""
        return [one for one, _ in self._state.asking(self._waiting_for(boards))]

    def remaining(self) -> Mapping[str, float]:
        """Return board -> expected time (s) until the job that runs on it ends."""
        return self._state.asking(lambda ask: remaining(ask, self._asked_now(ask)))

    def follows(self, job: Job) -> bool:
        """Return True if a job of the same unit has ended on the job's board."""
        return self._state.asking(lambda ask: follows(ask, job))

    def _waiting_for(
        self, boards: Sequence[str]
    ) -> Callable[["Ask"], Sequence[tuple[Waiting, str | None]]]:
        return lambda ask: waiting_for(ask, self._asked_now(ask), boards)

    def waiting_contents(self, boards: Sequence[str]) -> Mapping[tuple[str, str], str]:
        """Return (kind, SHA-256) of each content that waits for a worker -> a job that has it.

        Only jobs that may run on any of these boards.
        """
        names = ("kind", "request", "boards", "id")

        def found(ask: "Ask") -> Mapping[tuple[str, str], str]:
            named = sql.rows_of(
                ask, "SELECT DISTINCT sha256 FROM board_list WHERE board IN", boards
            )
            wanted = {digest for (digest,) in named}
            rows = ask(_CONTENTS, {"now": self._asked_now(ask)}) if wanted else []
            read_rows = [read("job", names, row) for row in rows]
            return {
                (one["kind"], one["request"]): one["id"]
                for one, damaged in read_rows
                if not damaged and one["boards"] in wanted
            }

        return self._state.asking(found)

    def to_stop(self, worker: str) -> Sequence[Job]:
        """Return the running jobs of a worker that have to stop."""
        where = "worker = :worker AND state = 'running' AND stop IS NOT NULL"
        found = self._state.asking(lambda ask: jobs_where(ask, where, {"worker": worker}))
        return [job for job in found if not job.damaged]

    def start(self, job: Job, run: str) -> Job:
        """Record a job's run before the run begins. Raises LeaseLost if the attempt was lost."""

        def change(connection: "Connection") -> Job:
            self._check(connection, job)
            update(connection, job.id, run=run)
            return job_in(connection, job.id)

        return self._state.change(change)

    def finish(
        self,
        job: Job,
        exit_status: int,
        *,
        blame: Blame | None = None,
        reason: str | None = None,
        state: Literal["done", "cancelled"] = "done",
    ) -> Job:
        """End a job. Raises LeaseLost if the attempt was lost: another attempt has the job."""

        def change(connection: "Connection") -> Job:
            found, now = self._check(connection, job), self._now(connection)
            keep_board(connection, found, now + KEPT_LEASES * self._state.lease_seconds)
            return end(
                connection, found, now, reason, state=state, exit_status=exit_status, blame=blame
            )

        return self._state.change(change)

    def requeue(
        self, job: Job, reason: str, *, blame_board: bool = True, counted: bool = True
    ) -> Job:
        """Let an interrupted job wait again, or end it after too many failures.

        With ``blame_board`` the board broke: the job goes to a board on which it was not tried yet,
        if any is left; it may itself be to blame by the rule of :mod:`labctl.state.blame`. With
        ``counted`` False, the attempt did not happen or was stopped, and is not a failure. Raises
        LeaseLost as :meth:`finish` does.
        """

        def change(connection: "Connection") -> Job:
            found, now = self._check(connection, job), self._now(connection)
            until = now + self._state.lease_seconds
            wait_again(
                connection, found, now, reason, until, blame_board=blame_board, counted=counted
            )
            return job_in(connection, job.id)

        return self._state.change(change)

    def step_aside(self, job: Job, reason: str) -> None:
        """Free the board of a process's job for other jobs; :meth:`claim_own` takes a board again.

        The job keeps its place, but other jobs do not wait for it. Its attempt does not count.
        Raises LeaseLost as :meth:`finish` does, and if the job was cancelled.
        """

        def change(connection: "Connection") -> None:
            found, now = self._check(connection, job), self._now(connection)
            if found.stop is not None:
                raise LeaseLost(f"job {job.id} is cancelled: {found.stop}")
            update(
                connection,
                job.id,
                state="waiting",
                board=None,
                attempts=job.attempts - 1,
                reason=short_line(reason),
                expires=now + self._state.lease_seconds,
            )

        self._state.change(change)

    def _check(self, connection: "Connection", job: Job) -> Job:
        """Return a job as it is now. Raises LeaseLost if this attempt is over."""
        found = jobs_of(sql.asker(connection), {job.id}).get(job.id)
        if found is None:
            raise LeaseLost(f"job {job.id} is gone: the database no longer has it")
        if (found.state, found.attempts) != ("running", job.attempts):
            raise LeaseLost(
                f"attempt {job.attempts} of job {job.id} was lost: it is {found.state}, attempt"
                f" {found.attempts}"
            )
        return found

    def _kinds(self, where: str) -> Sequence[tuple[UseKind, tuple[str, ...]]]:
        """Return kinds and boards of jobs that are not damaged, each pair once."""

        def answer(ask: "Ask") -> Sequence[tuple[UseKind, tuple[str, ...]]]:
            rows = ask(select("DISTINCT kind, boards", "job", where), {})
            found = [read("job", ("kind", "boards"), row) for row in rows]
            sound = [(one["kind"], one["boards"]) for one, damaged in found if not damaged]
            lists = boards_of(ask, {boards for _, boards in sound})
            return [(kind, lists.get(boards, ())) for kind, boards in sound]

        return self._state.asking(answer)

    def _now(self, connection: "Connection") -> float:
        return self._asked_now(sql.asker(connection))

    def _asked_now(self, ask: "Ask") -> float:
        rows = ask(f"SELECT {self._state.now}", {})
        return float(rows[0][0]) if rows else 0.0


def _always(_job: Waiting, _board: str) -> bool:
    return True


def remove_old(connection: "Connection", now: float) -> None:
    """Remove some of the jobs that ended long ago, or wait in a group whose owner left long ago."""
    before = {"before": now - _KEPT_SECONDS}
    ask = sql.asker(connection)
    if old := [str(job) for question in _OLD for (job,) in ask(question, before)]:
        from labctl.state.statements import DROP_GROUPS

        _remove(connection, old)
        connection.execute(DROP_GROUPS, before)


def _remove(connection: "Connection", jobs: Sequence[str]) -> None:
    """Remove jobs, and their contents and lists of boards that no other job uses."""
    ask = sql.asker(connection)
    shared = sql.rows_of(ask, "SELECT request, boards FROM job WHERE id IN", jobs)
    for job in jobs:
        sql.delete(connection, "job", {"id": job})
    drop_unused(connection, {one[0] for one in shared}, {one[1] for one in shared})
