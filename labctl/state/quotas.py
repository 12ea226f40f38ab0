"""Quotas: the limits of one user's share of a lab's boards."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from labctl.config.quotas import EACH, Quota
from labctl.errors import BoardBusy

if TYPE_CHECKING:
    from sqlalchemy import Connection

_DAY_SECONDS = 24 * 3600.0
_HINT = "wait, or release a board; `quotas` in devices.yaml says how much a user may have"


class QuotaCheck:
    """Check at one moment, in the caller's transaction. A user is the same on all hosts."""

    def __init__(self, connection: "Connection", now: float, quotas: Mapping[str, Quota]):
        self._connection = connection
        self._now = now
        self._quotas = quotas
        self._boards: dict[str, set[str]] = {}
        self._used: dict[str, float] = {}

    def check(self, board: str, holder: str) -> None:
        """Raise BoardBusy if ``USER@HOST`` may not also have ``board`` now."""
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
                self._used[user] = _used_seconds(self._connection, self._now, user)
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
            self._boards[user] = _boards(self._connection, self._now, user)
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
    """Raise BoardBusy if ``USER@HOST`` may not also have ``board`` at some time."""
    from sqlalchemy import text

    user = holder.partition("@")[0]
    quota = quotas.get(user, quotas.get(EACH))
    if quota is None or quota.boards is None:
        return
    question = (
        "SELECT begins, ends, board, holder FROM reservation"
        " WHERE kind <> 'maintenance' AND begins < :ends AND ends > :begins AND board <> :board"
    )
    values = {"begins": begins, "ends": ends, "board": board}
    kept = [row for row in connection.execute(text(question), values) if _is(row[3], user)]
    # Nobody has more boards than when one of them begins.
    for moment in {begins, *(row[0] for row in kept if row[0] > begins)}:
        others = sorted({row[2] for row in kept if row[0] <= moment < row[1]})
        if len(others) >= quota.boards:
            raise BoardBusy(
                f"{user} has {', '.join(others)} in that time, and may have {quota.boards} at once",
                hint=_HINT,
            )


def _boards(connection: "Connection", now: float, user: str) -> set[str]:
    """Return the boards that a user has: leased, held, or reserved for now."""
    from sqlalchemy import text

    rows = connection.execute(
        text(
            "SELECT board, holder FROM board_lease WHERE expires > :now UNION ALL"
            " SELECT board, holder FROM reservation"
            " WHERE kind <> 'maintenance' AND begins <= :now AND ends > :now"
        ),
        {"now": now},
    )
    return {board for board, holder in rows if _is(holder, user)}


def _used_seconds(connection: "Connection", now: float, user: str) -> float:
    """Return the time (s) that a user's commands had boards in the last day, over all boards."""
    from sqlalchemy import text

    begin = now - _DAY_SECONDS
    used = 0.0
    live = "SELECT holder, since FROM board_lease WHERE expires > :now"
    for holder, since in connection.execute(text(live), {"now": now}):
        used += now - max(since, begin) if _is(holder, user) else 0.0
    ended = "SELECT at, details FROM board_event WHERE kind = 'state' AND at > :begin"
    for at, details in connection.execute(text(ended), {"begin": begin}):
        lease = json.loads(details) if details else {}
        if "since" in lease and _is(lease["holder"], user):
            used += at - max(lease["since"], begin)
    return used


def _user(holder: str) -> str:
    return holder.partition("@")[0]


def _is(holder: str, user: str) -> bool:
    return _user(holder) == user
