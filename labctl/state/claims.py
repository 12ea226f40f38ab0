"""Claims: give free boards to waiting jobs.

A claim first plans without the lab's lock, while other processes work. Under the lock it checks the
plan again: if a job, board, quota or limit has changed, the board is not given, and the claim
starts again. So a claim happens entirely before or after each change of another process.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from labctl.errors import LeaseLost
from labctl.state import sql
from labctl.state.admission import Admission, HandOut, hand_out_now
from labctl.state.attempts import LEFT, free_lost, lost_jobs, renew
from labctl.state.job import Job, begin, job_in, jobs_of, waiting_for
from labctl.state.job_order import Suits
from labctl.state.waiting import Waiting

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.database.base import Ask
    from labctl.state.sql import StateDatabase

#: After this number of plans that were out of date, the claim plans under the lock.
_LOOKS = 3
#: A claim renews a place or an attempt that has less than this share of its time left.
_FRESH = 0.75
#: Number of reasons that one claim stores; the next claims store the rest.
_MOST_REASONS = 100


class Claim:
    """A worker's claim of some boards; with ``own``, a claim of one board by the process of a job.

    With a ``group`` only its jobs are claimed; a board that another job would get stays free.
    """

    def __init__(
        self,
        state: "StateDatabase",
        boards: Sequence[str],
        worker: str,
        suits: Callable[[], Suits],
        *,
        own: str | None = None,
        group: str | None = None,
    ):
        self._state = state
        self._boards = boards
        self._worker = worker
        self._suits = suits
        self._own = own
        self._group = group

    def jobs(self) -> Sequence[Job]:
        """Return the claimed jobs, now running. Raises LeaseLost if ``own`` does not wait."""
        for _ in range(_LOOKS):
            if self._state.asking(self._is_renewal_due):
                self._state.change(self._renew)
            plan = self._state.asking(self._look)
            if not (plan.reasons or any(self._takes(job) for job, _ in plan.given)):
                return []
            claimed, is_stale = self._state.change(partial(self._take, plan))
            if claimed or not is_stale:
                return claimed

        def alone(connection: "Connection") -> Sequence[Job]:
            self._renew(connection)
            return self._take(self._look(sql.asker(connection)), connection)[0]

        return self._state.change(alone)

    def _is_renewal_due(self, ask: "Ask") -> bool:
        """Return True if jobs were lost, or if this worker's own jobs will be lost soon."""
        now = self._now(ask)
        if now is None:
            return self._own is not None
        soon = now + _FRESH * self._state.lease_seconds
        if self._own is not None:
            own = jobs_of(ask, {self._own}).get(self._own)
            if own is None or not own.waits or own.worker is not None:
                return True
            if own.expires is None or own.expires < soon:
                return True
        running = "SELECT 1 FROM job WHERE state = 'running' AND worker = :worker"
        asked = {"worker": self._worker, "soon": soon}
        return bool(ask(f"{running} AND expires < :soon LIMIT 1", asked) or lost_jobs(ask, now))

    def _renew(self, connection: "Connection") -> None:
        """Give a sign of life, and let the jobs of dead workers wait again."""
        now = self._now(sql.asker(connection)) or 0.0
        expires = now + self._state.lease_seconds
        if self._own is not None:
            from labctl.state.statements import WAIT_ON

            connection.execute(WAIT_ON, {"of_job": self._own, "until": expires, "left": LEFT})
            own = job_in(connection, self._own)
            if not own.waits:
                what = own.damaged or f"{own.state}: {own.reason}"
                raise LeaseLost(f"job {self._own} is {what}")
        renew(connection, self._worker, expires)
        free_lost(connection, now)

    def _look(self, ask: "Ask") -> HandOut:
        """Return which jobs get which boards now."""
        now, damaged = self._now(ask), set[str]()
        if now is None or not (boards := self._free(ask)):
            return HandOut()
        while True:
            plan = hand_out_now(ask, now, boards, self._suits(), self._state, without=damaged)
            jobs = jobs_of(ask, {job.id for job, _ in plan.given})
            found = {job.id for job in jobs.values() if job.damaged}
            if not found:
                return plan
            damaged |= found

    def _take(self, plan: HandOut, connection: "Connection") -> tuple[Sequence[Job], bool]:
        """Give the boards of a plan; return the jobs, and True if the plan was out of date."""
        ask = sql.asker(connection)
        now = self._now(ask) or 0.0
        ids, boards = {job.id for job, _ in plan.given}, {board for _, board in plan.given}
        jobs, free = jobs_of(ask, ids), {*self._free(ask)}
        present = {job.id: job for job, _ in waiting_for(ask, now, boards, ids)}
        admission = Admission(ask, now, self._state, boards)
        claimed, is_stale = list[Job](), False
        for waiting, board in plan.given:
            is_same = waiting.id in jobs and present.get(waiting.id) == waiting
            if not (is_same and board in free and admission.admits(waiting, board)):
                is_stale = True
            else:
                admission.took(waiting, board)
                if self._takes(waiting):
                    job, seconds = jobs[waiting.id], self._state.lease_seconds
                    begun = begin(connection, job, board, now, worker=self._worker, seconds=seconds)
                    claimed.append(begun)
        _note(connection, plan.reasons)
        return claimed, is_stale

    def _takes(self, job: Waiting) -> bool:
        """Return True if this process runs a job; boards of other jobs are kept free."""
        if self._own is not None:
            return job.id == self._own
        return not job.is_foreground and self._group in (None, job.group)

    def _free(self, ask: "Ask") -> Sequence[str]:
        """Return the boards on which no job runs; a running job may not have a lease yet."""
        taken = {board for (board,) in ask("SELECT board FROM job WHERE state = 'running'", {})}
        return [board for board in self._boards if board not in taken]

    def _now(self, ask: "Ask") -> float | None:
        """Return the time by the database's clock; None if nothing was ever stored."""
        rows = ask(f"SELECT {self._state.now}", {})
        return float(rows[0][0]) if rows else None


def _note(connection: "Connection", reasons: Mapping[str, str]) -> None:
    """Store why jobs wait; of many jobs, only the first ones."""
    from labctl.state.statements import NOTE_REASON

    values = [{"of_job": job, "why": reason} for job, reason in reasons.items()]
    if values:
        connection.execute(NOTE_REASON, values[:_MOST_REASONS])
