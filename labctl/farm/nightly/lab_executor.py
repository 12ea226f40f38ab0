"""Builds and measures the rows of a night in a lab: real builds, real boards."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from threading import Event

from labctl.build import build as build_artifact
from labctl.compare.figures import FIGURES, figures_of
from labctl.compare.sides import is_good
from labctl.config.lab import Board, LabFile
from labctl.config.recipe import Recipe
from labctl.database import patience
from labctl.errors import Blame, BoardBusy, ConfigError, HostError, LabctlError, ProgramFailed
from labctl.farm.health import suspicion
from labctl.farm.interrupts import on_interrupt, raise_first
from labctl.farm.nightly.executor import Built, Measured
from labctl.farm.nightly.judge import NIGHTLY
from labctl.farm.nightly.planning import recipe_with
from labctl.farm.nightly.queued_runs import BUSY_SECONDS, QueuedRuns
from labctl.farm.nightly.sources import Sources
from labctl.index.entry import trial_row
from labctl.records import TrialRecord, TrialState
from labctl.records.events import AnyEvent, Contact
from labctl.records.night import NightRow, NightVerdict
from labctl.retry import retry_infra
from labctl.runs import Observer, Outcome, RunRequest, run_recipe
from labctl.runs.record.directory import RunDirectory
from labctl.runs.resume import ResumeRequest, resume
from labctl.state import lab_state
from labctl.state.health import BY_PEOPLE, Health
from labctl.transport import Transport


@dataclass(frozen=True)
class LabExecutor:
    """The executor of a lab. ``say`` gets a line for each step."""

    lab: LabFile
    sources: Sources
    connect: Callable[[Board], Transport]
    say: Callable[[str], None]
    #: Text of each recipe, as it was when the night began.
    recipes: Mapping[str, str]
    figure: str | None = None
    #: End of the night, in seconds since 1970.
    deadline: float = math.inf
    #: Set when the night is to end: no further run begins.
    stopping: Event = field(default_factory=Event)
    #: Runs on boards of other hosts; None: the plan has none.
    others: QueuedRuns | None = None

    def now(self, board: str | None = None) -> float:  # noqa: ARG002 - boards share this clock
        """Return the time by the host's clock."""
        return time.time()

    def each(self, work: Callable[[str], None], boards: Sequence[str]) -> None:
        """Do the work of all boards at once. Raises an error of theirs when all have ended.

        After an error or Ctrl-C the runs in progress, one on each board, are finished. A single run
        is interrupted.
        """
        if len(boards) == 1:
            work(boards[0])
            return
        errors: list[BaseException] = []
        with (
            on_interrupt(self.stopping.set),
            ThreadPoolExecutor(max_workers=max(1, len(boards))) as pool,
        ):
            try:
                for done in as_completed([pool.submit(work, board) for board in boards]):
                    if error := done.exception():
                        errors.append(error)
                        self.stopping.set()
            except BaseException:
                self.stopping.set()
                raise
        if self.stopping.is_set():
            errors.append(KeyboardInterrupt())
        raise_first(errors)

    def build(self, name: str, side: str) -> Built:
        """Build a side. Raises as :func:`labctl.build.build` does."""
        self.say(f"build {name}, {side}")
        built = self.sources.build(name, side)
        self.say(f"built {name}, {side}: {built.source}")
        return built

    def measure(
        self,
        row: NightRow,
        board: str,
        built: Built,
        *,
        began: Callable[[str], None],
        left: str | None,
        queued: Mapping[str, Built],
    ) -> Measured:
        """Run the recipe of a row with a build, or resume the run ``left``.

        Raises what :func:`labctl.runs.run_recipe` raises, and ProgramFailed for a variant whose
        program failed; for a board of another host what :meth:`QueuedRuns.run` raises.
        """
        if self.stopping.is_set():
            raise KeyboardInterrupt
        if self.others is not None and queued:
            done, seconds = self.others.run(row, board, queued, began)
            execution = str(done.run().facts.execution)
            return self._measured(row, built, (done.trials(), execution, done.path.name), seconds)
        started = time.time()
        recipe = recipe_with(self.lab, self.recipes, row, built)

        def remember(event: AnyEvent) -> None:
            if isinstance(event, Contact):
                began(event.run)

        directory = self.lab.root / "runs" / left if left else None
        measured = retry_infra(
            lambda: self._run(recipe, self.lab.board(board), Observer(remember), directory),
            on=(BoardBusy,),
            timeout=max(0.0, min(BUSY_SECONDS, self.deadline - started - row.seconds)),
            interval=5.0,
        )
        return self._measured(row, built, measured, time.time() - started)

    def job(self, board: str, known: str | None) -> str | None:
        """Return the job of a run on a board of another host; None for a board of this one."""
        others = self.others
        return others.job(known) if others is not None and others.serves(board) else None

    def withdraw(self, board: str, jobs: Sequence[str]) -> None:
        """Take jobs out of the queue, and let the board of another host go."""
        if self.others is not None and self.others.serves(board):
            self.others.withdraw(board, jobs)

    def parted(self, jobs: Sequence[str]) -> str | None:
        """Return who used the board between these jobs; None: nobody."""
        why = self.others.parted(jobs) if self.others is not None else None
        if why is not None:
            self.say(f"a pair begins again: {why}")
        return why

    def _measured(
        self,
        row: NightRow,
        built: Built,
        measured: tuple[Sequence[TrialRecord], str, str],
        seconds: float,
    ) -> Measured:
        trials, execution, run = measured
        values = run_values(row, run, trials, self.figure)
        shown = ", ".join(f"{name} {value / 1e6:.4g} ms" for name, value in values.items())
        self.say(f"{row.name}, {built.source}: {shown}")
        return Measured(run, values, seconds, execution)

    def _run(
        self, recipe: Recipe, board: Board, observer: Observer, left: Path | None
    ) -> tuple[Sequence[TrialRecord], str, str]:
        known = RunDirectory(left) if left and (left / "run.json").is_file() else None
        if known is not None:
            if known.end() is not None and not known.is_unfinished:
                return known.trials(), str(known.run().facts.execution), known.path.name
            request = ResumeRequest(known, board, self.lab, build=build_artifact)
            try:
                done = resume(request, partial(self.connect, board), observer)
            except ConfigError as error:  # it cannot be resumed: something has changed
                self.say(f"run {known.path.name} is not resumed: {error.message}")
            else:
                return _attempt_result(done)
        asked = RunRequest(recipe, board, self.lab, build=build_artifact)
        return _attempt_result(run_recipe(asked, self.connect, observer))

    def trouble(self, board: str) -> str | None:
        """Return why the board is out of service or unreachable; None: it may work."""
        state = lab_state(self.lab)
        with patience(note=self.say, stopping=self.stopping):
            health = state.health.get(board)
        if not health.may_work:
            return f"board {board} is {health.health}: {health.reason}"
        others = self.others
        return others.away(board) if others is not None and others.serves(board) else None

    def suspicion(self, board: str) -> str | None:
        """Return the reasons in the last days not to trust the board; None: it is trusted."""
        with patience(note=self.say, stopping=self.stopping):
            return "; ".join(suspicion(lab_state(self.lab), board)) or None

    def suspect(self, board: str, reason: str) -> None:
        """Keep that the board's verdicts flip, and set its health to looping."""
        self.say(reason)
        state = lab_state(self.lab)
        try:
            state.events.add(board, "flip", NightVerdict.SUSPECTED, by=NIGHTLY, reason=reason)
            state.health.set(board, Health.LOOPING, reason=reason, by=NIGHTLY, unless=BY_PEOPLE)
        except LabctlError as error:
            self.say(f"the health of board {board} was not saved: {error.message}")

    def commits(self, name: str, sides: Mapping[str, Built]) -> Sequence[str]:
        """Return the commits between both sides. Raises as :meth:`Sources.commits` does."""
        return self.sources.commits(name, sides)


