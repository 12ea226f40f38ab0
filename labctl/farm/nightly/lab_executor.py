"""Builds and measures the rows of a night in a lab: real builds, real boards."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from statistics import median

from labctl import interrupts
from labctl.compare.figures import DEFAULT_FIGURES, FIGURES, figures_of
from labctl.compare.sides import is_good
from labctl.config.lab import LabFile
from labctl.database.base import patience
from labctl.errors import (
    Blame,
    ConfigError,
    ExitStatus,
    HostError,
    InfraError,
    LabctlError,
    ProgramFailed,
    ServiceAway,
)
from labctl.farm.health.checks_due import suspicion
from labctl.farm.interrupts import on_interrupt, raise_first
from labctl.farm.nightly.executor import Built, Measured, Trouble
from labctl.farm.nightly.judge import NIGHTLY
from labctl.farm.nightly.night_jobs import NightJobs
from labctl.farm.nightly.sources import Sources
from labctl.farm.served_job import execution_of, finished, unjudged
from labctl.figures.trials import TrialFigure
from labctl.index.entry import trial_row
from labctl.index.rows import TrialRow
from labctl.records.night import NightRow, NightVerdict
from labctl.records.trial import TrialRecord, TrialState
from labctl.retry import retry_infra
from labctl.state.health import BY_PEOPLE, Health
from labctl.state.state import lab_state
from labctl.units import duration


@dataclass(frozen=True)
class LabExecutor:
    """The executor of a lab. ``say`` gets a line for each step."""

    lab: LabFile
    sources: Sources
    jobs: NightJobs
    say: Callable[[str], None]
    figure: str | None = None

    def now(self, board: str | None = None) -> float:  # noqa: ARG002 - boards share this clock
        """Return the time by the host's clock."""
        return time.time()

    def wait(self, board: str | None, seconds: float, why: str) -> None:  # noqa: ARG002 - one clock
        """Wait, and say why. Raises KeyboardInterrupt as soon as the night must end."""
        self.say(f"{why}; tried again in {duration(seconds * 1e9)}")
        if interrupts.wait(self.jobs.stopping, seconds):
            raise KeyboardInterrupt

    def each(self, work: Callable[[str], None], boards: Sequence[str]) -> None:
        """Do the work of all boards at once. Raises an error of a board when all have ended.

        After an error or a first Ctrl-C the runs in progress, one on each board, are finished.
        """
        if len(boards) == 1:
            work(boards[0])
            return
        errors: list[BaseException] = []
        with (
            on_interrupt(self.jobs.stop),
            ThreadPoolExecutor(max_workers=max(1, len(boards))) as pool,
        ):
            try:
                for done in as_completed([pool.submit(work, board) for board in boards]):
                    if error := done.exception():
                        errors.append(error)
                        self.jobs.stop()
            except BaseException:
                self.jobs.break_off()
                raise
        if self.jobs.stopping.is_set():
            errors.append(KeyboardInterrupt())
        raise_first(errors)

    def build(self, name: str, side: str) -> Built:
        """Build a side. Raises as :func:`labctl.build.builder.build` does."""
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
        queued: Mapping[str, Built],
    ) -> Measured:
        """Run the recipe of a row as the first of its jobs.

        Raises what :meth:`NightJobs.run` raises, and ProgramFailed for a variant whose program
        failed. For a row that has only gates: ProgramFailed for a missed gate, ConfigError for one
        that was not judged.
        """
        with on_interrupt(self.jobs.stop):
            done, seconds = self.jobs.run(row, board, queued, began)
        if row.gated:
            ended = finished(done)
            if ended is None or ended.exit_status != ExitStatus.OK:
                why = "it did not finish" if ended is None else ended.reason
                raise ProgramFailed(f"run {done.path.name}: {why}")
            if why := unjudged(done):
                raise ConfigError(f"run {done.path.name}: {why}")
            self.say(f"{row.name}, {built.source}: all gates are met")
            return Measured(done.path.name, {}, seconds, execution_of(done))
        trials, run = done.trials(), done.path.name
        values = run_values(row, run, trials, self.figure)
        shown = ", ".join(f"{name} {value / 1e6:.4g} ms" for name, value in values.items())
        self.say(f"{row.name}, {built.source}: {shown}")
        return Measured(run, values, seconds, str(done.run().facts.execution))

    def job(self, known: str | None) -> str:
        """Return the job of a run: ``known``, or a new job."""
        return self.jobs.job(known)

    def has_begun(self, job: str) -> bool:
        """Return True if a job runs or has ended."""
        return self.jobs.has_begun(job)

    def withdraw(self, jobs: Sequence[str]) -> None:
        """Remove jobs from the queue."""
        self.jobs.withdraw(jobs)

    def trouble(self, board: str) -> Trouble | None:
        """Return why the board is out of service or unreachable; None if it may work."""
        state = lab_state(self.lab)
        with patience(note=self.say, stopping=self.jobs.stopping):
            health = state.health.get(board)
        if not health.may_work:
            # A board that a check could not reach may come back, and be checked again.
            passes = health.health is Health.BAD and health.is_offline
            return Trouble(f"board {board} is {health.health}: {health.reason}", passes)
        away = self.jobs.away(board)
        return None if away is None else Trouble(away, passes=True)

    def suspicion(self, board: str) -> str | None:
        """Return the reasons in the last days not to trust the board; None if it is trusted."""
        with patience(note=self.say, stopping=self.jobs.stopping):
            return "; ".join(suspicion(lab_state(self.lab), board)) or None

    def suspect(self, board: str, reason: str) -> None:
        """Record that the board's verdicts flip, and set its health to looping."""
        self.say(reason)
        state = lab_state(self.lab)
        try:
            state.events.add(board, "flip", NightVerdict.SUSPECTED, by=NIGHTLY, reason=reason)
            state.health.set(board, Health.LOOPING, reason=reason, by=NIGHTLY, unless=BY_PEOPLE)
        except LabctlError as error:
            self.say(f"the health of board {board} was not saved: {error.message}")

    def commits(self, name: str, sides: Mapping[str, Built]) -> Sequence[str]:
        """Return the commits between both sides. Raises as :meth:`Sources.commits` does.

        If a repository is away, waits for it until the night ends.
        """
        return retry_infra(
            lambda: self.sources.commits(name, sides),
            on=(ServiceAway,),
            timeout=max(0.0, self.jobs.deadline - time.time()),
            on_retry=self._interrupted,
            stopping=self.jobs.stopping,
        )

    def _interrupted(self, error: InfraError) -> None:
        if self.jobs.stopping.is_set():
            raise KeyboardInterrupt from error


