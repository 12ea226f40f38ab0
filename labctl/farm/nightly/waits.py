"""Waits of a night for a restarting board, a database or a repository."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from labctl.errors import ServiceAway
from labctl.farm.nightly.executor import Executor
from labctl.retry import RETRY_SECONDS

#: Pauses (s) between two attempts grow from the first of these to the second.
FIRST_SECONDS, LONGEST_SECONDS = 5.0, 300.0
#: A board that answers again within this time (s) keeps its rows.
BACK_SECONDS = RETRY_SECONDS
#: The same if its host is at fault, that is if other boards of the host fail too.
HOST_BACK_SECONDS = 1800.0
#: Minimum time (s) of a pause and of another attempt.
_LEAST_SECONDS = 1.0
T = TypeVar("T")


@dataclass(frozen=True)
class Waits:
    """Waits that end at the night's deadline, in seconds since 1970."""

    executor: Executor
    deadline: float

    def pause(self, board: str | None, since: float, needed: float, why: str) -> bool:
        """Wait before the next attempt, about as long as the outage so far; False: no time is left.

        ``since`` is the time of the first attempt that failed. ``needed`` is the time (s) that the
        shortest useful work takes after the pause.
        """
        now = self.executor.now(board)
        wanted = min(max(FIRST_SECONDS, now - since), LONGEST_SECONDS)
        seconds = min(wanted, self.deadline - needed - now - _LEAST_SECONDS)
        if seconds < _LEAST_SECONDS:
            return False
        self.executor.wait(board, seconds, why)
        return True

    def patiently(self, board: str, do: Callable[[], T], needed: float = 0.0) -> T:
        """Return what ``do`` returns; repeat it while a service is away.

        Raises ServiceAway when no time is left, and any other error at once.
        """
        since: float | None = None
        while True:
            try:
                return do()
            except ServiceAway as error:
                since = self.executor.now(board) if since is None else since
                if not self.pause(board, since, needed, error.message):
                    raise
