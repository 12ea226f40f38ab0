"""Jobs: the queue of a lab. A job waits, runs on one board under one worker, and ends once.

Each attempt has a number. Its worker renews it; an attempt that is not renewed was lost with its
worker, and the job waits again. Later reports of an older attempt are refused. Only the database's
clock counts. The order of jobs: :mod:`labctl.state.job_order`.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from labctl.errors import Blame, ConfigError, LeaseLost
from labctl.state import sql
from labctl.state.blame import given_up, note_broken
from labctl.state.job import COLUMNS, NAMES, Job, NewJob, job_of, waiting_of
from labctl.state.job_order import Waiting, in_order
from labctl.state.workers import Workers

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.state.sql import StateDatabase

#: A job is given up after this number of interruptions by infrastructure.
MOST_FAILURES = 3


class Jobs:
    """All jobs of a lab. Methods raise HostError and ConfigError as the database does."""

    def __init__(self, state: "StateDatabase"):
        self._state = state

    def submit(self, *jobs: NewJob) -> Sequence[Job]:
        """Append jobs to the queue, in this order and all at once; existing ids are kept."""
        with self._state.changing() as connection:
            now, seconds = self._now(connection), self._state.lease_seconds
            last = sql.rows(connection, "SELECT MAX(position) AS last FROM job")[0]["last"] or 0.0
            for number, job in enumerate(jobs, 1):
                if not job.boards:
                    raise ConfigError(f"job {job.name}: no board is given")
                values: dict[str, Any] = dict.fromkeys(NAMES) | {
                    "id": job.id,
                    "kind": job.kind,
                    "name": job.name,
                    "request": json.dumps(job.request),
                    "boards": json.dumps(job.boards),
                    "tried": "[]",
                    "broken": "{}",
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
                places = ", ".join(f":{name}" for name in NAMES)
                sql.run(
                    connection,
                    f"INSERT INTO job ({COLUMNS}) VALUES ({places}) ON CONFLICT DO NOTHING",
                    values,
                )
            return [_get(connection, job.id) for job in jobs]

    def list(self, *, ended: int = 0) -> Sequence[Job]:
        """Return running jobs, waiting jobs in order, then the last ``ended`` jobs that ended."""
        question = f"SELECT {COLUMNS} FROM job WHERE state"
        rows = self._state.ask(f"{question} IN ('running', 'waiting')", {})
        known = {job.id: job for job in map(job_of, rows)}
        running = sorted(
            (job for job in known.values() if job.state == "running"),
            key=lambda job: job.started_at or 0.0,
        )
        waiting = [job for job in known.values() if job.state == "waiting"]
        users = Counter(job.submitter for job in running)
        ordered = [known[job.id] for job in in_order([waiting_of(job) for job in waiting], users)]
        over = self._state.ask(
            f"{question} IN ('done', 'cancelled') ORDER BY ended_at DESC, id LIMIT :ended",
            {"ended": ended},
        )
        return [*running, *ordered, *map(job_of, over)]

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

        Raises ConfigError if it has ended.
        """
        with self._state.changing() as connection:
            found = _get(connection, job)
            if found.state == "waiting":
                _end(connection, found, self._now(connection), reason, state="cancelled")
            elif found.state == "running":
                _update(connection, job, stop=reason)
            else:
                raise ConfigError(f"job {job} is {found.state}: nothing to cancel")
            return _get(connection, job)

    def move(self, job: str, *, priority: int | None = None, first: bool = False) -> Job:
        """Give a waiting job another priority, or the first place. Raises ConfigError."""
        with self._state.changing() as connection:
            found = _get(connection, job)
            if found.state != "waiting":
                raise ConfigError(f"job {job} is {found.state}: only a waiting job can be moved")
            position = found.position
            if first:
                (row,) = sql.rows(connection, "SELECT MIN(position) AS least FROM job")
                position = min(row["least"], 0.0) - 1.0
            priority = found.priority if priority is None else priority
            _update(connection, job, priority=priority, position=position)
            return _get(connection, job)

    def free_lost(self) -> None:
        """Let the jobs of lost workers wait again."""
        lost = f"SELECT id FROM job WHERE state = 'running' AND expires < {self._state.now}"
        if self._state.ask(lost, {}):
            with self._state.changing() as connection:
                _free_lost(connection, self._now(connection))

    def wanted_boards(self) -> set[tuple[str, str]]:
        """Return each board that a waiting job or a job of a lost worker may use, with the kind."""
        rows = self._state.ask(
            "SELECT kind, boards FROM job WHERE kind <> 'foreground' AND"
            f" (state = 'waiting' OR (state = 'running' AND expires < {self._state.now}))",
            {},
        )
        return {(board, kind) for kind, boards in rows for board in json.loads(boards)}

    def somebody_waits(self, boards: Sequence[str]) -> bool:
        """Return True if a job waits for one of these boards and can still be run."""
        rows = self._state.ask(
            "SELECT kind, boards FROM job WHERE state = 'waiting'"
            f" AND (kind <> 'foreground' OR expires >= {self._state.now})",
            {},
        )
        found = [(kind, {*json.loads(names)}) for kind, names in rows]
        waiting = [(kind, names) for kind, names in found if names & {*boards}]
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
        suits: Callable[[Waiting, str], bool] = lambda _job, _board: True,
    ) -> Sequence[Job]:
        """Give free boards to the next jobs; return the jobs of this worker, now running.

        Before that, jobs of lost workers wait again. A board whose next job waits in the foreground
        is kept free for it. A job is skipped if its user may not have the board for the job's
        maximum duration; its ``reason`` then says why.
        """
        if not boards:
            return []
        with self._state.changing() as connection:
            return self._claim(connection, boards, worker, suits, None)

    def claim_own(self, job: str, boards: Sequence[str], worker: str) -> Job | None:
        """Give a free board to a foreground job, if it is its turn.

        The caller has checked the health of the boards. This also renews the wait. Raises LeaseLost
        if the job was cancelled, or not renewed.
        """
        with self._state.changing() as connection:
            now = self._now(connection)
            sql.run(
                connection,
                "UPDATE job SET expires = :expires WHERE id = :id AND state = 'waiting'",
                {"id": job, "expires": now + self._state.lease_seconds},
            )
            found = _get(connection, job)
            if found.state != "waiting":
                raise LeaseLost(f"job {job} is {found.state}: {found.reason}")
            claimed = self._claim(connection, boards, worker, lambda _job, _board: True, job)
            return claimed[0] if claimed else None

    def renew(self, worker: str) -> Sequence[Job]:
        """Record a sign of life of a worker; return its jobs that have to stop."""
        with self._state.changing() as connection:
            _renew(connection, worker, self._now(connection) + self._state.lease_seconds)
        return self.to_stop(worker)

    def to_stop(self, worker: str) -> Sequence[Job]:
        """Return the running jobs of a worker that have to stop."""
        rows = self._state.ask(
            f"SELECT {COLUMNS} FROM job WHERE worker = :worker AND state = 'running'"
            " AND stop IS NOT NULL",
            {"worker": worker},
        )
        return [job_of(row) for row in rows]

    def start(self, job: Job, run: str) -> Job:
        """Record the run of a job before it begins. Raises LeaseLost if the attempt was lost."""
        with self._state.changing() as connection:
            self._check(connection, job)
            _update(connection, job.id, run=run)
            return _get(connection, job.id)

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
        with self._state.changing() as connection:
            self._check(connection, job)
            now = self._now(connection)
            _end(connection, job, now, reason, state=state, exit_status=exit_status, blame=blame)
            return _get(connection, job.id)

    def requeue(
        self, job: Job, reason: str, *, blame_board: bool = True, counted: bool = True
    ) -> Job:
        """Let an interrupted job wait again, or end it after too many failures.

        With ``blame_board`` the board broke: the job goes to a board on which it was not tried, as
        long as there is one, and is itself to blame by the rule of :mod:`labctl.state.blame`. An
        attempt that did not happen or was stopped is not ``counted``. Raises LeaseLost as
        :meth:`finish` does.
        """
        with self._state.changing() as connection:
            found, now = self._check(connection, job), self._now(connection)
            until = now + self._state.lease_seconds
            _again(connection, found, now, reason, until, blame_board=blame_board, counted=counted)
            return _get(connection, job.id)

    def _check(self, connection: "Connection", job: Job) -> Job:
        """Return a job as it is now. Raises LeaseLost if this attempt is over."""
        if not sql.rows(connection, "SELECT id FROM job WHERE id = :id", {"id": job.id}):
            raise LeaseLost(f"job {job.id} is gone: the database no longer has it")
        found = _get(connection, job.id)
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
        suits: Callable[[Waiting, str], bool],
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
        ]
        for job, board in claimed:
            _update(
                connection,
                job,
                state="running",
                board=board,
                worker=worker,
                attempts=_get(connection, job).attempts + 1,
                started_at=now,
                expires=now + self._state.lease_seconds,
                reason=None,
            )
        return [_get(connection, job) for job, _ in claimed]

    def _now(self, connection: "Connection") -> float:
        return float(sql.rows(connection, f"SELECT {self._state.now} AS now")[0]["now"])


