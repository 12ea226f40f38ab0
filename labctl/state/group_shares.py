"""The jobs of a large group, dealt to its boards at submission.

If many boards took the longest job each time, they would change jobs in the same second, and wait
for their host. So the jobs are dealt beforehand, as evenly as with longest first, and a board runs
its share in an order that does not depend on length. The last jobs of each share, the shortest
among them, may go to other boards: who is free takes the longest of all these. A board without a
share helps the others.
"""

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from zlib import crc32

from labctl.state.waiting import Waiting

#: Jobs are dealt if they may use more boards than this.
DEALT_ABOVE = 16
#: Number of last jobs of each share that other boards may take, and how many of these are the
#: share's shortest. Simulated (200 boards, 2,000 jobs of 60 to 420 s, of a lognormal length, or of
#: two lengths): with the shortest alone boards end together as well, but also change jobs together.
_LAST, _SHORTEST = 4, 2
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


def next_of_shares(jobs: Sequence[Waiting], free: Collection[str]) -> Iterator[tuple[Waiting, str]]:
    """Yield the next job for each free board."""
    shares = _Shares(jobs)
    for board in free:
        if (job := shares.take(board)) is not None:
            yield job, board


class _Shares:
    """The waiting jobs by home, each share in its order."""

    def __init__(self, jobs: Sequence[Waiting]):
        self._widest = max((len(job.boards) for job in jobs), default=0)
        homes: dict[str, list[Waiting]] = {}
        for job in sorted(jobs, key=_by_length):
            homes.setdefault(str(job.home), []).append(job)
        self._of = {
            home: [*sorted(share[:-_SHORTEST], key=_in_share), *share[-_SHORTEST:]]
            if self._is_exchanged(share)
            else sorted(share, key=_in_share)
            for home, share in homes.items()
        }

    def take(self, board: str) -> Waiting | None:
        """Remove and return the next job of a free board."""
        own = self._of.get(board, [])
        if len(own) > (_LAST if self._is_exchanged(own) else 0):
            return own.pop(0)
        last = [one for share in self._of.values() for one in share[-_LAST:]]
        if not (suited := [one for one in last if board in one.boards]):
            return None
        job = min(suited, key=_by_length)
        self._of[str(job.home)].remove(job)
        return job

    def _is_exchanged(self, share: Sequence[Waiting]) -> bool:
        """Return True if other boards may run a share's last jobs too."""
        return all(len(job.boards) == self._widest for job in share)


def _by_length(job: Waiting) -> tuple[float, str]:
    return -job.expected_seconds, job.id


def _in_share(job: Waiting) -> tuple[int, int, str]:
    """Return the place of a job in its share: jobs that many boards may take come late."""
    return len(job.boards), crc32(job.id.encode()), job.id
