"""A wish for a board, and the decision whether it is granted."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from labctl.errors import BoardBusy, LeaseLost
from labctl.state import sql
from labctl.state.admission import Admission
from labctl.state.events import this_user
from labctl.state.job import (
    Job,
    NewJob,
    add,
    begin,
    claimed_by,
    follows,
    job_in,
    jobs_of,
    new_job_id,
    update,
    worker_name,
)
from labctl.state.lease import StateLease, busy, find, other_names
from labctl.state.tables import short_line, shown
from labctl.state.uses import RESUMED_KINDS, USES, UseKind
from labctl.state.waiting import Waiting

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.database.base import Ask
    from labctl.state.sql import StateDatabase


@dataclass(frozen=True)
class Wish:
    """A board that a caller wants at once, and the purpose."""

    board: str
    purpose: str
    kind: UseKind = "run"
    #: ``USER@HOST`` that takes it.
    holder: str = field(default_factory=lambda: short_line(this_user()) or "")
    #: Maximum duration (s) of the work, which must end before the board is kept for another user.
    planned_seconds: float = 0.0
    #: The job that has claimed the board, and the number of its attempt; None: a new job begins.
    job: str | None = None
    attempt: int | None = None
    #: The run that needs the board.
    run: str | None = None
    #: Identity of the hardware; None: as in the last lease.
    hardware: str | None = None
    #: Returns True if the holder of a token is known to be dead.
    is_dead: Callable[[str], bool] = lambda _token: False
    #: True if the caller has seen that no program of the last holder is on the board.
    is_idle: bool = False
    #: A new token of the caller.
    token: str = field(default="", repr=False)
    #: Id of the new job.
    new_job: str = field(default_factory=new_job_id)


class Decision:
    """The answer to a wish at one moment, and the job that gets the board."""

    def __init__(self, ask: "Ask", now: float, state: "StateDatabase", wish: Wish):
        self._ask, self._now, self._state, self._wish = ask, now, state, wish
        #: The board's last lease.
        self.before = find(ask, wish.board)
        self.hardware = wish.hardware or (self.before.hardware if self.before else None)
        self._others = other_names(ask, wish.board, self.hardware)
        name = wish.job or wish.new_job
        self._job = jobs_of(ask, {name}).get(name)
        if wish.job is None and self._job is not None and self._job.state != "running":
            self._job = None

    def check(self) -> None:
        """Raise BoardBusy, BoardOutOfService or LeaseLost unless the wish is granted."""
        wish, before = self._wish, self.before
        is_own = before is not None and before.is_live(self._now) and self._is_own(before)
        for lease in (before, *self._others):
            if lease is None or not lease.is_live(self._now):
                continue
            if lease is not before or lease.damaged or not is_own:
                raise busy(lease, wish.board)
        self._check_claims()
        if not wish.is_idle:
            for lease in (before, *self._others):
                if lease is not None and (left := left_run(self._ask, self._now, lease, wish)):
                    raise left
        hardware = {wish.board: self.hardware}
        admission = Admission(self._ask, self._now, self._state, {wish.board}, hardware)
        wanted = self._wanted()
        if not self._has_claimed:
            admission.check(wanted, wish.board)
        elif self._job is None or not follows(self._ask, self._job):
            admission.check_kept(wanted, wish.board)

    @property
    def is_again(self) -> bool:
        """True if this wish was granted before: the last lease is its result."""
        wish, before = self._wish, self.before
        own = (wish.job, wish.new_job)
        return before is not None and before.token == wish.token and before.job in own

    def _is_own(self, lease: StateLease) -> bool:
        return lease.token == self._wish.token or self._wish.is_dead(lease.token)

    @property
    def _has_claimed(self) -> bool:
        return self._job is not None and self._job.board == self._wish.board

    def _check_claims(self) -> None:
        """Raise LeaseLost if the wish's attempt was lost, BoardBusy if it cannot be alone."""
        wish, job = self._wish, self._job
        if wish.job is not None:
            is_same = job is not None and wish.attempt in (None, job.attempts)
            is_there = job is not None and (self._has_claimed or job.runner == "process")
            if job is None or job.state != "running" or not is_same or not is_there:
                raise LeaseLost(f"the attempt at job {wish.job} on board {wish.board} was lost")
        if USES[wish.kind].alone:
            names = {wish.board, *(lease.board for lease in self._others)}
            question = "SELECT id FROM job WHERE state = 'running' AND board IN"
            found = {job for (job,) in sql.rows_of(self._ask, question, names)}
            for other in jobs_of(self._ask, found - {wish.job, wish.new_job}).values():
                if (other.expires or 0.0) >= self._now:
                    raise claimed_by(other)

    def _wanted(self) -> Waiting:
        wish, uses = self._wish, self._job.uses if self._job else ()
        return Waiting(
            wish.job or wish.new_job,
            (wish.board,),
            0,
            0.0,
            wish.holder,
            max_seconds=wish.planned_seconds,
            kind=wish.kind,
            uses=uses,
            name=short_line(wish.purpose) or "",
            unit=self._job.unit if self._job else None,
        )

    def begin(self, connection: "Connection", seconds: float) -> Job:
        """Return the job that gets the board: the wish's, or a new job."""
        wish = self._wish
        if self._job is None:
            new = NewJob(
                wish.purpose,
                {},
                (wish.board,),
                wish.kind,
                runner="lease",
                max_seconds=wish.planned_seconds,
                submitter=wish.holder,
                id=wish.new_job,
            )
            add(connection, new, self._now, 0.0, None)
            waiting = job_in(connection, new.id)
            job = begin(
                connection, waiting, wish.board, self._now, worker=worker_name(), seconds=seconds
            )
        else:
            job = self._job
            expires = self._now + seconds if job.runner == "lease" else job.expires
            update(connection, job.id, board=wish.board, expires=expires)
        if wish.run is not None and wish.run != job.run:
            update(connection, job.id, run=wish.run)
        return job


def left_run(
    ask: "Ask", now: float, lease: StateLease, wish: Wish | None = None
) -> BoardBusy | None:
    """Return an error if a dead process's run may be on its board; None if the wish allows it.

    ``lease``: the board's last lease; it has ended, or its holder is dead.
    """
    if lease.expires is None or lease.job is None:
        return None
    question = "SELECT run, kind, state, submitter, started_at, max_seconds FROM job WHERE id = :id"
    for run, kind, state, submitter, started, seconds in ask(question, {"id": lease.job}):
        is_resumed = wish is not None and (
            wish.job == lease.job
            or (USES[wish.kind].left_program == "continues" and wish.run == run)
            or USES[wish.kind].left_program == "ends"
        )
        is_over = state == "done" or now > (started or 0.0) + seconds
        if run is not None and kind in RESUMED_KINDS and not is_over and not is_resumed:
            return BoardBusy(
                f"board {lease.board} is in use by run {shown(run)} of {shown(submitter)}, whose"
                " process died",
                hint=f"`labctl resume {shown(run)}` continues it; `labctl release {lease.board}"
                " --force --reason TEXT` gives it up",
            )
    return None
