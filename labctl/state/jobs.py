"""Jobs: the queue of a lab. A job waits, runs on one board under one worker, and ends once.

Each attempt has a number. Its worker renews it; an attempt that is not renewed was lost with its
worker, and the job waits again. Later reports of an older attempt are refused. Only the database's
clock counts. The order of jobs: :mod:`labctl.state.job_order`.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from labctl.errors import Blame, ConfigError, LeaseLost
from labctl.state import sql
from labctl.state.blame import given_up, note_broken
from labctl.state.job import COLUMNS, NAMES, Job, NewJob, end, job_in, job_of, update, waiting_of
from labctl.state.job_order import Suits, Waiting, in_order
from labctl.state.tables import MOST_WHOLE, insert, read, short_line
from labctl.state.workers import Workers

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.state.sql import StateDatabase

#: A job is given up after this number of interruptions by infrastructure.
MOST_FAILURES = 3
#: No worker renews an attempt for this time (s).
_AHEAD_SECONDS = 86_400.0
#: Damaged or of an unknown state, a job has not ended.
_NOT_ENDED = "COALESCE(state, '') NOT IN ('done', 'cancelled')"
_SOUND_PLACE = f"position BETWEEN {-MOST_WHOLE} AND {MOST_WHOLE - 1}"
#: Why a foreground job ended whose process gave no sign of life.
_LEFT = "its labctl no longer waits"


class Jobs:
    """All jobs of a lab. Methods raise HostError and ConfigError as the database does."""

    def __init__(self, state: "StateDatabase"):
        self._state = state

    def submit(self, *jobs: NewJob) -> Sequence[Job]:
        """Append jobs to the queue, in this order and all at once; existing ids are kept."""

        def change(connection: "Connection") -> Sequence[Job]:
            now, seconds = self._now(connection), self._state.lease_seconds
            question = f"SELECT MAX(position) AS last FROM job WHERE {_SOUND_PLACE}"
            last = sql.rows(connection, question)[0]["last"] or 0.0
            for number, job in enumerate(jobs, 1):
                if not job.boards:
                    raise ConfigError(f"job {job.name}: no board is given")
                values: dict[str, Any] = dict.fromkeys(NAMES) | {
                    "id": job.id,
                    "kind": job.kind,
                    "name": short_line(job.name) or "",
                    "request": json.dumps(job.request),
                    "boards": json.dumps(job.boards),
                    "tried": "[]",
                    "broken": "{}",
                    "uses": json.dumps(job.uses),
                    "priority": job.priority,
                    "position": max(last, 0.0) + number,
                    "submitter": job.submitter,
                    "submitted_at": now,
                    "expected_seconds": job.expected_seconds,
                    "max_seconds": job.max_seconds,
                    "state": "waiting",
                    "attempts": 0,
                    "failures": 0,
                    "expires": now + seconds if job.kind == "foreground" else None,
                }
                insert(connection, "job", values, "ON CONFLICT DO NOTHING")
            return [job_in(connection, job.id) for job in jobs]

        return self._state.change(change)

    def list(self, *, ended: int = 0) -> Sequence[Job]:
        """Return running jobs, waiting jobs in order, then the last ``ended`` jobs that ended.

        Damaged jobs that have not ended are among the running ones or after the waiting ones.
        """
        question = f"SELECT {COLUMNS} FROM job WHERE"
        found = [*map(job_of, self._state.ask(f"{question} {_NOT_ENDED}", {}))]
        running = sorted(
            (job for job in found if job.state == "running"),
            key=lambda job: job.started_at or 0.0,
        )
        waiting = [job for job in found if job.waits]
        damaged = [job for job in found if job.state != "running" and job.damaged]
        known = {job.id: job for job in waiting}
        users = Counter(job.submitter for job in running)
        ordered = [known[job.id] for job in in_order([waiting_of(job) for job in waiting], users)]
        over = self._state.ask(
            f"{question} state IN ('done', 'cancelled') ORDER BY ended_at DESC, id LIMIT :ended",
            {"ended": ended},
        )
        return [*running, *ordered, *damaged, *map(job_of, over)]

    def get(self, job: str) -> Job | None:
        """Return a job by its id; None if there is none."""
        rows = self._state.ask(f"SELECT {COLUMNS} FROM job WHERE id = :id", {"id": job})
        return job_of(rows[0]) if rows else None

    def find(self, name: str) -> Job:
        """Return a job by its id or by the start of its id. Raises ConfigError."""
        rows = self._state.ask(
            f"SELECT {COLUMNS} FROM job WHERE substr(id, 1, :length) = :id",
            {"id": name, "length": len(name)},
        )
        found = [job for job in map(job_of, rows) if name]
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

        A damaged job is removed. One that its worker last renewed by a clock years ahead ends at
        once. Raises ConfigError if it has ended.
        """
        why = short_line(reason) or ""

        def change(connection: "Connection") -> Job:
            found = job_in(connection, job)
            if found.damaged:
                sql.run(connection, "DELETE FROM job WHERE id = :id", {"id": job})
                return replace(found, state="cancelled", reason=why)
            is_ahead = (found.expires or 0.0) > self._now(connection) + _AHEAD_SECONDS
            if found.state == "waiting" or (found.state == "running" and is_ahead):
                end(connection, found, self._now(connection), why, state="cancelled")
            elif found.state == "running":
                update(connection, job, stop=why)
            else:
                raise ConfigError(f"job {job} is {found.state}: nothing to cancel")
            return job_in(connection, job)

        return self._state.change(change)

    def move(self, job: str, *, priority: int | None = None, first: bool = False) -> Job:
        """Give a waiting job another priority, or the first place. Raises ConfigError."""

        def change(connection: "Connection") -> Job:
            found = job_in(connection, job)
            if not found.waits:
                what = found.damaged or found.state
                raise ConfigError(f"job {job} is {what}: only a waiting job can be moved")
            position = found.position
            if first:
                question = f"SELECT MIN(position) AS least FROM job WHERE {_SOUND_PLACE}"
                position = min(sql.rows(connection, question)[0]["least"] or 0.0, 0.0) - 1.0
            other = found.priority if priority is None else priority
            update(connection, job, priority=other, position=position)
            return job_in(connection, job)

        return self._state.change(change)

    def free_lost(self) -> None:
        """Let the jobs of lost workers wait again."""
        lost = f"SELECT id FROM job WHERE state = 'running' AND expires < {self._state.now}"
        if self._state.ask(lost, {}):
            self._state.change(lambda connection: _free_lost(connection, self._now(connection)))

    def wanted_boards(self) -> set[tuple[str, str]]:
        """Return each board that a waiting job or a job of a lost worker may use, with the kind."""
        rows = self._state.ask(
            "SELECT kind, boards FROM job WHERE kind <> 'foreground' AND"
            f" (state = 'waiting' OR (state = 'running' AND expires < {self._state.now}))",
            {},
        )
        return {(board, kind) for kind, boards in _of_kinds(rows) for board in boards}

    def somebody_waits(self, boards: Sequence[str]) -> bool:
        """Return True if a job waits for one of these boards and can still be run."""
        rows = self._state.ask(
            "SELECT kind, boards FROM job WHERE state = 'waiting'"
            f" AND (kind <> 'foreground' OR expires >= {self._state.now})",
            {},
        )
        waiting = [(kind, {*names}) for kind, names in _of_kinds(rows) if {*names} & {*boards}]
        if not waiting or any(kind == "foreground" for kind, _ in waiting):
            return bool(waiting)
        workers = Workers(self._state).list()
        served = {board for one in workers if one.is_alive for board in one.boards}
        return any(names & served for _, names in waiting)

    def claim(
        self,
        boards: Sequence[str],
        worker: str,
        *,
        suits: Callable[[], Suits] = lambda: _always,
    ) -> Sequence[Job]:
        """Give free boards to the next jobs; return the jobs of this worker, now running.

        ``suits`` is called at the begin of each try, for its function may count what it admits.

        Before that, jobs of lost workers wait again. A board whose next job waits in the foreground
        is kept free for it. A job is skipped if its user may not have the board for the job's
        maximum duration; its ``reason`` then says why.
        """
        if not boards:
            return []

        return self._state.change(
            lambda connection: self._claim(connection, boards, worker, suits(), None)
        )

    def claim_own(self, job: str, boards: Sequence[str], worker: str) -> Job | None:
        """Give a free board to a foreground job, if it is its turn.

        The caller has checked the health of the boards. This also renews the wait: where nobody
        could renew it, since the database was away, the job keeps its place. Raises LeaseLost if
        somebody cancelled the job.
        """

        def change(connection: "Connection") -> Job | None:
            now = self._now(connection)
            sql.run(
                connection,
                "UPDATE job SET expires = :expires, state = 'waiting', ended_at = NULL"
                " WHERE id = :id AND (state = 'waiting'"
                " OR (state = 'cancelled' AND reason = :left))",
                {"id": job, "expires": now + self._state.lease_seconds, "left": _LEFT},
            )
            found = job_in(connection, job)
            if not found.waits:
                what = found.damaged or f"{found.state}: {found.reason}"
                raise LeaseLost(f"job {job} is {what}")
            claimed = self._claim(connection, boards, worker, _always, job)
            return claimed[0] if claimed else None

        return self._state.change(change)

    def renew(self, worker: str) -> Sequence[Job]:
        """Record a sign of life of a worker; return its jobs that have to stop."""

        def change(connection: "Connection") -> None:
            _renew(connection, worker, self._now(connection) + self._state.lease_seconds)

        self._state.change(change)
        return self.to_stop(worker)

    def running(self, worker: str) -> Sequence[Job]:
        """Return the jobs that a worker has now."""
        rows = self._state.ask(
            f"SELECT {COLUMNS} FROM job WHERE worker = :worker AND state = 'running'",
            {"worker": worker},
        )
        return [job for row in rows if not (job := job_of(row)).damaged]

    def to_stop(self, worker: str) -> Sequence[Job]:
        """Return the running jobs of a worker that have to stop."""
        return [job for job in self.running(worker) if job.stop is not None]

    def start(self, job: Job, run: str) -> Job:
        """Record the run of a job before it begins. Raises LeaseLost if the attempt was lost."""

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
        """End a job. Raises LeaseLost if the attempt was lost: another has the job."""

        def change(connection: "Connection") -> Job:
            self._check(connection, job)
            now = self._now(connection)
            end(connection, job, now, reason, state=state, exit_status=exit_status, blame=blame)
            return job_in(connection, job.id)

        return self._state.change(change)

    def requeue(
        self, job: Job, reason: str, *, blame_board: bool = True, counted: bool = True
    ) -> Job:
        """Let an interrupted job wait again, or end it after too many failures.

        With ``blame_board`` the board broke: the job goes to a board on which it was not tried, as
        long as there is one, and is itself to blame by the rule of :mod:`labctl.state.blame`. An
        attempt that did not happen or was stopped is not ``counted``. Raises LeaseLost as
        :meth:`finish` does.
        """

        def change(connection: "Connection") -> Job:
            found, now = self._check(connection, job), self._now(connection)
            until = now + self._state.lease_seconds
            _again(connection, found, now, reason, until, blame_board=blame_board, counted=counted)
            return job_in(connection, job.id)

        return self._state.change(change)

    def _check(self, connection: "Connection", job: Job) -> Job:
        """Return a job as it is now. Raises LeaseLost if this attempt is over."""
        if not sql.rows(connection, "SELECT id FROM job WHERE id = :id", {"id": job.id}):
            raise LeaseLost(f"job {job.id} is gone: the database no longer has it")
        found = job_in(connection, job.id)
        if (found.state, found.attempts) != ("running", job.attempts):
            raise LeaseLost(
                f"attempt {job.attempts} of job {job.id} was lost: it is {found.state}, attempt"
                f" {found.attempts}"
            )
        return found

    def _claim(
        self,
        connection: "Connection",
        boards: Sequence[str],
        worker: str,
        suits: Suits,
        own: str | None,
    ) -> Sequence[Job]:
        from labctl.state.admission import next_jobs

        now = self._now(connection)
        _renew(connection, worker, now + self._state.lease_seconds)  # a claim is a sign of life
        _free_lost(connection, now)
        question = "SELECT board FROM job WHERE state = 'running' AND worker <> :worker"
        rows = sql.rows(connection, question, {"worker": worker})  # may hold no lease yet
        taken = {row["board"] for row in rows}
        boards = [board for board in boards if board not in taken]
        claimed = [
            (job.id, board)
            for job, board in next_jobs(connection, now, boards, suits, self._state, own=own)
            if job.id == own or (own is None and not job.is_foreground)
            if not job_in(connection, job.id).damaged
        ]
        for job, board in claimed:
            update(
                connection,
                job,
                state="running",
                board=board,
                worker=worker,
                attempts=job_in(connection, job).attempts + 1,
                started_at=now,
                expires=now + self._state.lease_seconds,
                reason=None,
            )
        return [job_in(connection, job) for job, _ in claimed]

    def _now(self, connection: "Connection") -> float:
        return float(sql.rows(connection, f"SELECT {self._state.now} AS now")[0]["now"])


