"""Admission to boards: a job gets a board only if its user and its kind of use may have it.

Decides for waiting jobs, and for uses that get a board at once or fail.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from labctl.database.questions import select
from labctl.errors import BoardBusy, BoardOutOfService
from labctl.state.health import out_of_service
from labctl.state.job import waiting_for
from labctl.state.job_order import Source, Suits, hand_out
from labctl.state.quotas import COUNTS, QuotaCheck
from labctl.state.reservations import Reservation, other_keeps, reservations_from
from labctl.state.shared_limits import LimitCheck
from labctl.state.tables import short_line, shown
from labctl.state.uses import USES
from labctl.state.waiting import Waiting

if TYPE_CHECKING:
    from labctl.database.base import Ask
    from labctl.state.sql import StateDatabase

#: Maximum number of free boards for which the last users are looked up.
_MOST_LAST = 16
_KEPT = select(
    "board, unit, name",
    "job",
    "board IS NOT NULL AND unit IS NOT NULL",
    "(state = 'running' OR (state = 'waiting' AND expires >= :now))",
)
_RUNNING = select(
    "submitter, group_id, COUNT(*)",
    "job",
    "state = 'running'",
    COUNTS,
    group="submitter, group_id",
)
_LAST = select(
    "submitter, group_id",
    "job",
    "board = :board AND ended_at IS NOT NULL",
    COUNTS,
    order="ended_at DESC",
    limit=1,
)


@dataclass(frozen=True)
class HandOut:
    """Jobs that get boards at one moment, in order, and why others do not."""

    given: Sequence[tuple[Waiting, str]] = ()
    #: Job -> its reason, if the reason is not stored yet.
    reasons: Mapping[str, str] = field(default_factory=dict)


def hand_out_now(
    ask: "Ask",
    now: float,
    boards: Sequence[str],
    suits: Suits,
    state: "StateDatabase",
    *,
    without: Collection[str] = (),
) -> HandOut:
    """Return which jobs get these free boards, except jobs ``without``; change nothing."""
    waiting = [one for one in waiting_for(ask, now, boards) if one[0].id not in without]
    if not waiting:
        return HandOut()
    counts = {(user, group): count for user, group, count in ask(_RUNNING, {})}
    admission = Admission(ask, now, state)

    def may_have(job: Waiting, board: str) -> bool:
        if not (admission.admits(job, board) and suits(job, board)):
            return False
        admission.took(job, board)
        return True

    last = _last_of(ask, boards)
    jobs = [job for job, _ in waiting]
    given = list(hand_out(jobs, counts, boards, may_have, last))
    reasons = {}
    for job, reason in waiting:
        if job.id not in admission.refused or any(admission.admits(job, one) for one in job.boards):
            continue  # the job waits for a board that is in use
        if (why := short_line(admission.refused[job.id])) != reason:
            reasons[job.id] = why or ""
    return HandOut(given, reasons)


def _last_of(ask: "Ask", boards: Sequence[str]) -> set[Source]:
    """Return whose jobs ended last on some boards; of many boards, only on the first ones."""
    found = [ask(_LAST, {"board": board}) for board in boards[:_MOST_LAST]]
    return {(user, group) for rows in found for user, group in rows}


class Admission:
    """Refusals of one moment, for ``boards`` or for all boards.

    ``hardware`` is the identity of these boards' hardware if the caller knows it better than their
    last leases. A board is kept under all of its names.
    """

    def __init__(
        self,
        ask: "Ask",
        now: float,
        state: "StateDatabase",
        boards: Collection[str] | None = None,
        hardware: Mapping[str, str | None] | None = None,
    ):
        self._now = now
        self._lease_seconds = state.lease_seconds
        self._kept = reservations_from(ask, now)
        self._quotas = QuotaCheck(ask, now, state.quotas)
        self._limits = LimitCheck(ask, now, state.shared_limits)
        self._out = out_of_service(ask, boards)
        #: Board -> the unit that has the board, also between two jobs, and the present job's name.
        self._units = {board: (unit, name) for board, unit, name in ask(_KEPT, {"now": now})}
        self._names = _names_of(ask, hardware or {}) if self._kept or self._units else {}
        #: Cached refusals until a job takes a board: the checks are the same for many jobs.
        self._known: dict[tuple[object, ...], str | None] = {}
        #: Job -> why it may not have the last board checked, for people.
        self.refused: dict[str, str] = {}

    def admits(self, job: Waiting, board: str) -> bool:
        """Return True if a job may have a board now, for the job's maximum duration."""
        key = (board, job.submitter, job.kind, job.max_seconds, job.uses, job.unit, job.kept)
        if key not in self._known:
            try:
                self.check(job, board)
            except (BoardBusy, BoardOutOfService) as error:
                self._known[key] = error.message
            else:
                self._known[key] = None
        if (why := self._known[key]) is not None:
            self.refused[job.id] = why
        return why is None

    def took(self, job: Waiting, board: str) -> None:
        """Count a board that a job gets against its user's quota and the shared limits."""
        if USES[job.kind].counts:
            self._quotas.took(board, job.submitter)
        if USES[job.kind].limits:
            self._limits.took(board, job.uses, job.name)
        self.refused.pop(job.id, None)
        self._known.clear()

    def check(self, job: Waiting, board: str) -> None:
        """Raise BoardBusy or BoardOutOfService if a job may not have a board now."""
        use = USES[job.kind]
        if job.kept != board:  # else checked when the unit began
            self.check_kept(job, board)
            if use.counts:
                self._quotas.check(board, job.submitter)
        health = self._out.get(board)
        if health is not None and not health.may_do(job.kind) and not self._holds(job, board):
            health.require_work()
        if use.limits:
            self._limits.check(board, job.uses)

    def check_kept(self, job: Waiting, board: str) -> None:
        """Raise BoardBusy if a board is kept for others before the job's latest end."""
        ends = self._now + max(job.max_seconds, self._lease_seconds)
        others = [
            kept
            for kept in self._kept_as(board)
            if kept.is_between(self._now, ends) and not kept.lets_in(job.submitter)
        ]
        if damaged := [kept for kept in others if kept.damaged]:
            raise other_keeps(damaged[0])
        for one in self._names.get(board, (board,)):
            unit, name = self._units.get(one, (job.unit, ""))
            if unit != job.unit:
                raise BoardBusy(
                    f"board {board} is kept for {shown(name)}, of a group of jobs with nothing"
                    " between them",
                    hint="wait; `labctl queue` shows it",
                )
        if others:
            raise other_keeps(others[0])

    def _kept_as(self, board: str) -> Iterator[Reservation]:
        for name in self._names.get(board, (board,)):
            yield from self._kept.get(name, ())

    def _holds(self, job: Waiting, board: str) -> bool:
        """Return True if the job's user holds the board, and may use it whatever its health."""
        return any(
            kept.begins <= self._now and kept.lets_use_unwell(job.submitter)
            for kept in self._kept_as(board)
        )


def _names_of(ask: "Ask", known: Mapping[str, str | None]) -> Mapping[str, Sequence[str]]:
    """Return, by board, all names of its hardware, if it has several."""
    question = "SELECT board, hardware FROM board_lease WHERE hardware IS NOT NULL"
    hardware = dict(ask(question, {})) | {name: own for name, own in known.items() if own}
    names: dict[str, list[str]] = {}
    for board, own in hardware.items():
        names.setdefault(own, []).append(board)
    return {board: names[own] for board, own in hardware.items() if len(names[own]) > 1}
