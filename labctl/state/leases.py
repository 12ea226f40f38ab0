"""Leases of boards in the lab's state: who may use which board, why, and until when.

A lease has a higher epoch than all earlier leases of its board. It ends when it is released, or
when its holder no longer renews it. Only the database's clock decides; a holder stops earlier, by
its own monotonic clock.

Each lease belongs to a job: the job has claimed the board, or begins and ends with the lease, in
the same transactions. :mod:`labctl.state.admission` decides who may have the board.

After a lease has ended, its token stays: a host recognises the lease of its own dead process by it.
The hardware's identity stays too: a board with two names, for example in the devices.yaml of two
users, is one board here.
"""

import builtins
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from labctl.database.questions import select
from labctl.errors import BoardBusy, LeaseLost
from labctl.state import sql
from labctl.state.admission import Admission
from labctl.state.attempts import free_lost
from labctl.state.events import clock, set_state, this_user
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
from labctl.state.job import end as end_job
from labctl.state.reservations import Reservation, Reservations
from labctl.state.tables import COLUMNS, MOST_WHOLE, read, short_line, shown
from labctl.state.uses import RESUMED_KINDS, USES, UseKind
from labctl.state.waiting import Waiting

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.database.base import Ask
    from labctl.state.sql import StateDatabase

#: The holder of a lease stops at the latest after this share of its time. The rest is for data
#: still on the way, and for differences between clocks.
_USABLE = 0.9

_TABLE = "board_lease"
_NAMES = tuple(COLUMNS[_TABLE])
#: Columns for readers of leases, who do not get the token.
_SHOWN = tuple("'' AS token" if name == "token" else name for name in _NAMES)
_OF_BOARD = select(_NAMES, _TABLE, "CAST(board AS TEXT) = :board")
_OTHER_NAMES = select(_NAMES, _TABLE, "hardware = :hardware AND board <> :board")


@dataclass(frozen=True)
class StateLease:
    """The lease of one board. Times are seconds since 1970 by the database's clock."""

    board: str
    epoch: int
    #: Proof of the holder; empty for all other readers.
    token: str = field(repr=False)
    #: ``USER@HOST`` that holds it.
    holder: str
    host: str
    pid: int
    kind: UseKind
    purpose: str
    #: Id of the job for which it is held; the job may be gone.
    job: str | None
    #: Identity of the hardware, whatever the board's name; None if it was never contacted.
    hardware: str | None
    since: float
    #: None if it has ended.
    expires: float | None
    #: Why its row cannot be read; the board then counts as taken. None if it can.
    damaged: str | None = None
    #: Time of :func:`steady_seconds` before which its holder must have renewed it.
    stop_before: float = 0.0

    def is_live(self, now: float) -> bool:
        """Return True if the lease is in force at a moment."""
        return self.damaged is not None or (self.expires is not None and self.expires > now)


