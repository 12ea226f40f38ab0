"""Runs of four trials on a board that is played by a few lines."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from llama_output import session
from records_made import model, run

from labctl.board import JobProgress, JobSpec, JobState, Started
from labctl.config.recipe import Precision
from labctl.config.variants import Variant
from labctl.engines import Tool
from labctl.engines.llama_cpp import LlamaCpp
from labctl.errors import DeviceLost, InfraError, LeaseLost
from labctl.records import (
    BoardFacts,
    ConditionRecord,
    Execution,
    JobStatus,
    PlanRecord,
    TrialLimit,
    TrialRecord,
)
from labctl.runs.observer import Observer
from labctl.runs.plan.time_budget import RunClock
from labctl.runs.plan.timeouts import MAX_TIME, RECIPE
from labctl.runs.plan.trials import Amount, PlannedTrial, make_plan
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.journal import Journal
from labctl.runs.runner import Held, Outcome, Runner
from labctl.runs.trial.context import Bench, DeployedModel


def planned(repeats: int = 4) -> tuple[PlannedTrial, ...]:
    """Trials of one variant."""
    variant = Variant("m", "m", {"tokens": 4, "warmup": True})
    return make_plan(
        [variant],
        Amount(repeats, 0, {variant.slug: 4}),
        order="interleaved",
        max_seconds=60,
        min_tokens=None,
        predict=lambda *_: None,
        roles=LlamaCpp.roles,
    ).trials


@dataclass
class PlayedAgent:
    """Every job prints four tokens. ``events`` by number of the job, from 1, happen in its wait."""

    events: dict[int, Callable[[], None]] = field(default_factory=dict)
    boot_id: str = "b1"
    emulator: str | None = None
    endless: tuple[int, ...] = ()
    slower: dict[int, float] = field(default_factory=dict)
    #: By the step that they happen in, once.
    blips: dict[str, BaseException] = field(default_factory=dict)
    #: From the end of this job on nothing can be removed.
    lost_after: int | None = None
    #: Jobs of a controller that died.
    left: tuple[str, ...] = ()
    started: list[str] = field(default_factory=list)
    taken_over: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)

    def job_directory(self, name: str) -> str:
        return f"/w/jobs/{name}"

    def start(self, spec: JobSpec, *, again: bool, **_: object) -> Started:
        (self.taken_over if again else self.started).append(spec.directory)
        return Started(
            directory=spec.directory,
            pid=1,
            job_pid=2,
            boot_id=self.boot_id,
            start_mono_ns=0,
            emulator=self.emulator,
        )

    def wait(self, started: Started, **_: object) -> JobStatus:
        self.events.get(len(self.started), lambda: None)()
        return JobStatus(
            outcome="timeout" if len(self.started) in self.endless else "exited",
            exit_status=None if len(self.started) in self.endless else 0,
            start_mono_ns=0,
            end_mono_ns=1,
            wall_ns=1,
            stdout_bytes=0,
            stderr_bytes=0,
            boot_id=self.boot_id,
            epoch=1,
        )

    def collect(
        self,
        directory: str,
        local: Path,
        *,
        status: JobStatus,
        reattach_s: float,
        on_link_loss: Callable[[InfraError], None],
    ) -> None:
        self._blip("collect")
        slower = self.slower.get(len(self.started), 1.0)
        raw = session([b"a", b"b", b"c", b"d"], token_ms=100 * slower).raw()
        for name in ("stdout", "stderr", "timeline"):
            (local / name).write_bytes(getattr(raw, name))

    def poll(self, directory: str) -> JobProgress:
        there = directory in (*self.started, *self.left) and directory not in self.removed
        state = JobState.RUNNING if there else JobState.ABSENT
        return JobProgress(
            state=state, boot_id="b1", mono_ns=0, stdout_bytes=None, stderr_bytes=None, status=None
        )

    def stop(self, directory: str) -> None:
        self.stopped.append(directory)

    def remove(self, directory: str) -> None:
        self._blip("remove")
        if len(self.started) == self.lost_after:
            raise DeviceLost("the cable is out")
        self.removed.append(directory)

    def _blip(self, step: str) -> None:
        if step in self.blips:
            raise self.blips.pop(step)


class Setting:
    """A run of four trials, and what stands around it."""

    def __init__(self, runs: Path) -> None:
        self.agent = PlayedAgent()
        self.lost: LeaseLost | None = None
        self.losses: list[InfraError] = []
        self.limits = {"m": TrialLimit(seconds=60, source=MAX_TIME)}
        self.waits: list[float] = []
        self.while_waiting: Callable[[], None] = lambda: None
        self.renewal: InfraError | None = None
        self.held: Held = lambda _mine: nullcontext()
        self.execution = Execution.BOARD
        self.infra_retries = 0
        self.renewals = 0
        self.precision: Precision | None = None
        self.trials: Sequence[PlannedTrial] = planned()
        trials = tuple(trial.record() for trial in planned())
        self.directory = RunDirectory.create(
            runs, run(), PlanRecord(trials=trials, max_seconds=60, prompt_sha256="")
        )
        self.journal = Journal(self.directory.path, "r")

    def may_take(self, seconds: float) -> None:
        """Each trial, by the recipe."""
        self.limits = {"m": TrialLimit(seconds=seconds, source=RECIPE)}

    def ready(self, longest_s: float) -> tuple[ConditionRecord, ...]:
        self.waits.append(longest_s)
        self.while_waiting()
        return (ConditionRecord(name="temperature", wanted="<= 50 °C", had="45 °C", ok=True),)

    def check_lease(self) -> None:
        if self.lost:
            raise self.lost

    def lose(self) -> None:
        self.lost = LeaseLost("another lab took the board")

    def bench(self) -> Bench:
        facts = BoardFacts(
            execution=self.execution,
            machine="aarch64",
            kernel="5.10",
            boot_id=self.agent.boot_id if self.renewals else "b1",
        )
        return Bench(
            board="rk1",
            target="rk3568",
            facts=facts,
            agent=self.agent,  # type: ignore[arg-type]
            epoch=1,
            lease_path="/w/lease",
            check_lease=self.check_lease,
            run_id="r",
            engine=LlamaCpp(),
            tool=Tool("llama-completion", "completion"),
            program="/w/store/p",
            prompt="x",
            models={"m": DeployedModel(model("m"), "/w/store/m")},
            reattach_seconds=1,
            on_link_loss=self.losses.append,
            ready=self.ready,
            resumed=self.journal.resumptions,
        )

    def renewed(self, _bench: Bench) -> Bench:
        self.renewals += 1
        if self.renewal:
            raise self.renewal
        return self.bench()

    def run(self, done: Sequence[TrialRecord] = ()) -> Outcome:
        runner = Runner(
            bench=self.bench(),
            directory=self.directory,
            journal=self.journal,
            clock=RunClock(60, self.limits, lambda _trial: None),
            observer=Observer(),
            renew=self.renewed,
            infra_retries=self.infra_retries,
            precision=self.precision,
            held=self.held,
        )
        return runner.run(self.trials, run(), (), done)

    def another_controller(self) -> None:
        """All that was only in memory is gone."""
        self.journal = Journal(self.directory.path, "r")

    @property
    def states(self) -> list[str]:
        return [str(trial.state) for trial in self.directory.trials()]


def fail(error: BaseException) -> Callable[[], None]:
    """An event."""

    def event() -> None:
        raise error

    return event
