"""The order of the queue.

1. The next job of a unit of which a job has just ended: its board is kept for it.
2. Jobs that somebody moved to the front, the last moved first.
3. Greater priority before smaller.
4. Within a priority, the user with the fewest running jobs; of one user's jobs and groups, the one
   with the fewest running jobs. What is handed out counts at once, so that they take turns; where
   they have equally many, who had the free board last comes after the others.
5. Of jobs in no group the one that stands first, as submitted. Of a group's, see
   :func:`longest_first`.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from labctl.state.uses import UseKind

#: User and group of a job.
Source = tuple[str, str | None]
#: Number of running jobs by user and group.
Running = Mapping[Source, int]
#: If more boards than this are free at once, a group gives them jobs of many lengths.
MIXED_ABOVE = 16
#: A job this many times as long as its group's mean is far longer, and is not mixed with others.
_FAR_LONGER = 2


@dataclass(frozen=True)
class Waiting:
    """The facts of a waiting job that the order needs; of a unit, those of its next job."""

    id: str
    #: Boards on which it may run, best first.
    boards: tuple[str, ...]
    priority: int
    #: Below 0: moved to the front.
    position: float
    submitter: str
    #: True if its own process waits for a board; no other process runs it.
    is_foreground: bool = False
    #: Maximum duration in s, of a unit that of all its jobs together.
    max_seconds: float = 0.0
    kind: UseKind = "run"
    #: Shared limits that it uses besides those of its board.
    uses: tuple[str, ...] = ()
    #: For people.
    name: str = ""
    #: Expected duration in s, of a unit that of all its jobs together.
    expected_seconds: float = 0.0
    #: Number of attempts that infrastructure interrupted.
    failures: int = 0
    group: str | None = None
    unit: str | None = None
    #: The board that is kept for it, after the last job of its unit.
    kept: str | None = None
    #: SHA-256 of its content.
    content: str = ""


#: True if a job may have a board.
Suits = Callable[[Waiting, str], bool]


def in_order(waiting: Sequence[Waiting], running: Running) -> Iterator[Waiting]:
    """Yield all jobs in the order in which they would begin."""
    counts = Counter(dict(running))
    for job in _turns(waiting, counts, ()):
        counts[job.submitter, job.group] += 1
        yield job


def hand_out(
    waiting: Sequence[Waiting],
    running: Running,
    boards: Sequence[str],
    suits: Suits = lambda _job, _board: True,
    last: Collection[Source] = (),
) -> Iterator[tuple[Waiting, str]]:
    """Yield jobs with the free board that each gets; ``last``: who had these boards last.

    That is the first of its boards that suits it; for a job of a group the one that the fewest
    waiting jobs can use.
    """
    free, counts = set(boards), Counter(dict(running))
    wanted = Counter(board for job in waiting for board in free.intersection(job.boards))
    for job in _turns(waiting, counts, free, last):
        if not free:
            return
        choice: Iterable[str] = job.boards
        if job.group is not None:
            choice = sorted(free.intersection(job.boards), key=lambda one: (wanted[one], one))
        board = next((one for one in choice if one in free and suits(job, one)), None)
        wanted.subtract(job.boards)
        if board is not None:
            free.remove(board)
            counts[job.submitter, job.group] += 1
            yield job, board


def _turns(
    waiting: Sequence[Waiting],
    counts: Counter[Source],
    free: Collection[str],
    last: Collection[Source] = (),
) -> Iterator[Waiting]:
    """Yield all jobs; ``counts`` and ``free`` may change between two of them."""
    yield from sorted((job for job in waiting if job.kept), key=_place)
    yield from sorted((job for job in waiting if job.position < 0 and not job.kept), key=_place)
    levels: dict[int, dict[Source, list[Waiting]]] = {}
    for job in waiting:
        if job.position >= 0 and not job.kept:
            sources = levels.setdefault(-job.priority, {})
            sources.setdefault((job.submitter, job.group), []).append(job)
    for _, sources in sorted(levels.items()):
        yield from _in_turn(sources, counts, free, last)


def _in_turn(
    sources: Mapping[Source, Sequence[Waiting]],
    counts: Counter[Source],
    free: Collection[str],
    last: Collection[Source],
) -> Iterator[Waiting]:
    """Yield jobs of one priority: users take turns, and each user's groups."""
    queues = {
        source: sorted(jobs, key=_place) if source[1] is None else longest_first(jobs, len(free))
        for source, jobs in sources.items()
    }
    queued = {source: iter(jobs) for source, jobs in queues.items()}
    heads = {source: next(jobs) for source, jobs in queued.items()}
    users = Counter[str]()
    for (user, _), count in counts.items():
        users[user] += count
    had = {user for user, _ in last}

    def turn(one: Source) -> tuple[object, ...]:
        user = one[0]
        return users[user], user in had, counts[one], one in last, _place(heads[one])

    while heads:
        before = counts.total()
        source = min(heads, key=turn)
        yield heads[source]
        users[source[0]] += counts.total() - before
        following = next(queued[source], None)
        if following is None:
            del heads[source]
        else:
            heads[source] = following


