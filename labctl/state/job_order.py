"""The order of the queue.

1. The next job of a unit whose previous job has just ended: the board is kept for it.
2. Jobs moved to the front, the last moved first.
3. Higher priority first.
4. Within a priority, the user with the fewest running jobs; of one user's jobs and groups, the one
   with the fewest running jobs. What is handed out counts at once, so that they take turns; where
   they have equally many, who had the free board last comes after the others.
5. Of jobs in no group the one that stands first, as submitted. Of a group's, see
   :func:`longest_first`, and for groups of many boards :mod:`labctl.state.group_shares`.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from labctl.state.group_shares import next_of_shares
from labctl.state.waiting import Waiting

#: A job's user and group.
Source = tuple[str, str | None]
#: Number of running jobs by user and group.
Running = Mapping[Source, int]


#: True if a job may have a board.
Suits = Callable[[Waiting, str], bool]


def in_order(waiting: Sequence[Waiting], running: Running) -> Iterator[Waiting]:
    """Yield all jobs in the order in which they would begin."""
    counts = Counter(dict(running))
    for job, _ in _turns(waiting, counts, ()):
        counts[job.submitter, job.group] += 1
        yield job


def hand_out(
    waiting: Sequence[Waiting],
    running: Running,
    boards: Sequence[str],
    suits: Suits = lambda _job, _board: True,
    last: Collection[Source] = (),
) -> Iterator[tuple[Waiting, str]]:
    """Yield jobs, each with its free board.

    A job gets the first suitable board of its list. A job of a group gets the board that the fewest
    waiting jobs can use, unless it is dealt to another board. ``last``: last users of these boards.
    """
    free, counts = set(boards), Counter(dict(running))
    wanted = Counter(board for job in waiting for board in free.intersection(job.boards))
    for job, own in _turns(waiting, counts, free, last):
        if not free:
            return
        choice: Iterable[str] = job.boards
        if job.group is not None:
            choice = sorted(
                free.intersection(job.boards), key=lambda one: (one != own, wanted[one], one)
            )
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
) -> Iterator[tuple[Waiting, str | None]]:
    """Yield all jobs, some with their own board; ``counts`` may change between two jobs."""
    kept = (job for job in waiting if job.kept)
    moved = (job for job in waiting if job.position < 0 and not job.kept)
    yield from ((job, None) for job in (*sorted(kept, key=_place), *sorted(moved, key=_place)))
    levels: dict[int, dict[Source, list[Waiting]]] = {}
    for job in waiting:
        if job.position >= 0 and not job.kept:
            sources = levels.setdefault(-job.priority, {})
            sources.setdefault((job.submitter, job.group), []).append(job)
    for _, sources in sorted(levels.items()):
        queues = {
            source: [(job, None) for job in sorted(jobs, key=_place)]
            if source[1] is None
            else _of_group(jobs, sorted(free))
            for source, jobs in sources.items()
        }
        yield from _in_turn(queues, counts, last)


def _of_group(jobs: Sequence[Waiting], free: Sequence[str]) -> Sequence[tuple[Waiting, str | None]]:
    """Return a group's jobs in their order: jobs that are not dealt, then the boards' shares."""
    dealt = [job for job in jobs if job.home in job.boards and job.failures == 0]
    if not dealt:
        return [(job, None) for job in longest_first(jobs)]
    known = {job.id for job in dealt}
    first = longest_first([job for job in jobs if job.id not in known and job.failures <= 1])
    given = [*next_of_shares(dealt, free)]
    known = {job.id for job, _ in given} | {job.id for job in first}
    rest = longest_first([job for job in jobs if job.id not in known])
    return [*((job, None) for job in first), *given, *((job, None) for job in rest)]


def _in_turn(
    queues: Mapping[Source, Sequence[tuple[Waiting, str | None]]],
    counts: Counter[Source],
    last: Collection[Source],
) -> Iterator[tuple[Waiting, str | None]]:
    """Yield jobs of one priority: users take turns, and each user's groups."""
    queued = {source: iter(jobs) for source, jobs in queues.items()}
    heads = {source: next(jobs) for source, jobs in queued.items()}
    users = Counter[str]()
    for (user, _), count in counts.items():
        users[user] += count
    had = {user for user, _ in last}

    def turn(one: Source) -> tuple[object, ...]:
        user = one[0]
        return users[user], user in had, counts[one], one in last, _place(heads[one][0])

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


def longest_first(jobs: Sequence[Waiting]) -> Sequence[Waiting]:
    """Return a group's jobs in an order that lets all boards end at about the same time.

    Longest first: equal boards then take at most 4/3 of the least possible time (Graham 1969). If
    jobs may use different sets of boards, the set with the most work per board comes first. A job
    that was interrupted twice comes last: other jobs first show whether its boards are well.
    """
    doubtful = [job for job in jobs if job.failures > 1]
    found = _by_load([job for job in jobs if job.failures <= 1])
    return [*found, *sorted(doubtful, key=_length)]


def _by_load(jobs: Sequence[Waiting]) -> Iterator[Waiting]:
    """Yield the longest job of the boards with the most work left, then the next."""
    pools: dict[tuple[str, ...], list[Waiting]] = {}
    for job in jobs:
        pools.setdefault(job.boards, []).append(job)
    for pool in pools.values():
        pool.sort(key=_length, reverse=True)
    sets = {boards: frozenset(boards) for boards in pools}
    wider = {boards: [other for other in pools if sets[boards] <= sets[other]] for boards in pools}
    # A foreign job delays a small set of boards more than a large set.
    longest = max((job.expected_seconds for job in jobs), default=0.0)
    loads = {boards: longest / max(1, len(boards)) for boards in pools}
    for boards, pool in pools.items():
        for other in wider[boards]:
            loads[other] += sum(job.expected_seconds for job in pool) / max(1, len(other))
    heap = [(-loads[boards], boards) for boards in pools]
    heapq.heapify(heap)
    while heap:
        load, boards = heap[0]
        if -load != loads[boards]:  # the load has become less
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


def _length(job: Waiting) -> tuple[float, float, str]:
    return -job.expected_seconds, *_place(job)


def _place(job: Waiting) -> tuple[float, str]:
    return job.position, job.id