def _renew(connection: "Connection", worker: str, expires: float) -> None:
    question = "UPDATE job SET expires = :expires WHERE worker = :worker AND state = 'running'"
    sql.run(connection, question, {"worker": worker, "expires": expires})


def _free_lost(connection: "Connection", now: float) -> None:
    """Requeue jobs of dead workers; end foreground jobs of dead processes."""
    question = f"SELECT {COLUMNS} FROM job WHERE expires < :now AND state IN ('running','waiting')"
    for row in sql.rows(connection, question, {"now": now}):
        job = job_of(tuple(row.values()))
        if job.kind == "foreground":
            reason = "its labctl no longer waits"
            _end(connection, job, now, reason, state="cancelled")
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
    if job.stop is not None:
        _end(connection, job, now, job.stop, state="cancelled")
        return
    failures = job.failures + counted
    if blame_board and job.board:
        job = note_broken(connection, job, job.board, now)
    if failures >= MOST_FAILURES:
        status, blame, reason = given_up(connection, job, failures, reason)
        _end(connection, job, now, reason, exit_status=status, blame=blame)
        return
    tried = {*job.tried, job.board} if blame_board and job.board else set(job.tried)
    if tried >= set(job.boards):
        tried = set()  # all were tried; they may be well again
    _update(
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


def _end(
    connection: "Connection",
    job: Job,
    now: float,
    reason: str | None,
    *,
    state: Literal["done", "cancelled"] = "done",
    exit_status: int | None = None,
    blame: Blame | None = None,
) -> None:
    _update(
        connection,
        job.id,
        state=state,
        ended_at=now,
        exit_status=exit_status,
        blame=blame,
        reason=reason,
        expires=None,
    )


def _update(connection: "Connection", job: str, **values: object) -> None:
    """Give columns of a job new values."""
    changes = ", ".join(f"{column} = :{column}" for column in values)
    sql.run(connection, f"UPDATE job SET {changes} WHERE id = :id", {"id": job, **values})


def _get(connection: "Connection", job: str) -> Job:
    rows = sql.rows(connection, f"SELECT {COLUMNS} FROM job WHERE id = :id", {"id": job})
    if not rows:
        raise ConfigError(f"no job {job!r}", hint="`labctl queue` shows the jobs")
    return job_of(tuple(rows[0].values()))