def _always(_job: Waiting, _board: str) -> bool:
    return True


def _of_kinds(rows: Sequence[Any]) -> list[tuple[str, tuple[str, ...]]]:
    """Return kind and boards of jobs that are not damaged."""
    found = [read("job", ("kind", "boards"), row) for row in rows]
    return [(values["kind"], values["boards"]) for values, damaged in found if not damaged]


def _renew(connection: "Connection", worker: str, expires: float) -> None:
    question = "UPDATE job SET expires = :expires WHERE worker = :worker AND state = 'running'"
    sql.run(connection, question, {"worker": worker, "expires": expires})


def _free_lost(connection: "Connection", now: float) -> None:
    """Requeue jobs of dead workers; end foreground jobs of dead processes."""
    question = f"SELECT {COLUMNS} FROM job WHERE expires < :now AND state IN ('running','waiting')"
    for row in sql.rows(connection, question, {"now": now}):
        job = job_of(tuple(row.values()))
        if job.damaged:
            continue  # it stays until somebody removes it
        if job.kind == "foreground":
            end(connection, job, now, _LEFT, state="cancelled")
        else:
            reason = f"its worker {job.worker} gave no sign of life"
            _again(connection, job, now, reason, None, blame_board=False)


def _again(
    connection: "Connection",
    job: Job,
    now: float,
    reason: str,
    until: float | None,
    *,
    blame_board: bool,
    counted: bool = True,
) -> None:
    reason = short_line(reason) or ""
    if job.stop is not None:
        end(connection, job, now, job.stop, state="cancelled")
        return
    failures = job.failures + counted
    if blame_board and job.board:
        job = note_broken(connection, job, job.board, now)
    if failures >= MOST_FAILURES:
        status, blame, reason = given_up(connection, job, failures, reason)
        end(connection, job, now, reason, exit_status=status, blame=blame)
        return
    tried = {*job.tried, job.board} if blame_board and job.board else set(job.tried)
    if tried >= set(job.boards):
        tried = set()  # all were tried; they may be well again
    update(
        connection,
        job.id,
        state="waiting",
        board=None,
        worker=None,
        tried=json.dumps(sorted(tried)),
        reason=reason,
        failures=failures,
        expires=until if job.kind == "foreground" else None,
    )