def steady_seconds() -> float:
    """Return the time (s) of a clock that is never set, and also runs while the host sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class BoardLeases:
    """The leases of a lab's boards."""

    def __init__(self, state: "StateDatabase"):
        self._state = state
        #: Time (s) after which a lease ends unless it is renewed.
        self.seconds = state.lease_seconds

    def list(self) -> list[StateLease]:
        """Return the leases in force, by board. Raises HostError, ConfigError."""
        return [lease for now, lease in self._known(_SHOWN) if lease.is_live(now)]

    def _known(self, names: Sequence[str]) -> builtins.list[tuple[float, StateLease]]:
        """Return the last lease of each board, each with the present time."""
        question = select((self._state.now, *names), _TABLE, order="board")
        return [(now, _lease(row)) for now, *row in self._state.ask(question, {})]

    def get(self, board: str) -> StateLease | None:
        """Return the lease in force on a board; None if it is free."""
        return next((lease for lease in self.list() if lease.board == board), None)

    def refuse_if_taken(self, wish: "Wish") -> None:
        """Raise the errors of :meth:`acquire`, except for a left run; change nothing."""

        def check(ask: "Ask") -> None:
            if now := ask(f"SELECT {self._state.now}", {}):
                Decision(ask, float(now[0][0]), self._state, replace(wish, is_idle=True)).check()

        self._state.asking(check)

    def left_run(self, wish: "Wish") -> BoardBusy | None:
        """Return an error if a run whose process died may be on the board with the wish's token."""

        def answer(ask: "Ask") -> BoardBusy | None:
            now, lease = ask(f"SELECT {self._state.now}", {}), find(ask, wish.board)
            if not now or lease is None or lease.token != wish.token:
                return None
            return left_run(ask, float(now[0][0]), lease, wish)

        return self._state.asking(answer)

    def refuse_other_name(self, board: str, token: str) -> None:
        """Raise BoardBusy while the lease with this token is on a board with another name.

        The lease file on the board has the token of the lease here, so the token shows the name in
        use.
        """
        for now, lease in self._known(_NAMES):
            if lease.token == token and lease.board != board and lease.is_live(now):
                raise busy(lease, board)

    def acquire(
        self,
        board: str,
        *,
        purpose: str,
        seconds: float | None = None,
        minimum_epoch: int = 0,
        keep_epoch: int = 0,
        token: str | None = None,
        **more: Any,
    ) -> StateLease:
        """Take a board as :meth:`take` does; ``more``: fields of the wish."""
        more["token"] = token or secrets.token_hex(16)
        epochs = {"minimum_epoch": minimum_epoch, "keep_epoch": keep_epoch}
        return self.take(Wish(board, purpose, **more), seconds=seconds, **epochs)

    def take(
        self,
        wish: "Wish",
        *,
        seconds: float | None = None,
        minimum_epoch: int = 0,
        keep_epoch: int = 0,
    ) -> StateLease:
        """Take a free board for ``seconds``, with an epoch of at least ``minimum_epoch``.

        Args:
            wish: the board, and the purpose.
            seconds: the lease ends after this time unless it is renewed; default: the lab's time.
            minimum_epoch: the board's own epoch plus 1.
            keep_epoch: epoch of a lease on the board that continues although its holder is dead;
                kept unless a higher epoch was used.

        Raises BoardBusy with the holder, BoardOutOfService, LeaseLost if the wish's job was lost,
        HostError, ConfigError.
        """
        lasting, board = self.seconds if seconds is None else seconds, wish.board

        def take(connection: "Connection") -> StateLease:
            began, now = steady_seconds(), clock(connection, self._state.now)
            free_lost(connection, now)
            decision = Decision(sql.asker(connection), now, self._state, wish)
            decision.check()
            before, last = decision.before, decision.before.epoch if decision.before else 0
            if before is not None and before.expires is not None and not decision.is_again:
                is_dead = before.is_live(now)
                why = "its holder died" if is_dead else "its holder did not renew it"
                at, by = min(before.expires, now), before.holder
                _note_end(connection, before, at, by, why, is_dead=is_dead)
            job = decision.begin(connection, lasting)
            lease = StateLease(
                board=board,
                epoch=keep_epoch if keep_epoch >= max(last, 1) else max(minimum_epoch, last + 1),
                token=wish.token,
                holder=wish.holder,
                host=job.host,
                pid=os.getpid(),
                kind=wish.kind,
                purpose=short_line(wish.purpose) or "",
                job=job.id,
                hardware=short_line(decision.hardware),
                since=now,
                expires=now + lasting,
                stop_before=began + _USABLE * lasting,
            )
            _replace(connection, lease)
            facts, by = {"kind": lease.kind, "job": job.id}, lease.holder
            set_state(connection, now, board, "leased", by=by, reason=lease.purpose, details=facts)
            return lease

        lease = self._state.change(take, backup=False)
        if steady_seconds() < lease.stop_before:
            return lease
        return self._state.change(take, backup=False)  # the first answer of the database was lost

    def renew(self, lease: StateLease, seconds: float | None = None) -> StateLease:
        """Extend a lease to at least ``seconds`` from now; by default the lab's time.

        Raises LeaseLost, HostError.
        """
        (renewed,) = self.renew_all([lease], seconds)
        if isinstance(renewed, LeaseLost):
            raise renewed
        return renewed

    def renew_all(
        self, leases: Sequence[StateLease], seconds: float | None = None
    ) -> Sequence[StateLease | LeaseLost]:
        """Renew several leases in one transaction; return each lease as it is now, or LeaseLost.

        Raises HostError, ConfigError.
        """
        lasting = self.seconds if seconds is None else seconds

        def renew(connection: "Connection") -> tuple[float, dict[str, StateLease]]:
            from labctl.state.statements import RENEW_JOB_OF_LEASE, RENEW_LEASE

            began, now = steady_seconds(), clock(connection, self._state.now)
            if values := [{**_mine(one, now), "until": now + lasting} for one in leases]:
                connection.execute(RENEW_LEASE, values)
                of_jobs = [one | {"of_job": it.job} for one, it in zip(values, leases, strict=True)]
                connection.execute(RENEW_JOB_OF_LEASE, of_jobs)
            every = map(_lease, sql.asker(connection)(select(_NAMES, _TABLE), {}))
            live = {one.board: one for one in every if one.is_live(now)}
            return began + _USABLE * lasting, live

        stop, live = self._state.change(renew, backup=False)
        return [_kept(one, live.get(one.board), stop) for one in leases]

    def raise_epoch(self, lease: StateLease, epoch: int) -> StateLease:
        """Give a lease a higher epoch, because the board's own epoch was higher.

        Raises LeaseLost, HostError.
        """

        def change(connection: "Connection") -> StateLease:
            from labctl.state.statements import RAISE_EPOCH

            now = clock(connection, self._state.now)
            connection.execute(RAISE_EPOCH, {**_mine(lease, now), "number": epoch})
            return self._held(connection, lease, lease.stop_before)

        return self._state.change(change, backup=False)

    def release(self, lease: StateLease) -> None:
        """Free a board; do nothing if the lease has ended. Raises HostError."""
        self._state.together(lease, self._release)

    def _release(self, leases: Sequence[StateLease]) -> None:
        def change(connection: "Connection") -> None:
            now = clock(connection, self._state.now)
            for lease in leases:
                found = find(sql.asker(connection), lease.board)
                if found is None or found.token != lease.token or found.damaged:
                    continue
                if found.expires is not None:
                    end(connection, found, now, lease.holder, None)

        self._state.change(change, backup=False)

    def kept_for_others(self, leases: Sequence[StateLease]) -> Mapping[str, Reservation]:
        """Return other users' reservations in force now, by board: no trial may start there."""
        holders = {lease.board: lease.holder for lease in leases}
        return {
            board: one
            for board, one in Reservations(self._state).of_leased()
            if board in holders and not one.lets_in(holders[board])
        }

    def _held(self, connection: "Connection", lease: StateLease, stop: float) -> StateLease:
        """Return the lease as it is now. Raises LeaseLost."""
        found, now = find(sql.asker(connection), lease.board), clock(connection, self._state.now)
        kept = _kept(lease, found if found is not None and found.is_live(now) else None, stop)
        if isinstance(kept, LeaseLost):
            raise kept
        return kept


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


