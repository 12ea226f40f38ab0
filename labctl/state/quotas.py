"""Quotas: limits of a user's share of a lab's boards. Some kinds of use do not count."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from labctl.config.quotas import EACH, Quota
from labctl.database.questions import select
from labctl.errors import BoardBusy
from labctl.state import sql
from labctl.state.tables import read
from labctl.state.uses import UNCOUNTED

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.database.base import Ask

#: SQL: true for a job or lease of a kind that counts.
COUNTS = f"kind NOT IN ({', '.join(map(repr, UNCOUNTED))})"
_RUNNING = select("board, submitter", "job", "state = 'running' AND expires >= :now", COUNTS)
_RESERVED = ("board", "holder", "begins", "ends", "kind")
_DAY_SECONDS = 24 * 3600.0
_HINT = "wait, or release a board; `quotas` in devices.yaml says how much a user may have"


class QuotaCheck:
    """Quota check at one moment, in the caller's transaction. A user is the same on all hosts."""

    def __init__(self, ask: "Ask", now: float, quotas: Mapping[str, Quota]):
        self._ask = ask
        self._now = now
        self._quotas = quotas
        self._boards: dict[str, set[str]] = {}
        self._used: dict[str, float] = {}

    def check(self, board: str, holder: str) -> None:
        """Raise BoardBusy if the quota does not allow ``USER@HOST`` to have ``board`` now too."""
        user = _user(holder)
        quota = self._quotas.get(user, self._quotas.get(EACH))
        if quota is None:
            return
        if quota.boards is not None:
            others = sorted(self._boards_of(user) - {board})
            if len(others) >= quota.boards:
                raise BoardBusy(
                    f"{user} has {', '.join(others)} already, and may have {quota.boards} at once",
                    hint=_HINT,
                )
        if quota.hours is not None:
            if user not in self._used:
                self._used[user] = _used_seconds(self._ask, self._now, user)
            if (used := self._used[user] / 3600) >= quota.hours:
                raise BoardBusy(
                    f"{user} used boards for {used:.1f} h in the last 24 hours; the limit is"
                    f" {quota.hours:g} h",
                    hint=_HINT,
                )

    def took(self, board: str, holder: str) -> None:
        """Count a board for ``USER@HOST``."""
        if self._quotas:
            self._boards_of(_user(holder)).add(board)

    def _boards_of(self, user: str) -> set[str]:
        if user not in self._boards:
            self._boards[user] = _boards(self._ask, self._now, user)
        return self._boards[user]


def check_reserved(
    connection: "Connection",
    board: str,
    holder: str,
    begins: float,
    ends: float,
    *,
    quotas: Mapping[str, Quota],
) -> None:
    """Raise BoardBusy if the quota forbids ``board`` for ``USER@HOST`` at some time."""
    user = _user(holder)
    quota = quotas.get(user, quotas.get(EACH))
    if quota is None or quota.boards is None:
        return
    kept = [
        row
        for row in _rows(sql.asker(connection), "reservation", _RESERVED)
        if row["begins"] < ends and row["ends"] > begins
        if row["kind"] != "maintenance" and row["board"] != board and _is(row["holder"], user)
    ]
    # A user's number of boards is highest at the beginning of a reservation.
    for moment in {begins, *(row["begins"] for row in kept if row["begins"] > begins)}:
        others = sorted({row["board"] for row in kept if row["begins"] <= moment < row["ends"]})
        if len(others) >= quota.boards:
            raise BoardBusy(
                f"{user} has {', '.join(others)} in that time, and may have {quota.boards} at once",
                hint=_HINT,
            )


def _boards(ask: "Ask", now: float, user: str) -> set[str]:
    """Return the boards that a user has: claimed, leased, held, or reserved for now."""
    running = ask(_RUNNING, {"now": now})
    claimed = {board for board, submitter in running if board and _is(submitter, user)}
    kept = _rows(ask, "reservation", _RESERVED, "ends > :than", now)
    held = (row for row in kept if row["kind"] != "maintenance" and row["begins"] <= now)
    return claimed | {
        row["board"] for row in (*_leases(ask, now), *held) if _is(row["holder"], user)
    }


def _used_seconds(ask: "Ask", now: float, user: str) -> float:
    """Return the total time (s) that a user's commands had boards in the last day."""
    begin = now - _DAY_SECONDS
    used = 0.0
    for row in _leases(ask, now):
        used += max(0.0, now - max(row["since"], begin)) if _is(row["holder"], user) else 0.0
    for row in _rows(ask, "board_event", ("at", "kind", "details"), "at > :than", begin):
        had = row["details"]
        is_lease = row["kind"] == "state" and isinstance(had.get("since"), int | float)
        if is_lease and had.get("kind") not in UNCOUNTED and _is(had.get("holder"), user):
            used += max(0.0, row["at"] - max(had["since"], begin))
    return used


def _leases(ask: "Ask", now: float) -> Iterator[Mapping[str, Any]]:
    """Yield the leases in force that count."""
    names = ("board", "holder", "since", "expires")
    yield from _rows(ask, "board_lease", names, f"{COUNTS} AND expires > :than", now)


def _rows(
    ask: "Ask", table: str, names: Sequence[str], later: str = "", than: float = 0.0
) -> Iterator[Mapping[str, Any]]:
    """Yield the undamaged rows of a table; damaged rows count for no user."""
    question = select(names, table, *([later] if later else ()))
    for row in ask(question, {"than": than} if later else {}):
        values, damaged = read(table, names, row)
        if damaged is None:
            yield values


def _user(holder: str) -> str:
    return holder.partition("@")[0]


def _is(holder: object, user: str) -> bool:
    return isinstance(holder, str) and _user(holder) == user