def _attempt_result(done: Outcome) -> tuple[Sequence[TrialRecord], str, str]:
    return done.trials, str(done.run.facts.execution), done.directory.path.name


def run_values(
    row: NightRow, run: str, trials: Sequence[TrialRecord], figure: str | None
) -> dict[str, float]:
    """Return for each variant the median of its good repeats, as a time: less is faster.

    A rate per second becomes its inverse in ns. Raises ProgramFailed where the program failed in
    any repeat, HostError where most of them were lost.
    """
    rows = [trial_row(run, trial) for trial in trials]
    (chosen, *_) = figures_of([one for one in rows if is_good(one)], [figure] if figure else ())
    assert chosen.name in FIGURES
    found: dict[str, float] = {}
    for variant in row.variants:
        own = [one for one in rows if one.variant == variant and is_good(one)]
        logs = [math.log(value) for one in own if (value := chosen.value(one))]
        mine = [trial for trial in trials if trial.variant == variant]
        failed = sum(trial.state is TrialState.FAILED for trial in mine)
        if not logs or failed >= len(logs) or any(_is_crash(trial) for trial in mine):
            raise _failed(variant, run, mine, chosen.name)
        value = math.exp(median(logs))
        found[variant] = 1e9 / value if chosen.more_is_faster else value
    return found


def _failed(variant: str, run: str, trials: Sequence[TrialRecord], figure: str) -> LabctlError:
    failure = next((t.failure for t in trials if t.failure), None)
    if failure is None:
        return ConfigError(f"run {run}, {variant}: no repeat has the figure {figure}")
    crash = next((t.failure for t in trials if _is_crash(t)), None)
    if crash is not None:
        return ProgramFailed(f"{variant}: {crash.message}", details=crash.details)
    return HostError(f"{variant}: {failure.message}", details=failure.details)


def _is_crash(trial: TrialRecord) -> bool:
    is_job = trial.failure is not None and trial.failure.blame is Blame.JOB
    return is_job and trial.state is TrialState.FAILED
