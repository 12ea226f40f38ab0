"""Admission of waiting jobs to boards: no job gets a board that its user may not use."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from labctl.errors import BoardBusy, BoardOutOfService
from labctl.state import sql
from labctl.state.health import out_of_service
from labctl.state.job import ORDER, update, waiting_row
from labctl.state.job_order import Suits, Waiting, hand_out
from labctl.state.quotas import QuotaCheck
from labctl.state.reservations import other_keeps, reservations_from
from labctl.state.shared_limits import LimitCheck
from labctl.state.tables import short_line

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.state.sql import StateDatabase


def next_jobs(
    connection: "Connection",
    now: float,
    boards: Sequence[str],
    suits: Suits,
    state: "StateDatabase",
    *,
    own: str | None = None,
) -> Sequence[tuple[Waiting, str]]:
    """Return the jobs that get these free boards; record for the others why they do not.

    If ``own``, a job, is given, the caller has already checked the health of these boards.
    """
    rows = sql.rows(connection, f"SELECT {ORDER} FROM job WHERE state = 'waiting'")
    if not rows:
        return ()
    counts = sql.rows(
        connection,
        "SELECT submitter, COUNT(*) AS number FROM job WHERE state = 'running' GROUP BY submitter",
    )
    running = {row["submitter"]: row["number"] for row in counts}
    admission = Admission(connection, now, state, own)

    def may_have(job: Waiting, board: str) -> bool:
        if not (admission.admits(job, board) and suits(job, board)):
            return False
        admission.took(job, board)
        return True

    waiting = [(job, row["reason"]) for row in rows if (job := waiting_row(row)) is not None]
    given = list(hand_out([job for job, _ in waiting], running, boards, may_have))
    for job, reason in waiting:
        if job.id not in admission.refused or any(admission.admits(job, one) for one in job.boards):
            continue  # it waits for a board that is in use
        if (why := short_line(admission.refused[job.id])) != reason:
            update(connection, job.id, reason=why)
    return given


class Admission:
    """Refusals of one moment, in the transaction that hands the boards out."""

    def __init__(
        self,
        connection: "Connection",
        now: float,
        state: "StateDatabase",
        own: str | None = None,
    ):
        self._now = now
        self._lease_seconds = state.lease_seconds
        self._kept = reservations_from(connection, now)
        self._quotas = QuotaCheck(connection, now, state.quotas)
        self._limits = LimitCheck(connection, state.shared_limits)
        self._out = out_of_service(connection)
        self._own = own
        #: Job -> why it may not have the last board considered, for people.
        self.refused: dict[str, str] = {}

    def admits(self, job: Waiting, board: str) -> bool:
        """Return True if a job may have a board now, for as long as the job may take."""
        try:
            self._check(job, board)
        except (BoardBusy, BoardOutOfService) as error:
            self.refused[job.id] = error.message
            return False
        return True

    def took(self, job: Waiting, board: str) -> None:
        """Count a board that a job gets against its user's quota and the shared limits."""
        self._quotas.took(board, job.submitter)
        self._limits.took(board, job.uses, job.name)
        self.refused.pop(job.id, None)

    def _check(self, job: Waiting, board: str) -> None:
        ends = self._now + max(job.max_seconds, self._lease_seconds)
        for kept in self._kept.get(board, ()):
            if kept.is_between(self._now, ends) and not kept.lets_in(job.submitter):
                raise other_keeps(kept)
        self._quotas.check(board, job.submitter)
        health = None if job.id == self._own else self._out.get(board)
        if health is not None and not health.may_do(job.kind) and not self._holds(job, board):
            health.require_work()
        self._limits.check(board, job.uses)

    def _holds(self, job: Waiting, board: str) -> bool:
        """Return True if its user holds a board, and may use it whatever its health."""
        return any(
            kept.begins <= self._now and kept.lets_use_unwell(job.submitter)
            for kept in self._kept.get(board, ())
        )