def find(ask: "Ask", board: str) -> StateLease | None:
    """Return the last lease of a board; None if the board was never leased."""
    rows = ask(_OF_BOARD, {"board": board})
    return _lease(rows[0]) if rows else None


def other_names(ask: "Ask", board: str, hardware: str | None) -> Sequence[StateLease]:
    """Return the last leases of the same board under its other names."""
    return [*map(_lease, ask(_OTHER_NAMES, {"hardware": hardware, "board": board}))]


def find_live(ask: "Ask", board: str, now: float) -> StateLease | None:
    """Return the lease in force on a board at a moment, under any of its names."""
    own = find(ask, board)
    known = [] if own is None else [own, *other_names(ask, board, own.hardware)]
    return next((lease for lease in known if lease.is_live(now)), None)


@contextmanager
def leases_kept(connection: "Connection") -> Iterator[None]:
    """Protect leases while the block restores all tables: end the backup's leases, reuse no epoch.

    Living holders keep their boards.
    """
    from labctl.state.sql_tables import UNTYPED
    from labctl.state.statements import END_LEASES

    known = sql.asker(connection)(select(_NAMES, _TABLE), {})
    yield
    connection.execute(END_LEASES)
    for row in known:
        lease = _lease(row)
        restored = find(sql.asker(connection), lease.board)
        if restored is None or lease.damaged or restored.epoch <= lease.epoch:
            # Unchanged: a damaged lease keeps its board.
            values = dict(zip(_NAMES, row, strict=True))
            sql.delete(connection, _TABLE, {"board": values["board"]})
            connection.execute(UNTYPED[_TABLE].insert(), values)


