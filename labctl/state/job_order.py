"""The order of the queue.

1. Jobs that somebody moved to the front, the last moved first.
2. Greater priority before smaller.
3. Within a priority, the user with the fewest running jobs; a job that is handed out counts at
   once, so that users take turns.
4. Of one user's jobs, the one that stands first: as submitted, and within a batch the longest
   first.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from labctl.state.uses import UseKind


@dataclass(frozen=True)
class Waiting:
    """The facts of a waiting job that the order needs."""

    id: str
    #: Boards on which it may run, best first.
    boards: tuple[str, ...]
    priority: int
    #: Below 0: moved to the front.
    position: float
    submitter: str
    #: True if its own process waits for a board; no other process runs it.
    is_foreground: bool = False
    #: Maximum duration in s.
    max_seconds: float = 0.0
    kind: UseKind = "run"
    #: Shared limits that it uses besides those of its board.
    uses: tuple[str, ...] = ()
    #: For people.
    name: str = ""


#: True if a job may have a board.
Suits = Callable[[Waiting, str], bool]


def in_order(waiting: Sequence[Waiting], running: Mapping[str, int]) -> Iterator[Waiting]:
    """Yield all jobs in the order in which they would begin; ``running`` counts jobs by user."""
    counts = Counter(running)
    for job in _turns(waiting, counts):
        counts[job.submitter] += 1
        yield job


def hand_out(
    waiting: Sequence[Waiting],
    running: Mapping[str, int],
    boards: Sequence[str],
    suits: Suits = lambda _job, _board: True,
) -> Iterator[tuple[Waiting, str]]:
    """Yield jobs with the free board that each gets: the first of its boards that suits it."""
    free, counts = set(boards), Counter(running)
    for job in _turns(waiting, counts):
        if not free:
            return
        board = next((one for one in job.boards if one in free and suits(job, one)), None)
        if board is not None:
            free.remove(board)
            counts[job.submitter] += 1
            yield job, board


def _turns(waiting: Sequence[Waiting], counts: Counter[str]) -> Iterator[Waiting]:
    """Yield all jobs; ``counts`` may change between two of them."""
    yield from sorted((job for job in waiting if job.position < 0), key=_place)
    queues: dict[tuple[int, str], list[Waiting]] = {}
    for job in sorted((job for job in waiting if job.position >= 0), key=_place, reverse=True):
        queues.setdefault((-job.priority, job.submitter), []).append(job)
    for priority in sorted({key[0] for key in queues}):
        users = {user: jobs for (level, user), jobs in queues.items() if level == priority}
        while users:
            user = min(users, key=lambda one: (counts[one], _place(users[one][-1])))
            yield users[user].pop()
            if not users[user]:
                del users[user]


def _place(job: Waiting) -> tuple[float, str]:
    return job.position, job.id
