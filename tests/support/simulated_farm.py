"""Nights with a known truth, through the real planner, journal, statistics and blame.

Builds, boards and the clock are simulated; nothing else is.
"""

import math
import multiprocessing
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from simulated_comparisons import Noise, realistic

from labctl.config.lab import Lab, LabFile
from labctl.database.base import DatabaseAway
from labctl.errors import (
    CompileError,
    DeviceLost,
    HostError,
    LinkRefused,
    ServiceAway,
    ToolMissing,
)
from labctl.farm.nightly.acceptance import accepted_changes, accepted_lines, keep_accepted
from labctl.farm.nightly.budget import plan_pairs, smallest_slowdown
from labctl.farm.nightly.executor import GOOD, HEAD, Built, Measured, Trouble
from labctl.farm.nightly.night import Night
from labctl.farm.nightly.nights import (
    RESULT,
    begin_night,
    nights_of,
    past_findings,
    past_results,
    past_rows,
    same_programs,
)
from labctl.farm.nightly.planning import waited_nights, with_pairs
from labctl.farm.nightly.results import result_of
from labctl.farm.nightly.search import search_commits
from labctl.farm.nightly.standing import standing_alarms, with_past
from labctl.farm.nightly.state import NightState
from labctl.files import write_atomic
from labctl.records.night import CommitSearch, NightFinding, NightRecord, NightResult, NightRow
from labctl.state.state import lab_state
from labctl.stats.log_ratio import paired

R = TypeVar("R")

REPEATS = 5
RUN_SECONDS = 30.0
PAST = 30
BOARDS = 5
#: A board that refuses does so at once.
REFUSED_SECONDS = 0.03