def end(
    connection: "Connection",
    lease: StateLease,
    now: float,
    by: str,
    reason: str | None,
    *,
    epochs: int = 0,
) -> None:
    """End a lease; raise its epoch by ``epochs``. Readable values of a damaged lease stay."""
    epoch = min(lease.epoch + epochs, MOST_WHOLE)
    _replace(connection, replace(lease, epoch=epoch, expires=None))
    _note_end(connection, lease, now, by, reason)


def _note_end(
    connection: "Connection",
    lease: StateLease,
    at: float,
    by: str,
    reason: str | None,
    *,
    is_dead: bool = False,
) -> None:
    """Record the end of a lease in the board's history, from which quotas count.

    The job of the lease ends with it. With ``is_dead``, so does the job of the dead process.
    """
    runners = ("lease", "process") if is_dead else ("lease",)
    job = None if lease.job is None else jobs_of(sql.asker(connection), {lease.job}).get(lease.job)
    if job is not None and job.state == "running" and job.runner in runners:
        end_job(connection, job, at, reason, state="done" if reason is None else "cancelled")
    had = {"holder": lease.holder, "since": lease.since, "kind": lease.kind}
    details = None if lease.damaged else had
    set_state(connection, at, lease.board, "idle", by=by, reason=reason, details=details)


def busy(lease: StateLease, board: str | None = None) -> BoardBusy:
    """Return the error for a board that another user uses, perhaps under another name."""
    from labctl.units import local_time

    if lease.damaged is not None:
        return BoardBusy(
            f"board {lease.board} counts as in use: its lease is {lease.damaged}",
            hint="`labctl boards` shows who has what",
        )
    name = lease.board
    if board not in (None, name):
        name = f"{board}, which is also named {name},"
    return BoardBusy(
        f"board {name} is in use by {lease.holder} since {local_time(lease.since)}:"
        f" {lease.purpose} (process {lease.pid} on {lease.host})",
        hint="`labctl boards` shows who has what",
    )


def lost(lease: StateLease, now: StateLease | None) -> LeaseLost:
    """Return the error for a holder that lost its board; ``now``: the new lease."""
    after = f": {now.damaged or f'{now.holder} has it now ({now.purpose})'}" if now else ""
    return LeaseLost(f"the lease of board {lease.board} has ended{after}")


def _kept(lease: StateLease, now: StateLease | None, stop: float) -> StateLease | LeaseLost:
    """Return a holder's lease as it is ``now``, or LeaseLost if another holder has the board."""
    if now is None or now.damaged or now.token != lease.token:
        return lost(lease, now)
    return replace(now, stop_before=stop)


def _lease(row: Sequence[Any]) -> StateLease:
    values, why = read(_TABLE, _NAMES, row)
    return StateLease(**values, damaged=why)


def _mine(lease: StateLease, now: float) -> dict[str, object]:
    """Return the values that identify a lease, as long as the same holder has it."""
    return {"of_board": lease.board, "of_token": lease.token, "moment": now}


def _replace(connection: "Connection", lease: StateLease) -> None:
    sql.delete(connection, _TABLE, {"board": lease.board})
    sql.insert(connection, _TABLE, {name: getattr(lease, name) for name in _NAMES})
