"""The health of each board, independent of the board's state: an idle board may be bad.

People and health checks determine the health. State (idle, leased, offline) is the present use.
"""

import builtins
import os
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from labctl.database.questions import select
from labctl.errors import BoardBusy, BoardOutOfService
from labctl.process import start_time
from labctl.state import sql
from labctl.state.events import BoardEvent, BoardEvents, add_event, clock, keep_row
from labctl.state.reservations import Reservations
from labctl.state.tables import COLUMNS, as_json, read, short_line
from labctl.state.uses import USES, UseKind

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.database.base import Ask
    from labctl.state.sql import StateDatabase

_TABLE = "board_health"
_NAMES = tuple(COLUMNS[_TABLE])
_OF_BOARD = select(_NAMES, _TABLE, "CAST(board AS TEXT) = :board")


class Health(StrEnum):
    """Health of a board."""

    GOOD = "good"
    #: Never checked, or the last check gave no verdict.
    UNKNOWN = "unknown"
    #: Verdicts alternate between good and bad.
    LOOPING = "looping"
    BAD = "bad"
    #: A person works on the board itself.
    MAINTENANCE = "maintenance"
    RETIRED = "retired"


#: Key in the evidence for a board that an untrusted recipe used; only an inspection or a person can
#: then change the board's health.
UNTRUSTED = "untrusted"
#: Value of :data:`UNTRUSTED` until the inspection has ended. It is stored in labs, and must not
#: change.
NOT_LOOKED_THROUGH = "an untrusted recipe ran on it, and it was not looked through since"
#: Health of boards that do the work of users. An unknown board counts as fit.
WORKING = (Health.GOOD, Health.UNKNOWN)
#: Only people set and end these.
BY_PEOPLE = (Health.MAINTENANCE, Health.RETIRED)
NEVER_CHECKED = "no health check yet"
#: Contact of a board that answered, as in :func:`labctl.transport.readiness.board_state`.
ANSWERED = "connected"
#: Interval (s) at which an unchanged result of contacts is recorded again.
_CONTACT_SECONDS = 60.0


@dataclass(frozen=True)
class BoardHealth:
    """Health of one board now. Times are seconds since 1970 by the database's clock."""

    board: str
    health: Health = Health.UNKNOWN
    since: float | None = None
    reason: str | None = NEVER_CHECKED
    made_by: str | None = None
    #: Numbers, runs and probes that support the verdict.
    evidence: Mapping[str, Any] = field(default_factory=dict)
    #: The last entry of its history about its use: ``leased``, ``idle``, ``offline``.
    state: str | None = None
    #: Name and version of its system at the last contact.
    firmware: str | None = None
    checked_at: float | None = None
    #: File of the probe, or id of the run, of the last health check.
    checked_run: str | None = None
    jobs_since_check: int = 0
    #: Time from which a check is due on request, and the reason.
    check_wanted_at: float | None = None
    check_wanted_for: str | None = None
    #: Result of the last contact, a word of :func:`labctl.transport.readiness.board_state`.
    contact: str | None = None
    contact_at: float | None = None
    #: Why its row cannot be read; users' jobs do not run on the board then. None if it can.
    damaged: str | None = None

    @property
    def is_offline(self) -> bool:
        """True if the board did not answer at the last contact."""
        return self.contact not in (None, ANSWERED)

    @property
    def may_work(self) -> bool:
        """True if users' jobs may run on the board."""
        return self.health in WORKING

    @property
    def awaits_look(self) -> bool:
        """True if an untrusted run ended without an inspection: the next run begins with it."""
        return self.evidence.get(UNTRUSTED) == NOT_LOOKED_THROUGH

    def may_do(self, kind: UseKind) -> bool:
        """Return True if uses of this kind may have the board."""
        rule = USES[kind].health
        return self.may_work or rule == "any" or (rule == "uninspected" and self.awaits_look)

    def require_work(self) -> None:
        """Raise BoardOutOfService with the reason if users' jobs may not run on the board."""
        if not self.may_work:
            why = f": {self.reason}" if self.reason else ""
            raise BoardOutOfService(
                f"the health of board {self.board} is {self.health}{why}",
                hint=f"`labctl boards history {self.board}` shows what happened; `labctl hold"
                f" {self.board}` lets you use it, `labctl boards good {self.board} --reason TEXT`"
                " everybody",
            )


def untrusted_use(pid: int) -> dict[str, Any]:
    """Return the evidence for a board that a process of this host uses for an untrusted recipe."""
    host, started = socket.gethostname(), start_time(pid)
    return {UNTRUSTED: NOT_LOOKED_THROUGH, "host": host, "pid": pid, "started": started}


