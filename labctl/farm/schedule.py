"""The scheduling of jobs on boards. It uses no clock, thread or board.

Greater priority first, and within one priority the longest first: equal boards then take at most
4/3 of the least time (Graham 1969). A job waits while its board, or a shared limit, has no room;
jobs behind it proceed. Of several free boards it gets the one that the fewest waiting jobs can use.

If many boards all begin with the longest jobs, they change jobs in the same second and wait for
their host. So with more than ``deal_above`` boards, jobs are dealt beforehand: the longest first,
each to the board with the least work. A job far longer than the others is not dealt: the first free
board takes it. A board runs its share in an order independent of length. Of several boards that
begin at once, the one with the shortest job begins first, so that they end one after the other.
Before its last two jobs a board exchanges them for the longest last two of all boards, and again
before the last one: the first board there is ahead. Without jobs it takes the longest elsewhere.
"""

import heapq
import sys
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import islice
from zlib import crc32

from labctl.errors import Blame, ExitStatus
from labctl.farm.job import FarmJob, JobResult
from labctl.state.blame import BrokenBoard, blame_reason, broken_by_job

#: A job is given up after this number of interruptions by infrastructure.
MOST_ATTEMPTS = 3
#: A job this many times as long as the mean is not dealt, and begins before the others.
_FAR_LONGER = 2
#: Number of last jobs of each board that are exchanged.
_EXCHANGED = 2


@dataclass
class _Unit:
    """Jobs that run on one board one after the other; most are alone."""

    jobs: list[FarmJob]
    boards: frozenset[str]
    #: Boards that failed under it.
    broken: dict[str, "_Break"] = field(default_factory=dict)
    attempts: int = 0
    #: Board that it was dealt to; None: the first free board.
    home: str | None = None
    #: Its position among equal priorities; None: by its length.
    turn: int | None = None

    @cached_property
    def seconds(self) -> float:
        return sum(job.expected_seconds for job in self.jobs)

    @property
    def urgency(self) -> tuple[int, bool]:
        # A job that broke two boards goes last: other jobs first show if the boards are well.
        return -self.jobs[0].priority, len(self.broken) > 1

    @property
    def by_length(self) -> tuple[int, bool, float, str]:
        return *self.urgency, -self.seconds, self.jobs[0].id

    @property
    def by_start(self) -> tuple[int, bool, float]:
        return -self.jobs[0].priority, self.turn is not None, self.seconds

    @property
    def rank(self) -> tuple[int, bool, float, int, str]:
        waits = (-self.seconds, 0) if self.turn is None else (0.0, self.turn)
        return *self.urgency, *waits, self.jobs[0].id


@dataclass
class _Break:
    """A board that failed, and the number of jobs finished there before that."""

    ended: int
    was_well: bool
    with_others: bool = False


@dataclass(frozen=True)
class _Running:
    unit: _Unit
    board: str
    limits: list[str]


@lru_cache(maxsize=256)
def _pool(boards: tuple[str, ...]) -> frozenset[str]:
    return frozenset(boards)  # the same one for all jobs that share it


