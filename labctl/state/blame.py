"""Blame of a job during which boards broke: one rule for jobs of all sources.

The cause is the board itself, its host, or the job. The job is to blame if two or more boards broke
under it that were well before and are well now, while no board of another job broke. In all other
cases infrastructure is to blame: a cable may have been the cause.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING

from labctl.errors import Blame, ExitStatus
from labctl.state import sql
from labctl.state.tables import read

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.state.job import Job

#: One board may have broken by chance.
_LEAST_BOARDS = 2
#: Boards that break within this time (s) may have a shared cause.
_AT_ONCE_SECONDS = 60.0
#: Verdicts of checks, and results of jobs, that show whether a board is well.
_EVIDENCE = """
    SELECT at, value FROM board_event
    WHERE board = :board AND kind = 'check' AND value IN ('good', 'failing', 'host')
    UNION ALL
    SELECT ended_at AS at, 'good' AS value FROM job
    WHERE board = :board AND id <> :id AND state = 'done' AND started_at > :after
      AND exit_status IS NOT NULL AND (blame IS NULL OR blame = 'job')
"""


@dataclass(frozen=True)
class BrokenBoard:
    """A board that broke under a job. It is well if a check says so, or if it ran another job."""

    board: str
    was_well: bool
    is_well: bool
    #: A board broke under another job at the same time, or the host has a known fault.
    with_others: bool = False


def broken_by_job(boards: Iterable[BrokenBoard]) -> list[str]:
    """Return the boards that a job broke, in order; empty if infrastructure is to blame."""
    own = [one.board for one in boards if one.was_well and one.is_well and not one.with_others]
    return sorted(own) if len(own) >= _LEAST_BOARDS else []


def blame_reason(boards: Iterable[str], last: str) -> str:
    """Return why a job is to blame. ``last``: end of its last attempt."""
    return f"it broke {', '.join(boards)}, which were well before and are well now: {last}"


def note_broken(connection: "Connection", job: "Job", board: str, now: float) -> "Job":
    """Record that a board broke under a queued job; return the changed job."""
    noted = replace(job, broken={board: now, **job.broken})
    sql.update(connection, "job", {"id": job.id}, {"broken": json.dumps(noted.broken)})
    return noted


def given_up(
    connection: "Connection", job: "Job", attempts: int, last: str
) -> tuple[int, Blame, str]:
    """Return how a queued job ends after its last attempt, from the lab's state.

    ``last``: end of that attempt.
    """
    boards = [_known(connection, job, board, at) for board, at in job.broken.items()]
    if own := broken_by_job(boards):
        return ExitStatus.JOB, Blame.JOB, blame_reason(own, last)
    return ExitStatus.INFRA, Blame.INFRA, f"given up after {attempts} attempts: {last}"


def _known(connection: "Connection", job: "Job", board: str, at: float) -> BrokenBoard:
    asked = {"board": board, "id": job.id}
    ask = sql.asker(connection)
    # A job that began before the board broke proves nothing about the time after it.
    before, later = (ask(_EVIDENCE, {**asked, "after": since}) for since in (0.0, at))
    known = [(then, value) for then, value in before if _is_moment(then) and then <= at]
    after = sorted(
        ((then, value) for then, value in later if _is_moment(then) and then > at),
        key=itemgetter(0),
    )
    return BrokenBoard(
        board,
        was_well=bool(known) and max(known, key=itemgetter(0))[1] == "good",
        is_well=bool(after) and after[-1][1] == "good",
        with_others=any(value == "host" for _, value in after)
        or _others_broke(connection, job, board, at),
    )


def _others_broke(connection: "Connection", job: "Job", board: str, at: float) -> bool:
    question = "SELECT broken FROM job WHERE broken <> '{}' AND id <> :id"
    others = sql.asker(connection)(question, {"id": job.id})
    return any(
        name != board and abs(moment - at) <= _AT_ONCE_SECONDS
        for row in others
        for name, moment in read("job", ("broken",), row)[0]["broken"].items()
    )


def _is_moment(value: object) -> bool:
    """Return True if a row has a time; a damaged row is no evidence."""
    return read("board_event", ("at",), (value,))[1] is None