def longest_first(jobs: Sequence[Waiting], free: int = 0) -> Sequence[Waiting]:
    """Return a group's jobs in their order: all boards are to end at about the same time.

    Longest first: equal boards then take at most 4/3 of the least time (Graham 1969). Where jobs
    may use different boards, those of the set of boards with the most work for each come first. If
    many boards are ``free`` and all began with the longest jobs, they would change jobs in the same
    second, and wait for their host: then each gets a job of another length. A job that was broken
    off twice comes last: other jobs first show if its boards are well.
    """
    doubtful = [job for job in jobs if job.failures > 1]
    found = [*_by_load([job for job in jobs if job.failures <= 1])]
    if MIXED_ABOVE < free <= len(found) / 2:
        found = _mixed(found, free)
    return [*found, *sorted(doubtful, key=_length)]


def _by_load(jobs: Sequence[Waiting]) -> Iterator[Waiting]:
    """Yield jobs longest first, those before others whose boards have more work left."""
    pools: dict[tuple[str, ...], list[Waiting]] = {}
    for job in jobs:
        pools.setdefault(job.boards, []).append(job)
    for pool in pools.values():
        pool.sort(key=_length, reverse=True)
    sets = {boards: frozenset(boards) for boards in pools}
    wider = {boards: [other for other in pools if sets[boards] <= sets[other]] for boards in pools}
    # One job of others on one of few boards delays them more than on one of many.
    longest = max((job.expected_seconds for job in jobs), default=0.0)
    loads = {boards: longest / max(1, len(boards)) for boards in pools}
    for boards, pool in pools.items():
        for other in wider[boards]:
            loads[other] += sum(job.expected_seconds for job in pool) / max(1, len(other))
    heap = [(-loads[boards], boards) for boards in pools]
    heapq.heapify(heap)
    while heap:
        load, boards = heap[0]
        if -load != loads[boards]:  # it has become less
            heapq.heapreplace(heap, (-loads[boards], boards))
            continue
        job = pools[boards].pop()
        for other in wider[boards]:
            loads[other] -= job.expected_seconds / max(1, len(other))
        if pools[boards]:
            heapq.heapreplace(heap, (-loads[boards], boards))
        else:
            heapq.heappop(heap)
        yield job


def _mixed(jobs: Sequence[Waiting], free: int) -> list[Waiting]:
    """Return jobs, first as many of all lengths as boards are free, after those far longer."""
    limit = _FAR_LONGER * sum(job.expected_seconds for job in jobs) / len(jobs)
    far = [job for job in jobs if job.expected_seconds >= limit > 0]
    others = [job for job in jobs if not job.expected_seconds >= limit > 0]
    by_length, count = sorted(others, key=_length), max(1, free - len(far))
    first = [by_length[len(by_length) * number // count] for number in range(count)]
    chosen = {job.id for job in first}
    return [*far, *first, *(job for job in others if job.id not in chosen)]


def _length(job: Waiting) -> tuple[float, float, str]:
    return -job.expected_seconds, *_place(job)


def _place(job: Waiting) -> tuple[float, str]:
    return job.position, job.id
