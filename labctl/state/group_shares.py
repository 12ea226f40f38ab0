"""The jobs of a large group, dealt to its boards at submission.

If many boards took the longest job each time, they would change jobs in the same second, and wait
for their host. So the jobs are dealt beforehand, as evenly as with longest first, and a board runs
its share in an order independent of length. The last jobs of each share may go to other boards: a
board that is ahead takes the longest ones. A board without a share helps the others.
"""

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from labctl.state.waiting import Waiting

#: Jobs are dealt if they may use more boards than this.
DEALT_ABOVE = 16
#: Number of last jobs of each share that other boards may take.
_LAST = 3
#: A job at least this many times as long as the mean is not dealt, but begins before the others.
_FAR_LONGER = 2


def deal(
    jobs: Sequence[Waiting], dealt_seconds: Mapping[str, float] | None = None
) -> Mapping[str, str]:
    """Return the home of each dealt job: its board with the least work so far.

    Jobs that may use few boards are dealt first, and among these the longest. ``dealt_seconds``:
    board -> total length of the jobs dealt to it before.
    """
    if max((len(job.boards) for job in jobs), default=0) <= DEALT_ABOVE:
        return {}
    limit = _FAR_LONGER * sum(job.expected_seconds for job in jobs) / len(jobs)
    loads = dict(dealt_seconds or {})
    heaps: dict[tuple[str, ...], list[tuple[float, int, str]]] = {}
    homes = {}
    for job in sorted(jobs, key=lambda one: (len(one.boards), -one.expected_seconds, one.id)):
        if job.expected_seconds >= limit > 0:
            continue
        if job.boards not in heaps:
            heaps[job.boards] = [
                (loads.get(board, 0.0), place, board) for place, board in enumerate(job.boards)
            ]
            heapq.heapify(heaps[job.boards])
        heap = heaps[job.boards]
        while (load := loads.get(heap[0][-1], 0.0)) != heap[0][0]:  # another pool added a job
            heapq.heapreplace(heap, (load, *heap[0][1:]))
        homes[job.id] = board = heap[0][-1]
        loads[board] = load + job.expected_seconds
    return homes


def next_of_shares(
    jobs: Sequence[Waiting], free: Collection[str], busy: Mapping[str, float]
) -> Iterator[tuple[Waiting, str]]:
    """Yield the next job for each free board; ``busy``: board -> time (s) until its job ends."""
    shares = _Shares(jobs, busy)
    for board in free:
        if (job := shares.take(board)) is not None:
            yield job, board


@dataclass
class _Share:
    """The waiting jobs of one home."""

    jobs: list[Waiting]
    seconds: float = 0.0

    def __len__(self) -> int:
        return len(self.jobs)

    def fits(self, board: str) -> bool:
        """Return True if a board may run all jobs of the share."""
        return all(board in job.boards for job in self.jobs)


class _Shares:
    def __init__(self, jobs: Sequence[Waiting], busy: Mapping[str, float]):
        self._of: dict[str, _Share] = {}
        boards = set[str]()
        for job in jobs:
            boards.update(job.boards)
            share = self._of.setdefault(str(job.home), _Share([]))
            share.jobs.append(job)
            share.seconds += job.expected_seconds
        self._boards = max(1, len(boards))
        self._widest = max((len(job.boards) for job in jobs), default=0)
        self._busy_seconds = sum(busy.get(board, 0.0) for board in boards)

    def take(self, board: str) -> Waiting | None:
        """Remove and return the next job of a free board."""
        own = self._of.get(board)
        if own and (len(own) > _LAST or not self._is_exchanged(own)):
            job = min(own.jobs, key=_in_share)
        else:
            others = [one for one in self._of.values() if one and one.fits(board)]
            if not others:
                return None
            numbers = [self._left_for_each(), *range(_LAST, 0, -1)]
            equal = ([one for one in others if len(one) == number] for number in numbers)
            own = max(next(filter(None, equal), others), key=lambda one: one.seconds)
            job = max(own.jobs, key=lambda one: (one.expected_seconds, one.id))
        own.jobs.remove(job)
        own.seconds -= job.expected_seconds
        return job

    def _left_for_each(self) -> int:
        """Return the number of jobs that a free board still takes until all boards end."""
        waiting = sum(share.seconds for share in self._of.values())
        mean = waiting / max(1, sum(map(len, self._of.values())))
        until_end = (waiting + self._busy_seconds) / self._boards
        return min(_LAST, max(1, round(until_end / mean))) if mean > 0 else 1

    def _is_exchanged(self, share: _Share) -> bool:
        """Return True if other boards may run a share's last jobs too."""
        return all(len(job.boards) == self._widest for job in share.jobs)


def _in_share(job: Waiting) -> tuple[int, int, str]:
    """Return the place of a job in its share: jobs that many boards may take come late."""
    return len(job.boards), crc32(job.id.encode()), job.id
