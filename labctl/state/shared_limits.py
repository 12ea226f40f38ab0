"""Shared limits, counted over the running jobs of all hosts, for every kind of use."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from labctl.config.shared_limits import SharedLimits
from labctl.database.questions import select
from labctl.errors import BoardBusy
from labctl.state.tables import read
from labctl.state.uses import USES

if TYPE_CHECKING:
    from labctl.database.base import Ask

#: Maximum number of jobs named in the reason of a waiting job.
_NAMED = 3
_NAMES = ("name", "board", "uses", "kind")
_RUNNING = select(_NAMES, "job", "state = 'running' AND expires >= :now")


class LimitCheck:
    """Limit check at one moment, in the caller's transaction."""

    def __init__(self, ask: "Ask", now: float, limits: SharedLimits):
        self._limits = limits
        #: Limit -> the jobs that use it, for people.
        self._users: dict[str, list[str]] = {}
        if not limits.most:
            return
        for row in ask(_RUNNING, {"now": now}):
            job, damaged = read("job", _NAMES, row)
            if damaged is None and job["board"] is not None and USES[job["kind"]].limits:
                self.took(job["board"], job["uses"], job["name"])

    def check(self, board: str, uses: Sequence[str]) -> None:
        """Raise BoardBusy if a limit does not allow one more job on a board."""
        for limit in self._limits.of(board, uses):
            users, most = self._users.get(limit, []), self._limits.most[limit]
            if len(users) >= most:
                more = f" and {len(users) - _NAMED} more" if len(users) > _NAMED else ""
                raise BoardBusy(
                    f"shared limit {limit} is in use by {len(users)} of {most} jobs:"
                    f" {', '.join(users[:_NAMED])}{more}",
                    hint="wait; `shared_limits` in devices.yaml says how many may use it",
                )

    def took(self, board: str, uses: Sequence[str], name: str) -> None:
        """Count a job that gets a board."""
        for limit in self._limits.of(board, uses):
            self._users.setdefault(limit, []).append(f"{name} on {board}")