def run_values(
    row: NightRow, run: str, trials: Sequence[TrialRecord], figure: str | None
) -> dict[str, float]:
    """Return for each variant the median of its good repeats, as a time: lower is faster.

    A rate per second becomes its inverse in ns. Raises ProgramFailed if the program failed in any
    repeat, HostError if most repeats were lost or the token times are unusable, and ConfigError if
    no run of the recipe can have the figure.
    """
    rows = [trial_row(run, trial) for trial in trials]
    chosen = _figure(trials, rows, figure)
    found: dict[str, float] = {}
    for variant in row.variants:
        own = [one for one in rows if one.variant == variant and is_good(one)]
        logs = [math.log(value) for one in own if (value := one.figures[chosen.column])]
        mine = [trial for trial in trials if trial.variant == variant]
        failed = sum(trial.state is TrialState.FAILED for trial in mine)
        if not logs or failed >= len(logs) or any(_is_crash(trial) for trial in mine):
            raise _failed(variant, run, mine, chosen)
        value = math.exp(median(logs))
        found[variant] = 1e9 / value if chosen.more_is_faster else value
    return found


def _figure(
    trials: Sequence[TrialRecord], rows: Sequence[TrialRow], figure: str | None
) -> TrialFigure:
    """Return the figure of a run: the same in each run of a recipe, whatever came together."""
    if figure is None and any(_times_tokens(trial) for trial in trials):
        return FIGURES[DEFAULT_FIGURES[0]]
    good = [one for one in rows if is_good(one)]
    return figures_of(good, [figure] if figure else ())[0]


def _failed(
    variant: str, run: str, trials: Sequence[TrialRecord], figure: TrialFigure
) -> LabctlError:
    failure = next((t.failure for t in trials if t.failure), None)
    if failure is None:
        what = f"run {run}, {variant}: no repeat has the figure {figure.gate}"
        timed = [trial for trial in trials if _times_tokens(trial)]
        if figure.needs_token_times and timed:
            return HostError(f"{what}: {_open_checks(timed[0])}")
        return ConfigError(what)
    crash = next((t.failure for t in trials if _is_crash(t)), None)
    if crash is not None:
        return ProgramFailed(f"{variant}: {crash.message}", details=crash.details)
    return HostError(f"{variant}: {failure.message}", details=failure.details)


def _times_tokens(trial: TrialRecord) -> bool:
    """Return True if tokens of this kind of trial are timed on arrival."""
    timing = trial.timing
    if timing is None or timing.arrivals is None:
        return False
    # A single token has no gap. Output with lines other than token lines is never timed.
    return 1 < max(timing.generated_tokens or 0, timing.arrivals) == timing.generated_tokens


def _open_checks(trial: TrialRecord) -> str:
    """Return the checks because of which a trial's token times are not judged."""
    found = [f"{one.name}: {one.detail}" for one in trial.checks if one.ok is not True]
    why = "; ".join(found) or "its token times could not be judged"
    return f"trial {trial.number}: {why}"


def _is_crash(trial: TrialRecord) -> bool:
    is_job = trial.failure is not None and trial.failure.blame is Blame.JOB
    return is_job and trial.state is TrialState.FAILED