def out_of_service(ask: "Ask", boards: Collection[str] | None = None) -> dict[str, BoardHealth]:
    """Return the boards whose health excludes users' jobs, by name; only ``boards``, or all."""
    if boards is None:
        rows = ask(select(_NAMES, _TABLE), {})
    else:
        rows = sql.rows_of(ask, select(_NAMES, _TABLE, "CAST(board AS TEXT) IN"), boards)
    found = map(_health, rows)
    return {health.board: health for health in found if not health.may_work}


class Healths:
    """The health of a lab's boards."""

    def __init__(self, state: "StateDatabase"):
        self._state = state

    def list(self) -> list[BoardHealth]:
        """Return the known health, by board. Raises HostError, ConfigError."""
        rows = self._state.ask(select(_NAMES, _TABLE, order="board"), {})
        return [_health(row) for row in rows]

    def get(self, board: str) -> BoardHealth:
        """Return the health of a board; ``unknown`` if it was never checked."""
        rows = self._state.ask(_OF_BOARD, {"board": board})
        return _health(rows[0]) if rows else BoardHealth(board)

    def require_work(self, board: str, by: str) -> None:
        """Raise BoardOutOfService unless ``by`` (``USER@HOST``) may use a board.

        A user who holds a board may use it whatever its health, to find the fault. Raises BoardBusy
        as :meth:`refuse_untrusted_use` does.
        """
        health = self.get(board)
        if not health.may_work and not any(
            one.board == board and one.lets_use_unwell(by)
            for one in Reservations(self._state).in_force()
        ):
            self.refuse_untrusted_use(health)
            health.require_work()

    def refuse_untrusted_use(self, health: BoardHealth) -> None:
        """Raise BoardBusy while another process uses a board for an untrusted recipe.

        This use includes the inspection of the board.
        """
        if self.has_untrusted_use(health):
            raise BoardBusy(
                f"board {health.board} is in use: an untrusted recipe has it, and it is inspected"
                " afterwards"
            )

    def has_untrusted_use(self, health: BoardHealth) -> bool:
        """Return True if another process uses a board for an untrusted recipe, or inspects it."""
        host, pid = health.evidence.get("host"), health.evidence.get("pid")
        if not health.awaits_look or not isinstance(pid, int):
            return False  # the inspection has failed
        if host == socket.gethostname():
            started = start_time(pid)
            is_the_same = started is not None and started == health.evidence.get("started")
            return pid != os.getpid() and is_the_same
        now = self._state.now
        leased = select("1", "board_lease", "board = :board", f"expires > {now}")
        changed = select(
            "1",
            "board_event",
            "board = :board AND kind IN ('state', 'health')",
            f"at > {now} - :lately",
        )
        asked = {"board": health.board, "lately": self._state.lease_seconds}
        return bool(self._state.ask(f"{leased} UNION ALL {changed}", asked))

    def working(self, boards: Sequence[str], by: str, *, untrusted: bool = False) -> Sequence[str]:
        """Return the boards that ``by`` may use, or may wait for.

        An ``untrusted`` recipe begins with an inspection of its board if an inspection is due.
        Raises BoardOutOfService if no board is left.
        """
        found: builtins.list[str] = []
        refused: BoardOutOfService | None = None
        for board in boards:
            try:
                self.require_work(board, by)
            except BoardBusy:
                pass
            except BoardOutOfService as error:
                if not (untrusted and self.get(board).awaits_look):
                    refused = error
                    continue
            found.append(board)
        if refused is not None and not found:
            raise refused
        return found

    def history(
        self, board: str, *, since: float | None = None, limit: int | None = None
    ) -> Sequence[BoardEvent]:
        """Return all events of a board, oldest first."""
        return BoardEvents(self._state).list(board, since=since, limit=limit)

    def set(
        self,
        board: str,
        health: Health,
        *,
        reason: str,
        by: str,
        evidence: Mapping[str, Any] | None = None,
        unless: Collection[Health] = (),
    ) -> BoardHealth:
        """Record the health of a board and the reason; return its health now.

        Changes nothing while the health is in ``unless``. With ``unless``, a damaged row does not
        change either: a person decides. The history gets a line if the health has changed, and for
        each step of an untrusted run. Raises HostError, ConfigError.
        """
        short = short_line(reason) or ""

        def change(connection: "Connection") -> BoardHealth:
            now = clock(connection, self._state.now)
            before = _row(connection, board)
            if before.health in unless or (unless and before.damaged):
                return before
            if before.damaged:
                _repair(connection, before)
            values: dict[str, Any] = {
                "health": health.value,
                "reason": short,
                "made_by": short_line(by),
                "evidence": as_json(evidence) if evidence else None,
            }
            is_other = health is not before.health or before.since is None
            if is_other:
                values["since"] = now
            if is_other or (evidence and UNTRUSTED in evidence and short != before.reason):
                add_event(
                    connection, now, board, "health", health, by=by, reason=short, details=evidence
                )
            keep_row(connection, board, values)
            return _row(connection, board)

        return self._state.change(change)

    def checked(self, board: str, run: str | None) -> None:
        """Record that a health check of a board ended now; ``run``: the check's probe or run."""

        def change(connection: "Connection") -> None:
            now = clock(connection, self._state.now)
            values = {"checked_at": now, "checked_run": run, "jobs_since_check": 0}
            keep_row(
                connection, board, values | {"check_wanted_at": None, "check_wanted_for": None}
            )

        self._state.change(change)

    def want_check(self, board: str, reason: str, *, after_s: float = 0.0) -> None:
        """Request a health check before the next user's job, at the latest ``after_s`` from now.

        An earlier time stays.
        """

        def change(connection: "Connection") -> None:
            at = clock(connection, self._state.now) + after_s
            before = _row(connection, board).check_wanted_at
            if before is None or at < before:
                wish = {"check_wanted_at": at, "check_wanted_for": short_line(reason)}
                keep_row(connection, board, wish)

        self._state.change(change)

    def job_done(self, board: str) -> None:
        """Count a user's job that ended on a board since its last health check."""
        self._state.together(board, self._jobs_done)

    def _jobs_done(self, boards: Sequence[str]) -> None:
        def change(connection: "Connection") -> None:
            from labctl.state.statements import COUNT_JOB

            for board in boards:
                if connection.execute(COUNT_JOB, {"of_board": board}).rowcount == 0:
                    keep_row(connection, board, {"jobs_since_check": 1})

        self._state.change(change)

    def contacted(self, results: Mapping[str, str], *, by: str, reason: str | None = None) -> None:
        """Record the results of contacts, by board: words of ``transport.board_state``.

        The history gets a line if a board is lost or found again. Raises HostError, ConfigError.
        """

        def change(connection: "Connection") -> None:
            now = clock(connection, self._state.now)
            for board, result in results.items():
                before = _row(connection, board)
                if result == before.contact and now - (before.contact_at or 0.0) < _CONTACT_SECONDS:
                    continue
                keep_row(connection, board, {"contact": result, "contact_at": now})
                if before.is_offline == (result != ANSWERED):
                    continue
                answers = result == ANSWERED
                value, why = ("idle", "it answers") if answers else ("offline", reason or result)
                add_event(connection, now, board, "state", value, by=by, reason=why)

        self._state.change(change)

    def set_firmware(self, board: str, firmware: str, *, by: str) -> bool:
        """Record the system of a board; return True if it has changed."""
        firmware = short_line(firmware) or ""
        if self.get(board).firmware == firmware:
            return False

        def change(connection: "Connection") -> bool:
            now = clock(connection, self._state.now)
            before = _row(connection, board).firmware
            if before == firmware:
                return False
            keep_row(connection, board, {"firmware": firmware})
            reason = None if before is None else f"before: {before}"
            add_event(connection, now, board, "firmware", firmware, by=by, reason=reason)
            return before is not None

        return self._state.change(change)


def _row(connection: "Connection", board: str) -> BoardHealth:
    rows = sql.asker(connection)(_OF_BOARD, {"board": board})
    return _health(rows[0]) if rows else BoardHealth(board)


def _health(row: Sequence[Any]) -> BoardHealth:
    values, why = read("board_health", _NAMES, row)
    if values["health"] is None:
        values |= {"health": Health.UNKNOWN, "reason": NEVER_CHECKED}
    found = BoardHealth(**{**values, "health": Health(values["health"])}, damaged=why)
    if why is None or found.health in BY_PEOPLE:
        return found
    return replace(found, health=Health.BAD, reason=why)


def _repair(connection: "Connection", health: BoardHealth) -> None:
    """Replace a damaged row by its readable values."""
    values = {name: getattr(health, name) for name in _NAMES} | {"evidence": None}
    sql.delete(connection, _TABLE, {"board": health.board})
    sql.insert(connection, _TABLE, values)
