"""Boards that may be attached to any host: a worker serves the boards that it reached lately.

A contact from a host that does not reach a board does not count as an attempt at a job, and says
nothing about the board.
"""

import threading
import time
from collections.abc import Callable, Collection

from labctl.config.lab import Board, LabFile
from labctl.errors import BoardBusy, HostError, LabctlError, LinkError
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.board.session import hold_board
from labctl.transport.base import Transport

#: A board that was reached is not contacted again within this time (s).
LATELY_SECONDS = 60.0
#: A board that was not reached is contacted again after this time (s).
AGAIN_SECONDS = 15.0
_LOOK = BoardUse("see if this host reaches it", kind="check")


class Reach:
    """Tells which of some boards this host reaches.

    ``contact`` contacts a board that nobody has, in a thread of its own. Raises LinkError or
    HostError if it does not answer, BoardBusy if somebody has it, any other LabctlError if it
    answers but has a problem.
    """

    def __init__(
        self,
        boards: Collection[str],
        contact: Callable[[str], None],
        *,
        lately_seconds: float = LATELY_SECONDS,
        again_seconds: float = AGAIN_SECONDS,
    ):
        self._boards = boards
        self._contact = contact
        self._lately_seconds, self._again_seconds = lately_seconds, again_seconds
        #: Board -> whether it answered, and until when that counts, by the monotonic clock.
        self._known: dict[str, tuple[bool | None, float]] = {}
        self._asking: set[str] = set()
        self._lock = threading.Lock()

    @property
    def asking(self) -> Collection[str]:
        """Boards that are contacted now."""
        with self._lock:
            return frozenset(self._asking)

    def reaches(self, board: str) -> bool | None:
        """Return whether this host reaches a board; None if it does not know.

        In that case the board is contacted, unless somebody had it a moment ago.
        """
        if board not in self._boards:
            return True
        with self._lock:
            answered, until = self._known.get(board, (None, 0.0))
            if time.monotonic() < until:
                return answered
            if board not in self._asking:
                self._asking.add(board)
                threading.Thread(target=self._ask, args=(board,), name=f"contact {board}").start()
        return None

    def _ask(self, board: str) -> None:
        found, seconds = None, self._again_seconds
        try:
            found = self._answers(board)
            seconds = self._lately_seconds if found else self._again_seconds
        finally:
            with self._lock:
                self._asking.discard(board)
                self._known[board] = found, time.monotonic() + seconds

    def _answers(self, board: str) -> bool | None:
        try:
            self._contact(board)
        except BoardBusy:
            return None
        except (LinkError, HostError):
            return False
        except LabctlError:  # an attempt at a job reports it
            return True
        return True


def host_reach(
    lab: LabFile, boards: Collection[str], connect: Callable[[Board], Transport]
) -> Reach:
    """Return the :class:`Reach` of a worker's host to the boards that any host may have."""

    def contact(name: str) -> None:
        board = lab.board(name)
        with connect(board) as link, hold_board(board, link, lab, _LOOK):
            pass

    return Reach({name for name in boards if lab.lab.is_anywhere(name)}, contact)
