"""Attempts of jobs: they are renewed, lost with their worker, and made again."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from labctl.state import sql
from labctl.state.blame import given_up, note_broken
from labctl.state.job import Job, end, jobs_where, update
from labctl.state.tables import short_line, stored_names

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.database.base import Ask

#: A job is given up after this number of interruptions by infrastructure.
MOST_FAILURES = 3
#: Why a job ended whose process gave no sign of life.
LEFT = "its labctl gave no sign of life"


def renew(connection: "Connection", worker: str, expires: float) -> None:
    """Extend all attempts of a worker."""
    question = "UPDATE job SET expires = :expires WHERE worker = :worker AND state = 'running'"
    sql.run(connection, question, {"worker": worker, "expires": expires})


def lost_jobs(ask: "Ask", now: float) -> Sequence[Job]:
    """Return the jobs of dead workers and processes. Damaged ones stay until somebody acts."""
    found = jobs_where(ask, "expires < :now AND state IN ('running', 'waiting')", {"now": now})
    return [job for job in found if not job.damaged]


def free_lost(connection: "Connection", now: float) -> None:
    """Requeue jobs of dead workers; end those that nobody else runs."""
    for job in lost_jobs(sql.asker(connection), now):
        if job.runner != "worker":
            end(connection, job, now, LEFT, state="cancelled")
        else:
            reason = f"its worker {job.worker} gave no sign of life"
            wait_again(connection, job, now, reason, None, blame_board=False)


def wait_again(
    connection: "Connection",
    job: Job,
    now: float,
    reason: str,
    until: float | None,
    *,
    blame_board: bool,
    counted: bool = True,
) -> None:
    """Let an interrupted job wait again, or end it: as :meth:`labctl.state.jobs.Jobs.requeue`.

    ``until`` is when a job that waits in its own process counts as left.
    """
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
        tried=stored_names(sorted(tried)),
        reason=reason,
        failures=failures,
        expires=until if job.runner == "process" else None,
    )