@dataclass
class Truth:
    """What happens in a night. ``slow`` is by row; shares and chances of faults."""

    slow: dict[str, float] = field(default_factory=dict)
    lost: float = 0.0
    #: Boards that die after so many runs.
    dead: dict[str, int] = field(default_factory=dict)
    #: Boards that are 8 % slow in half of their runs, as chance has it.
    flipping: frozenset[str] = frozenset()
    #: Both sides are the same program.
    same: bool = False
    #: What else each run of a board is slower by, as a logarithm: by its number, from 0.
    disturbed: dict[str, Callable[[int], float]] = field(default_factory=dict)
    #: What speaks against boards in the lab's history.
    suspicious: dict[str, str] = field(default_factory=dict)
    unbuildable: frozenset[str] = frozenset()
    no_network: frozenset[str] = frozenset()
    #: Board -> periods in which it answers nothing, by its clock: it restarts.
    restarts: dict[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    #: Periods in which the host of all boards can run nothing: a model cannot be fetched.
    host_faults: tuple[tuple[float, float], ...] = ()
    #: Hosts lack a tool for all runs on these boards.
    lacking: frozenset[str] = frozenset()
    #: Board -> periods in which no worker serves it.
    unserved: dict[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    #: Periods in which the lab's database does not answer, and in which a repository does not.
    no_database: tuple[tuple[float, float], ...] = ()
    no_repository: dict[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    #: By commit, in their order: how slow each is.
    commits: dict[str, float] = field(default_factory=dict)
    #: Variant -> how slow a side or a commit is, in place of ``slow`` and ``commits``.
    of_variant: dict[str, dict[str, float]] = field(default_factory=dict)


class SimulatedFarm:
    """An executor whose runs are numbers. Each board has its own clock."""

    def __init__(self, seed: int, noise: Noise, truth: Truth):
        self.seed = seed
        self.chance, self.chance_of_jobs = random.Random(seed), random.Random(seed)
        self.noise, self.truth = noise, truth
        self.clocks: dict[str | None, float] = {}
        self.runs: dict[str, int] = {}
        self.suspected: list[str] = []
        self.before_run: Callable[[], None] = lambda: None
        self.measured: dict[str, int] = {}
        self._window: dict[str, tuple[int, float]] = {}
        #: Board, time (s) and reason of each wait.
        self.waits: list[tuple[str | None, float, str]] = []

    def now(self, board: str | None = None) -> float:
        if board is None:
            return max(self.clocks.values(), default=0.0)
        return self.clocks.get(board, 0.0)

    def wait(self, board: str | None, seconds: float, why: str) -> None:
        assert seconds > 0
        self.waits.append((board, seconds, why))
        after = self.now(board) + seconds
        for one in [board] if board is not None else [*self.clocks] or [""]:
            self.clocks[one] = after

    def _ask_database(self, board: str) -> None:
        if _is_in(self.now(board), self.truth.no_database):
            raise DatabaseAway("the lab's database does not answer")

    def each(self, work: Callable[[str], None], boards: Sequence[str]) -> None:
        for board in boards:
            work(board)

    def build(self, name: str, side: str) -> Built:
        if side in self.truth.no_network:
            raise HostError("cannot reach the repository")
        if _is_in(self.now(), self.truth.no_repository.get(name, ())):
            raise ServiceAway("cannot reach the repository")
        if side in self.truth.unbuildable:
            raise CompileError(f"{side} does not compile")
        program = name if self.truth.same else f"{name}-{side}"
        return Built(key=f"{name}-{side}", version=side, source=side, program=program)

    def commits(self, name: str, sides: object) -> Sequence[str]:
        return list(self.truth.commits)

    def trouble(self, board: str) -> Trouble | None:
        self._ask_database(board)
        if _is_in(self.now(board), self.truth.unserved.get(board, ())):
            return Trouble(f"no worker serves board {board}", passes=True)
        return None

    def job(self, known: str | None) -> str:
        return known or f"job{self.chance_of_jobs.getrandbits(64):x}"

    def has_begun(self, job: str) -> bool:
        return False

    def withdraw(self, jobs: Sequence[str]) -> None:
        """Nothing waits here."""

    def suspicion(self, board: str) -> str | None:
        return self.truth.suspicious.get(board)

    def suspect(self, board: str, reason: str) -> None:
        self.suspected.append(board)

    def measure(
        self,
        row: NightRow,
        board: str,
        built: Built,
        *,
        began: Callable[[str], None],
        queued: Mapping[str, Built],
    ) -> Measured:
        self.before_run()
        self._ask_database(board)
        if board in self.truth.lacking:
            raise ToolMissing("no agent is built")
        if _is_in(self.now(board), self.truth.host_faults):
            self.clocks[board] = self.now(board) + REFUSED_SECONDS
            raise HostError("the model cannot be fetched").of_host()
        if _is_in(self.now(board), self.truth.restarts.get(board, ())):
            self.clocks[board] = self.now(board) + REFUSED_SECONDS
            raise LinkRefused(f"board {board} does not answer")
        count = self.runs[board] = self.runs.get(board, 0) + 1
        self.clocks[board] = self.now(board) + row.seconds
        if count > self.truth.dead.get(board, count):
            raise DeviceLost(f"board {board} is gone")
        began(f"run-{board}-{count}")
        if self.chance.random() < self.truth.lost:
            raise DeviceLost("the cable moved")
        self.measured[board] = self.measured.get(board, 0) + 1
        level = self._of_window(board, self.measured[board])
        if board in self.truth.disturbed:
            level += self.truth.disturbed[board](self.measured[board] - 1)
        if board in self.truth.flipping and self.chance.random() < 0.5:
            level += math.log(1.08)
        values = {
            variant: math.exp(level + self._slow(row, variant, built.version) + self._run())
            for variant in row.variants
        }
        return Measured(f"run-{board}-{count}", values, row.seconds, "board")

    def _slow(self, row: NightRow, variant: str, version: str) -> float:
        """How slow a build is, as a logarithm."""
        slow = self.truth.commits.get(version)
        if slow is None:
            slow = self.truth.slow.get(row.name, 0.0) if version == HEAD else 0.0
        return math.log1p(self.truth.of_variant.get(variant, {}).get(version, slow))

    def _of_window(self, board: str, count: int) -> float:
        """What a board has in both runs of a pair alike: 5 % in one window of eight."""
        window, offset = self._window.get(board, (-1, 0.0))
        if window != (count - 1) // 2:
            slow = self.chance.random() < self.noise.slow_board
            window, offset = (count - 1) // 2, math.log(1.05) if slow else 0.0
            self._window[board] = window, offset
        return offset

    def _run(self) -> float:
        """The median of a run's repeats, which resemble their neighbours; runs differ too."""
        noise, chance = self.noise, self.chance
        before = chance.gauss(0, noise.inside)
        fresh = noise.inside * math.sqrt(1 - noise.memory**2)
        values = []
        for _ in range(REPEATS):
            throttled = chance.random() < noise.throttled
            values.append(before + (math.log(1.2) if throttled else 0.0))
            before = noise.memory * before + chance.gauss(0, fresh)
        return sorted(values)[REPEATS // 2] + chance.gauss(0, noise.between)

    def past(self) -> float:
        """The noise of a run as earlier nights on a board show it."""
        runs = [math.exp(self._run()) for _ in range(2 * PAST)]
        return paired(runs[1::2], runs[::2]).noise


def _is_in(now: float, periods: Sequence[tuple[float, float]]) -> bool:
    return any(begin <= now < end for begin, end in periods)


def plan_rows(farm: SimulatedFarm, count: int, *, find: float = 0.05) -> list[NightRow]:
    """Rows over the boards, each with pairs by the noise of its past."""
    boards = [f"b{n}" for n in range(min(BOARDS, max(2, count)))]
    rows = []
    for number in range(count):
        noise, board = farm.past(), boards[number % len(boards)]
        pairs = plan_pairs(noise, find, 0.02)
        assert pairs is not None
        rows.append(
            NightRow(
                name=f"llama/r{number:03d}@{board}",
                build="llama",
                recipe=f"r{number:03d}",
                board=board,
                equals=tuple(other for other in boards if other != board),
                variants=("q8",),
                seconds=RUN_SECONDS,
                noise=noise,
                noise_degrees=PAST - 1.0,
                find=find,
                screen=pairs.screen,
                look=pairs.look,
                mde=smallest_slowdown(noise, 2 * pairs.look, 0.02),
            )
        )
    return rows


def night_of(
    folder: Path, farm: SimulatedFarm, rows: Sequence[NightRow], *, hours: float = 100.0
) -> Night:
    """The night of a folder: a new one, or the one whose journal is there."""
    record = NightRecord(
        id=f"n{farm.seed}",
        plan="simulated",
        started=datetime(2026, 11, 22, tzinfo=UTC),
        deadline=hours * 3600,
        bisect=False,
        rows=tuple(rows),
    )
    folder.mkdir(parents=True, exist_ok=True)
    return Night(record, NightState(folder, rows), farm)


def nights_in_a_row(
    root: Path,
    count: int,
    farm_of: Callable[[int], SimulatedFarm],
    *,
    rows: int = 1,
    variants: tuple[str, ...] = ("q8",),
) -> Iterator[tuple[Night, NightResult]]:
    """Nights of a plan, each planned by what those before it found, and ended as a lab does."""
    plan, lab = "simulated", LabFile(root, Lab(boards={}))
    known = len(nights_of(root, plan))
    for number in range(known, known + count):
        farm, past = farm_of(number), past_rows(root, plan)
        findings = past_findings(root, plan)
        planned = []
        for row in plan_rows(SimulatedFarm(0, realistic(0.01), Truth()), rows):
            noise = past[row.name].noise if row.name in past else None
            waited = waited_nights([one.get(row.name, ()) for one in findings])
            accepted = accepted_changes(lab_state(lab).accepted.list(plan), row.name)
            update = {"equals": (), "accepted": accepted, "variants": variants}
            alone = row.model_copy(update=update)
            planned.append(with_pairs(alone, noise, 1.0, waited))
        started = datetime(2026, 1, 1, 22, tzinfo=UTC) + timedelta(days=number)
        record = NightRecord(
            id=f"{started:%Y%m%dT%H%M%SZ}-{plan}-{number:06x}",
            plan=plan,
            started=started,
            deadline=8 * 3600.0,
            bisect=True,
            rows=tuple(planned),
        )
        folder = begin_night(root, record)
        night = Night(record, NightState(folder, planned), farm)
        night.run()
        before = past_results(root, plan, before=record.id)
        alarms = standing_alarms(before, {"llama": GOOD})
        searches = search_commits(night, alarms)
        ended = result_of(night, searches, strict=False)
        result = with_past(ended, before, planned, same_programs(root, plan, 0.05))
        lines = accepted_lines(keep_accepted(lab, result, planned, []))
        result = result.model_copy(update={"accepted": tuple(lines)})
        write_atomic(folder / RESULT, result.model_dump_json())
        yield night, result


#: Forms of a rhythm: its level by the share of its cycle.
FORMS: dict[str, Callable[[float], float]] = {
    "wave": lambda share: (1 + math.cos(2 * math.pi * share)) / 2,
    "half": lambda share: float(share < 0.5),
    "spike": lambda share: float(share == 0),
}


def rhythm(runs: int, phase: int, form: str, size: float = 0.08) -> Callable[[int], float]:
    """A rhythm of so many runs, whose slowest is ``size`` slower."""
    return lambda number: math.log1p(size) * FORMS[form]((number + phase) % runs / runs)


def _some_rhythm(chance: random.Random) -> Callable[[int], float]:
    runs = chance.randrange(2, 9)
    return rhythm(runs, chance.randrange(runs), chance.choice(sorted(FORMS)))


def _drift(chance: random.Random) -> Callable[[int], float]:
    """Up to 20 % in 50 runs, and in each second run up to 3 %."""
    slope, second = chance.uniform(-0.004, 0.004), chance.uniform(-0.03, 0.03)
    return lambda number: slope * min(number, 50) + second * (number % 2)


def _outliers(chance: random.Random) -> Callable[[int], float]:
    """One run in 15 is 10 to 60 % slower."""
    return lambda _: math.log(chance.uniform(1.1, 1.6)) if chance.random() < 1 / 15 else 0.0


def _restless(chance: random.Random) -> Callable[[int], float]:
    """Far more noise than in the board's history, or a level that wanders."""
    wanders, scale, level = chance.random() < 0.5, chance.uniform(0.02, 0.06), 0.0

    def level_of(_: int) -> float:
        nonlocal level
        level = level * wanders + chance.gauss(0, scale)
        return level

    return level_of


def _throttled(chance: random.Random) -> Callable[[int], float]:
    """From some run on, for a while, a third slower."""
    start, length = chance.randrange(40), chance.randrange(1, 30)
    return lambda number: math.log(4 / 3) if start <= number < start + length else 0.0


def _each_board(
    level: Callable[[random.Random], Callable[[int], float]],
) -> Callable[[random.Random, Truth, Sequence[str]], None]:
    """A disturbance of what the runs of all boards measure."""

    def disturb(chance: random.Random, truth: Truth, boards: Sequence[str]) -> None:
        truth.disturbed = {board: level(chance) for board in boards}

    return disturb


def _lost_boards(chance: random.Random, truth: Truth, boards: Sequence[str]) -> None:
    """One run in ten is lost; boards restart, and one may die."""
    truth.lost = 0.1
    truth.restarts = {board: _gaps(chance, 400) for board in boards}
    if chance.random() < 0.5:
        truth.dead = {chance.choice(boards): chance.randrange(100)}


def _lost_services(chance: random.Random, truth: Truth, _: Sequence[str]) -> None:
    """The database, the repository and the boards' host are away now and then."""
    truth.no_database = _gaps(chance, 600)
    truth.no_repository = {"llama": ((0.0, chance.uniform(0, 1800)),)}
    truth.host_faults = _gaps(chance, 600)


def _gaps(chance: random.Random, longest: float) -> tuple[tuple[float, float], ...]:
    """A few periods of the first three hours, in s."""
    starts = [chance.uniform(0, 3 * 3600) for _ in range(chance.randrange(1, 5))]
    return tuple((start, start + chance.uniform(1, longest)) for start in starts)


DISTURBANCES: dict[str, Callable[[random.Random, Truth, Sequence[str]], None]] = {
    "rhythm": _each_board(_some_rhythm),
    "drift": _each_board(_drift),
    "outliers": _each_board(_outliers),
    "restless": _each_board(_restless),
    "throttled": _each_board(_throttled),
    "lost boards": _lost_boards,
    "lost services": _lost_services,
}


def faults(chance: random.Random, rows: Sequence[NightRow]) -> Truth:
    """Faults as a farm has them: cables always, a dead or a flipping board in some nights."""
    boards = sorted({row.board for row in rows})
    truth = Truth(lost=0.02)
    if chance.random() < 0.1:
        truth.dead = {chance.choice(boards): chance.randrange(100)}
    elif chance.random() < 0.1:
        truth.flipping = frozenset({chance.choice(boards)})
    return truth


@dataclass
class Nights:
    """What was found in nights: of the planted slowdowns, and beside them."""

    nights: int = 0
    found: int = 0
    false: int = 0
    blamed_wrong: int = 0
    #: Planted slowdowns on which a night had a verdict, or only a suspicion.
    judged: int = 0
    suspected: int = 0
    not_judged: int = 0
    good: int = 0
    #: Nights that called a board looping.
    looping: int = 0
    pairs: list[int] = field(default_factory=list)
    unmeasured: int = 0

    def count(self, findings: Sequence[NightFinding], planted: str | None) -> None:
        self.nights += 1
        slow = {one.row for one in findings if one.verdict == "slower"}
        self.found += planted in slow
        verdicts = {str(one.verdict) for one in findings if one.row == planted}
        self.judged += bool(verdicts & {"slower", "good", "suspected"})
        self.false += bool(slow - {planted})
        self.blamed_wrong += any(
            one.blame == "job" for one in findings if one.row != planted and one.row not in slow
        )
        self.suspected += sum(one.verdict == "suspected" for one in findings)
        self.not_judged += sum(one.verdict == "not judged" for one in findings)
        self.good += sum(one.verdict == "good" for one in findings)
        self.unmeasured += sum(one.verdict == "not measured" for one in findings)
        self.pairs.append(sum(one.pairs for one in findings))

    @property
    def found_in_two(self) -> float:
        """Share of planted slowdowns that one of two nights finds, of those that it judges."""
        return 1 - (1 - self.found / max(1, self.judged)) ** 2

    def __str__(self) -> str:
        mean = sum(self.pairs) / max(1, len(self.pairs))
        return (
            f"{self.nights} nights: {self.found} of {self.judged} found, {self.false} with a false"
            f" alarm, {self.good} rows good, {self.suspected} suspected,"
            f" {self.not_judged} not judged, {self.unmeasured} not measured,"
            f" {self.looping} nights with a looping board,"
            f" {mean:.0f} pairs a night"
        )


def simulate(
    folder: Path,
    nights: int,
    *,
    rows: int,
    sigma: float,
    planted: bool,
    with_faults: bool = True,
    disturbed: str | None = None,
    seed: int = 0,
    workers: int = 1,
) -> Nights:
    """Simulate nights, one seed each: the result is the same for any number of worker processes."""
    result = Nights()
    work = partial(
        _findings,
        folder,
        rows=rows,
        sigma=sigma,
        planted=planted,
        with_faults=with_faults,
        disturbed=disturbed,
        seed=seed,
    )
    for findings, slow, looping in _each(work, nights, workers):
        result.count(findings, slow)
        result.looping += looping
    return result


def _findings(
    folder: Path,
    number: int,
    *,
    rows: int,
    sigma: float,
    planted: bool,
    with_faults: bool,
    disturbed: str | None,
    seed: int,
) -> tuple[Sequence[NightFinding], str | None, bool]:
    """The findings of a night, the row that was made slow, and whether a board was suspected."""
    chance = random.Random(f"{seed}-{number}")
    farm = SimulatedFarm(chance.randrange(2**32), realistic(sigma), Truth())
    plan = plan_rows(farm, rows)
    farm.truth = faults(chance, plan) if with_faults else Truth()
    if disturbed:
        DISTURBANCES[disturbed](chance, farm.truth, sorted({row.board for row in plan}))
    slow = chance.choice(plan).name if planted else None
    if slow:
        farm.truth.slow = {slow: 0.05}
    found = night_of(folder / str(number), farm, plan).run()
    return found, slow, bool(farm.suspected)


def _each(work: Callable[[int], R], count: int, workers: int) -> Iterator[R]:
    if workers == 1:
        yield from map(work, range(count))
        return
    # Spawned: this process may have threads.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(work, range(count), chunksize=5)


@dataclass
class Searches:
    """Ends of searches for a planted commit."""

    right: int = 0
    wrong: int = 0
    ranges: int = 0
    #: Ranges that do not hold the commit.
    missed: int = 0
    unconfirmed: int = 0
    #: Searches that found head no longer slower.
    over: int = 0
    pairs: list[int] = field(default_factory=list)

    @property
    def searched(self) -> int:
        return self.right + self.wrong + self.ranges + self.missed

    def __str__(self) -> str:
        mean = sum(self.pairs) / max(1, len(self.pairs))
        return (
            f"{self.searched} searches: {self.right} right, {self.wrong} wrong, {self.ranges}"
            f" ranges that hold it, {self.missed} that do not, {self.over} found none again;"
            f" {mean:.0f} pairs each"
        )


def simulate_searches(
    folder: Path,
    count: int,
    *,
    sigma: float,
    unbuildable: float = 0.0,
    disturbed: str | None = None,
    seed: int = 0,
    workers: int = 1,
) -> Searches:
    """Search a planted commit of up to 64; one that could not be built is none of them."""
    found = Searches()
    work = partial(
        _search, folder, sigma=sigma, unbuildable=unbuildable, disturbed=disturbed, seed=seed
    )
    for one, truth in _each(work, count, workers):
        if one is None:
            found.unconfirmed += 1
            continue
        if one.outcome == "none":
            found.over += 1
            continue
        found.pairs.append(one.pairs)
        if one.first is not None:
            found.right += one.first == truth
            found.wrong += one.first != truth
        elif truth in one.candidates:
            found.ranges += 1
        else:
            found.missed += 1
    return found


def _search(
    folder: Path,
    number: int,
    *,
    sigma: float,
    unbuildable: float,
    disturbed: str | None,
    seed: int,
) -> tuple[CommitSearch | None, str]:
    """The end of a search, if the night confirmed the slowdown, and the commit that is to blame."""
    chance = random.Random(f"{seed}-{number}")
    farm = SimulatedFarm(chance.randrange(2**32), realistic(sigma), Truth(lost=0.02))
    names = [f"c{n:02d}" for n in range(chance.randrange(2, 65))]
    slow = chance.randrange(len(names))
    (row,) = plan_rows(farm, 1)
    farm.truth.slow = {row.name: 0.05}
    farm.truth.commits = {n: 0.05 * (i >= slow) for i, n in enumerate(names[:-1])}
    bad = {n for n in names[:-1] if chance.random() < unbuildable}
    farm.truth.unbuildable = frozenset(bad)
    if disturbed:
        DISTURBANCES[disturbed](chance, farm.truth, [row.board])
    night = night_of(folder / str(number), farm, [row])
    night.run()
    ended = search_commits(night)
    return next(iter(ended), None), names[slow] if slow < len(names) - 1 else HEAD
