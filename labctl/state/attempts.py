"""Attempts of jobs: they are renewed, lost with their worker, and made again.

Between two jobs of a unit nobody else gets its board, until a time that no process can extend. A
unit that is broken off later *continues* on the same board, or, in a group that *restarts* its
units, its jobs are cancelled: the group's owner submits others.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from labctl.state import sql
from labctl.state.blame import given_up, note_broken
from labctl.state.job import Job, end, jobs_where, update
from labctl.state.job_parts import store_boards
from labctl.state.tables import short_line, stored_names

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.database.base import Ask

#: A job is given up after this number of interruptions by infrastructure.
MOST_FAILURES = 3
#: Why a job ended whose process gave no sign of life.
LEFT = "its labctl gave no sign of life"


def renew(connection: "Connection", worker: str, expires: float) -> None:
    """Extend all attempts of a worker, and the groups that it owns and has not left.

    So it does for a job of a process that waits while its inputs are fetched.
    """
    from labctl.state.statements import RENEW_GROUPS, RENEW_JOBS

    values = {"of_worker": worker, "until": expires}
    connection.execute(RENEW_JOBS, values)
    connection.execute(RENEW_GROUPS, values)


def lost_jobs(ask: "Ask", now: float) -> Sequence[Job]:
    """Return the jobs of dead workers and processes. Damaged ones stay until somebody acts."""
    found = jobs_where(ask, "expires < :now AND state IN ('running', 'waiting')", {"now": now})
    return [job for job in found if not job.damaged]


def free_lost(connection: "Connection", now: float) -> None:
    """Requeue jobs of dead workers; end those that nobody else runs."""
    for job in lost_jobs(sql.asker(connection), now):
        if job.runner != "worker":
            end(connection, job, now, LEFT, state="cancelled")
        elif job.state == "waiting":
            _let_go(connection, job, now)
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
    if _is_cut(connection, job):
        _cancel_unit(connection, job, now, f"broken off between its jobs: {reason}")
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


def keep_board(connection: "Connection", job: Job, until: float) -> None:
    """Keep the board of a job that ended for the next one of its unit; the others stay there."""
    if job.unit is None or job.board is None:
        return
    boards = store_boards(connection, (job.board,))
    for place, one in enumerate(left_of_unit(connection, job)):
        kept = {"board": job.board, "expires": until} if place == 0 else {}
        update(connection, one.id, boards=boards, tried=stored_names(()), **kept)


def _let_go(connection: "Connection", job: Job, now: float) -> None:
    """Keep a board no longer for the next job of a unit."""
    if _is_cut(connection, job):
        _cancel_unit(connection, job, now, "its board was kept for it in vain")
    else:
        update(connection, job.id, board=None, expires=None)


def _is_cut(connection: "Connection", job: Job) -> bool:
    """Return True if a job's unit is to restart: a job of it has ended."""
    question = (
        "SELECT 1 FROM job JOIN job_group ON job_group.id = job.group_id"
        " WHERE unit = :unit AND restarts <> 0 AND state IN ('done', 'cancelled')"
    )
    return bool(job.unit and sql.asker(connection)(question, {"unit": job.unit}))


def _cancel_unit(connection: "Connection", job: Job, now: float, reason: str) -> None:
    for one in (job, *(left for left in left_of_unit(connection, job) if left.id != job.id)):
        end(connection, one, now, reason, state="cancelled")


def left_of_unit(connection: "Connection", job: Job) -> Sequence[Job]:
    """Return the waiting jobs of a unit, in their order."""
    waits, asked = "unit = :unit AND state = 'waiting'", {"unit": job.unit}
    return jobs_where(sql.asker(connection), waits, asked, order="position, id")