class Schedule:
    """Jobs that are not done, and the boards and limits that they share.

    Args:
        boards: the usable boards -> the shared limits of each.
        limits: how many jobs may use each shared limit at once.
        well: boards that their last health check found good.
        deal_above: jobs are dealt if there are more boards, which do not get ready all at once.
    """

    def __init__(
        self,
        boards: Mapping[str, tuple[str, ...]],
        limits: Mapping[str, int],
        *,
        well: Collection[str] = (),
        deal_above: int = sys.maxsize,
    ):
        self._uses, self._limits = dict(boards), dict(limits)
        self._boards, self._free = set(boards), set(boards)
        self._used: Counter[str] = Counter()
        #: The next job of a group keeps the board.
        self._kept: list[tuple[_Unit, str]] = []
        self._waiting: list[_Unit] = []
        self._running: dict[str, _Running] = {}
        #: Number of jobs finished on a board.
        self._ended: Counter[str] = Counter()
        self._well = set(well)
        self._deal_above = deal_above
        #: Boards that failed and were not offered again since, each with its job.
        self._broken: dict[str, _Unit] = {}
        #: Dealt jobs that wait, the longest first; it may include jobs that have begun since.
        self._dealt: list[_Unit] = []
        #: Board -> its dealt jobs that wait, the last one at the end.
        self._shares: dict[str, list[_Unit]] = {}
        #: Boards, and limits of a job, that have no room until something ends.
        self._full: set[tuple[frozenset[str], tuple[str, ...]]] = set()
        #: How many waiting units can use a board.
        self._demand: Counter[str] = Counter()

    def add(self, *jobs: FarmJob) -> None:
        """Add waiting jobs; jobs of one group must be added together."""
        groups: dict[str, _Unit] = {}
        for job in jobs:
            unit = groups.get(job.group) if job.group is not None else None
            if unit is not None:
                unit.jobs.append(job)
                unit.boards &= frozenset(job.boards)
                continue
            unit = _Unit([job], _pool(job.boards))
            self._waiting.append(unit)
            if job.group is not None:
                groups[job.group] = unit
        self._demand = Counter(board for unit in self._waiting for board in unit.boards)
        if len(self._boards) > self._deal_above:
            self._deal()
        self._waiting.sort(key=lambda unit: unit.rank)

    @property
    def is_over(self) -> bool:
        """True if nothing runs, and nothing waits for an existing board."""
        return not self._running and not self._kept and len(self.stranded) == len(self.waiting)

    @property
    def waiting(self) -> list[FarmJob]:
        """The jobs that wait, in their order."""
        units = [*(unit for unit, _ in self._kept), *self._waiting]
        return [job for unit in units for job in unit.jobs]

    @property
    def stranded(self) -> list[FarmJob]:
        """Waiting jobs that have no board left."""
        lost = (unit for unit in self._waiting if unit.boards.isdisjoint(self._boards))
        return [job for unit in lost for job in unit.jobs]

    def begin(self) -> list[tuple[FarmJob, str]]:
        """Return the jobs that begin now, each with its board."""
        begun: list[tuple[FarmJob, str]] = []
        kept, self._kept = self._kept, []
        for unit, board in kept:
            if self._has_room(unit.jobs[0], board):
                begun.append(self._start(unit, board))
            else:
                self._kept.append((unit, board))
        taken, place = list[_Unit](), 0
        self._full.clear()
        while self._free and place < len(self._waiting):
            urgency = self._waiting[place].urgency
            end = bisect_right(self._waiting, urgency, lo=place, key=lambda unit: unit.urgency)
            taken += self._take(islice(self._waiting, place, end), self._home_of, begun)
            for board in sorted(self._free & self._shares.keys()):
                taken += self._take(self._last_of(board, urgency), self._home_if_free, begun)
            if self._free:
                self._dealt = [unit for unit in self._dealt if unit.home is not None]
                others = (unit for unit in self._dealt if unit.urgency == urgency)
                taken += self._take(others, self._board_for, begun)
            place = end
        for unit in taken:
            del self._waiting[bisect_left(self._waiting, unit.rank, key=lambda unit: unit.rank)]
        if len(self._boards) > self._deal_above:
            begun.sort(key=lambda start: self._running[start[0].id].unit.by_start)
        return begun

    def end(self, job: FarmJob, result: JobResult) -> JobResult | None:
        """Note the end of an attempt; return the job's result, or None if it waits again.

        A board that failed, or that somebody else has, is not used until :meth:`offer` names it; a
        board put out of service is not used again.
        """
        ran = self._running.pop(job.id)
        unit, board = ran.unit, ran.board
        self._used.subtract(ran.limits)
        if result.is_board_out:
            self._boards.discard(board)
        if result.is_final:
            # A wrong job may have ended before it contacted the board.
            self._ended[board] += result.blame is not Blame.CONFIG
        else:
            given_up = self._again(unit, board, result)
            if given_up is None:
                return None
            result = given_up
        rest = _Unit(unit.jobs[1:], frozenset([board]))
        is_free = self._is_usable(board, result)
        if rest.jobs and is_free:
            self._kept.append((rest, board))
        elif rest.jobs:
            self._wait(rest)
        elif is_free:
            self._free.add(board)
        return result

    def offer(self, board: str) -> None:
        """Let a board be used again."""
        busy = {one.board for one in self._running.values()} | {kept for _, kept in self._kept}
        self._boards.add(board)
        self._broken.pop(board, None)
        if board not in busy:
            self._free.add(board)

    def _deal(self) -> None:
        """Deal the waiting jobs to the boards, the longest first."""
        mean = sum(unit.seconds for unit in self._waiting) / max(1, len(self._waiting))
        loads = dict.fromkeys(self._boards, (0.0, 0))
        loads |= {ran.board: (ran.unit.seconds, 1) for ran in self._running.values()}
        self._dealt = sorted(self._waiting, key=lambda unit: unit.by_length)
        #: Pool -> its boards, the one with the least work first; later deals may be missing.
        heaps: dict[frozenset[str], list[tuple[tuple[float, int], int, int, str]]] = {}
        for unit in self._dealt:
            if unit.boards not in heaps:
                heaps[unit.boards] = [
                    (loads[board], self._demand[board], place, board)
                    for place, board in enumerate(unit.jobs[0].boards)
                    if board in unit.boards and board in self._boards
                ]
                heapq.heapify(heaps[unit.boards])
            if not (heap := heaps[unit.boards]):
                continue
            while (load := loads[heap[0][-1]]) != heap[0][0]:
                heapq.heapreplace(heap, (load, *heap[0][1:]))
            board = heap[0][-1]
            loads[board] = load[0] + unit.seconds, load[1] + 1
            if unit.broken or unit.seconds >= _FAR_LONGER * mean:
                unit.home = unit.turn = None  # the first free board
            else:
                unit.home, unit.turn = board, crc32(unit.jobs[0].id.encode())
        self._shares = {}
        for unit in sorted(self._dealt, key=lambda unit: unit.rank):
            if unit.home is not None:
                self._shares.setdefault(unit.home, []).append(unit)

    def _last_of(self, board: str, urgency: tuple[int, bool]) -> list[_Unit]:
        """Return a board's last units; once it has no others, these are the longest of all."""
        own, count = self._shares[board], len(self._shares[board])
        if count <= _EXCHANGED and self._has_room(own[0].jobs[0], board):
            items = self._shares.items()
            rests = [(at, share[-count:]) for at, share in items if len(share) >= count]
            rests.sort(key=lambda one: (sum(unit.seconds for unit in one[1]), one[0] == board))
            fit = (
                home
                for home, rest in reversed(rests)
                if all(unit.urgency == urgency for unit in (*own, *rest))
                and all(board in unit.boards for unit in rest)
                and all(home in unit.boards for unit in own)
                and self._has_room(rest[0].jobs[0], board)
            )
            home = next(fit, board)
            if home != board:
                self._shares[board], self._shares[home][-count:] = self._shares[home][-count:], own
                for unit in (*own, *self._shares[board]):
                    unit.home = home if unit.home == board else board
        return [unit for unit in self._shares[board][-_EXCHANGED:] if unit.urgency == urgency]

    def _take(
        self,
        units: Iterable[_Unit],
        choose: Callable[[_Unit], str | None],
        begun: list[tuple[FarmJob, str]],
    ) -> list[_Unit]:
        """Begin units that get a board, while boards are free; return them."""
        taken = []
        for unit in units:
            if not self._free:
                break
            if (board := choose(unit)) is not None:
                self._free.remove(board)
                self._demand.subtract(unit.boards)
                if unit.home is not None:
                    self._shares[unit.home].remove(unit)
                    if not self._shares[unit.home]:
                        del self._shares[unit.home]
                unit.home = None
                begun.append(self._start(unit, board))
                taken.append(unit)
        return taken

    def _home_of(self, unit: _Unit) -> str | None:
        """Return the unit's own board if it is free; any free board if its own is gone."""
        if unit.home not in self._boards:
            return self._board_for(unit)
        home = self._home_if_free(unit)
        is_last = home and any(one is unit for one in self._shares[home][-_EXCHANGED:])
        return None if is_last else home

    def _home_if_free(self, unit: _Unit) -> str | None:
        has_room = unit.home in self._free and self._has_room(unit.jobs[0], unit.home)
        return unit.home if has_room else None

    def _start(self, unit: _Unit, board: str) -> tuple[FarmJob, str]:
        job = unit.jobs[0]
        unit.attempts += 1
        limits = self._limits_of(job, board)
        self._used.update(limits)
        self._running[job.id] = _Running(unit, board, limits)
        return job, board

    def _again(self, unit: _Unit, board: str, result: JobResult) -> JobResult | None:
        """Let an interrupted job wait again; return its result if it is given up."""
        if result.is_host_lacking:
            unit.boards -= {board}  # waiting builds and installs nothing
            if unit.boards.isdisjoint(self._boards):
                return result
        if not result.is_counted:
            unit.attempts -= 1
        if result.is_board_broken:
            self._note_break(unit, board)
        if unit.attempts >= MOST_ATTEMPTS:
            return self._given_up(unit, result)
        if self._is_usable(board, result):
            self._free.add(board)
        self._wait(unit)
        return None

    def _note_break(self, unit: _Unit, board: str) -> None:
        was_well = board in self._well or self._ended[board] > 0
        broke = unit.broken.setdefault(board, _Break(self._ended[board], was_well))
        for name, other in self._broken.items():
            if other is not unit and name != board:
                broke.with_others = other.broken[name].with_others = True
        self._broken[board] = unit
        self._well.discard(board)

    def _given_up(self, unit: _Unit, result: JobResult) -> JobResult:
        own = broken_by_job(
            BrokenBoard(
                board,
                was_well=broke.was_well,
                is_well=self._ended[board] > broke.ended,
                with_others=broke.with_others,
            )
            for board, broke in unit.broken.items()
        )
        if not own:
            reason = f"given up after {unit.attempts} attempts: {result.reason}"
            return replace(result, reason=reason)
        reason = blame_reason(own, result.reason or "")
        return replace(result, exit_status=ExitStatus.JOB, blame=Blame.JOB, reason=reason)

    def _wait(self, unit: _Unit) -> None:
        unit.home = None
        insort(self._waiting, unit, key=lambda one: one.rank)
        self._demand.update(unit.boards)

    def _is_usable(self, board: str, result: JobResult) -> bool:
        return board in self._boards and (result.is_host_lacking or not result.needs_pause)

    def _board_for(self, unit: _Unit) -> str | None:
        job = unit.jobs[0]
        if (unit.boards, job.uses) in self._full:
            return None
        if not (could := [one for one in self._free & unit.boards if self._has_room(job, one)]):
            self._full.add((unit.boards, job.uses))
            return None
        fresh = [board for board in could if board not in unit.broken]
        if not fresh and unit.boards & self._boards - unit.broken.keys():
            return None  # a board that did not fail under it will become free
        place = {board: number for number, board in enumerate(job.boards)}
        return min(fresh or could, key=lambda board: (self._demand[board], place.get(board, 0)))

    def _has_room(self, job: FarmJob, board: str) -> bool:
        return all(self._used[one] < self._limits[one] for one in self._limits_of(job, board))

    def _limits_of(self, job: FarmJob, board: str) -> list[str]:
        of_board = self._uses.get(board, ())
        return [limit for limit in dict.fromkeys((*of_board, *job.uses)) if limit in self._limits]
