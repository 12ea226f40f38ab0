"""Searches whose controller is killed (SIGKILL) at random writes to disk: none loses a trial."""

import itertools
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llama_output import session
from played_runs import PlayedAgent, Setting
from records_made import planned_run, run

from labctl.board.job import JobSpec, Started
from labctl.records.run import PlanRecord
from labctl.records.trial import JobStatus, TrialLimit
from labctl.records.tuning import TuningRecord, TuningRound
from labctl.runs.planning.time_limits import MAX_TIME
from labctl.runs.planning.trials import PlannedTrial
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.journal import Journal
from labctl.runs.resume import _done, leave_board
from labctl.runs.runner import run_trials
from labctl.runs.search import begin_search

BUDGET = 60.0
GAINS = {"default": 1.0, "threads-2": 1.3, "threads-3": 0.8, "threads-4": 0.9}
#: Writes of a whole search are about 600.
MOST_WRITES = 250


class Board(PlayedAgent):
    """A board whose jobs take a second of a clock that a test moves; a file has what it did."""

    def __init__(self, log: Path, moved: Callable[[float], None]):
        lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
        started = [path for what, path in lines if what == "started"]
        super().__init__(started=started, removed=[path for what, path in lines if what == "gone"])
        self.log, self.moved = log, moved

    def _note(self, what: str, directory: str) -> None:
        with self.log.open("a") as file:
            file.write(f"{what} {directory}\n")

    def start(self, spec: JobSpec, *, again: bool, **more: object) -> Started:
        self._note("again" if again else "started", spec.directory)
        return super().start(spec, again=again, **more)

    def wait(self, started: Started, **more: object) -> JobStatus:
        self.moved(1.0)
        return super().wait(started, **more)

    def collect(self, directory: str, local: Path, **_more: Any) -> None:
        number, _, slug = local.name.partition("-")
        noise = random.Random(number).gauss(1, 0.01)
        (gain,) = (one for name, one in GAINS.items() if slug.startswith(name))
        raw = session([b"a", b"b", b"c", b"d"], token_ms=100 * noise / gain).raw()
        for file in ("stdout", "stderr", "timeline"):
            (local / file).write_bytes(getattr(raw, file))

    def remove(self, directory: str) -> None:
        self._note("gone", directory)
        super().remove(directory)


def begin(folder: Path) -> RunDirectory:
    settings: dict[str, Any] = {one: {"threads": int(one[-1])} for one in GAINS if "-" in one}
    directory: RunDirectory = planned_run(
        folder, run(), PlanRecord(trials=(), max_seconds=BUDGET, prompt_sha256="")
    )
    directory.write_tuning(
        TuningRecord(
            default="default",
            objectives=("decode",),
            seed=1,
            budget_s=BUDGET,
            model="m",
            parameters={"tokens": 4, "warmup": True, "threads": 1},
            settings=settings,
            patches=settings,
        )
    )
    return directory


def controller(directory: RunDirectory, scratch: Path, *, moves: str | None) -> None:
    """Continue the search as ``labctl resume`` does, in this process."""
    moved, clock, clock_ns = [0.0], time.monotonic, time.monotonic_ns
    time.monotonic = lambda: clock() + moved[0]
    time.monotonic_ns = lambda: clock_ns() + round(1e9 * moved[0])

    def later(seconds: float) -> None:
        moved[0] += seconds

    setting = Setting(scratch)
    setting.agent = Board(directory.path / "board.log", later)
    setting.directory, setting.journal = directory, Journal(directory.path, "r")
    setting.limits = {one: TrialLimit(seconds=60, source=MAX_TIME) for one in GAINS}
    context = setting.context()
    context.clock.max_seconds = BUDGET
    trials = [PlannedTrial.of(one) for one in directory.plan().trials]
    done = _done(directory)
    if moves is not None:
        done = leave_board(
            directory, setting.journal, trials, done, board=moves, clock=context.clock
        )
        setting.journal.resumed(moves)
    tuning = directory.tuning()
    assert tuning is not None
    begin_search(context, tuning)
    directory.reopen()
    run_trials(context, trials, tuple(done.values()))


def killed(directory: RunDirectory, scratch: Path, at: int | None, moves: str | None) -> bool:
    """Run a controller that is killed at its ``at``-th write; return False if it ended before."""
    scratch.mkdir()
    child = os.fork()
    if child == 0:
        left = itertools.count(1)

        def dying(call: Callable[..., Any]) -> Callable[..., Any]:
            def instead(*given: Any, **more: Any) -> Any:
                if next(left) == at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*given, **more)

            return instead

        for name in ("fsync", "replace", "rename"):
            setattr(os, name, dying(getattr(os, name)))
        status = 1
        try:
            controller(directory, scratch, moves=moves)
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), status
    return status != 0


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.soak] if seed > 3 else []) for seed in range(30)]
)
def test_a_search_killed_anywhere_loses_and_doubles_no_trial(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    directory = begin(tmp_path / "runs")
    rounds: tuple[TuningRound, ...] = ()
    kept = dict[int, bytes]()
    tuning = None
    for life in range(6):
        at = chance.randint(1, MOST_WRITES) if life < 5 else None
        other = f"board-{life}" if life and seed % 3 == 0 and chance.random() < 0.5 else None
        was_killed = killed(directory, tmp_path / f"life-{life}", at, other)
        tuning = directory.tuning()
        assert tuning is not None
        assert tuning.rounds[: len(rounds)] == rounds  # nothing decided is decided again
        rounds = tuning.rounds
        now = {one.number: one.model_dump_json().encode() for one in directory.trials()}
        if other is None:
            assert now.items() >= kept.items()
        kept = now
        if not was_killed:
            break
    wanted = [number for one in rounds for number in range(one.first, one.first + len(one.order))]
    lines = (directory.path / "records.jsonl").read_bytes().splitlines()
    assert sorted(lines) == sorted(kept.values())
    assert sorted(kept) == wanted == [one.number for one in directory.plan().trials]
    started = [line.split()[1] for line in (directory.path / "board.log").read_text().splitlines()
               if line.startswith("started")]  # fmt: skip
    assert len({*started}) == len(started)  # a job is begun once, and then taken over
    if seed % 3:
        assert len(started) == len(wanted)
    assert tuning is not None
    assert tuning.named == {"decode": "threads-2"}
    end = directory.end()
    assert end is not None
    assert end.state == "finished"
