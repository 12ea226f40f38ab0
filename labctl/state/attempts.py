"""Attempts of jobs: attempts are renewed, lost with their worker, and retried.

Between two jobs of a unit its board is kept for it, until a time that no process can extend. A unit
interrupted later *continues* on the same board. In a group that *restarts* its units, the unit's
jobs are cancelled instead, and the group's owner submits new ones.
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
#: End reason of a job whose process gave no sign of life.
LEFT = "its labctl gave no sign of life"


def renew(connection: "Connection", worker: str, expires: float) -> None:
    """Extend all attempts of a worker, and the groups that the worker owns and has not left.

    Also extends the job of a process that waits while the job's inputs are fetched.
    """
    from labctl.state.statements import RENEW_GROUPS, RENEW_JOBS

    values = {"of_worker": worker, "until": expires}
    connection.execute(RENEW_JOBS, values)
    connection.execute(RENEW_GROUPS, values)


def lost_jobs(ask: "Ask", now: float) -> Sequence[Job]:
    """Return the jobs of dead workers and processes. Damaged jobs stay until a person acts."""
    found = jobs_where(ask, "expires < :now AND state IN ('running', 'waiting')", {"now": now})
    return [job for job in found if not job.damaged]


def free_lost(connection: "Connection", now: float) -> None:
    """Requeue jobs of dead workers; end jobs that no other process runs."""
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
    """Let an interrupted job wait again, or end it: see :meth:`labctl.state.jobs.Jobs.requeue`.

    ``until``: time from which a job that waits in its own process counts as left.
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
        tried = set()  # all boards were tried; they may be well again
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
    """Keep an ended job's board for the next job of its unit; later jobs stay there too."""
    if job.unit is None or job.board is None:
        return
    boards = store_boards(connection, (job.board,))
    for place, one in enumerate(left_of_unit(connection, job)):
        kept = {"board": job.board, "expires": until} if place == 0 else {}
        update(connection, one.id, boards=boards, tried=stored_names(()), **kept)


def _let_go(connection: "Connection", job: Job, now: float) -> None:
    """Stop keeping a board for the next job of a unit."""
    if _is_cut(connection, job):
        _cancel_unit(connection, job, now, "its board was kept for it in vain")
    else:
        update(connection, job.id, board=None, expires=None)


def _is_cut(connection: "Connection", job: Job) -> bool:
    """Return True if a job's unit has to restart: one of its jobs has ended."""
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
