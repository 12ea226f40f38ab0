"""Runs of four trials on a board that is played by a few lines."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from forecasts import forecast_of
from llama_output import session
from pydantic import JsonValue
from records_made import model, planned_run, run

from labctl.board.console import ConsoleLog
from labctl.board.job import JobProgress, JobSpec, JobState, Started
from labctl.board.lease import Lease
from labctl.config.lab import Board
from labctl.config.recipe import Precision, Recipe
from labctl.config.recipe_parts import Variant
from labctl.engines.base import Tool
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.errors import BoardBusy, DeviceLost, InfraError, LeaseLost
from labctl.models.cache import ModelFile
from labctl.records.board import BoardFacts, Execution
from labctl.records.run import PlanRecord
from labctl.records.trial import ConditionRecord, JobStatus, TrialLimit, TrialRecord
from labctl.results.gates import CompareGates, leave_open
from labctl.runs.board.session import BoardSession
from labctl.runs.context import MoreTrials, RunContext
from labctl.runs.inputs.prepare import Prepared
from labctl.runs.observer import Observer
from labctl.runs.planning.forecast import Forecast
from labctl.runs.planning.time_limits import MAX_TIME, Amount, RunClock
from labctl.runs.planning.time_limits import RECIPE as BY_RECIPE
from labctl.runs.planning.trials import PlannedTrial, make_plan
from labctl.runs.record.journal import Journal
from labctl.runs.runner import Outcome, run_trials
from labctl.transport.local import LocalConfig

ASKED = Recipe.model_validate(
    {
        "name": "r",
        "target": "rk3568",
        "engine": {"name": "llama_cpp"},
        "models": {"m": {"file": "m.gguf"}},
        "prompt": "x",
        "max_time": "1m",
        "timeouts": {"reattach": "1s"},
    }
)


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
        ask: Callable[..., object],
    ) -> None:
        self._blip("collect")
        ask("", timeout=1)
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

    def removal(self, directory: str) -> str:
        return directory

    def _blip(self, step: str) -> None:
        if step in self.blips:
            raise self.blips.pop(step)


@dataclass
class PlayedClaim:
    """A claim to a board that may be lost."""

    setting: "Setting"
    agent: PlayedAgent
    leases: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(path="/w/lease"))
    epoch: int = 1
    is_inherited: bool = False

    def check(self) -> None:
        if self.setting.lost:
            raise self.setting.lost

    def check_and_run(self, _script: str, *, timeout: float) -> None:
        self.check()

    def check_before_trial(self) -> None:
        self.check()

    def require(self) -> None:
        if self.setting.over:
            raise self.setting.over

    def refuse_if_kept_for_another(self) -> None:
        if self.setting.kept_for_another:
            raise self.setting.kept_for_another

    def release(self, script: str) -> None:
        self.agent.remove(script)
        self.setting.released.append(script)


@dataclass
class PlayedBoard:
    """A board under a claim. It answers again when the setting says so."""

    setting: "Setting"
    board: Board
    facts: BoardFacts
    agent: PlayedAgent
    transport: None = None
    fence: None = None

    def __post_init__(self) -> None:
        self.claim = PlayedClaim(self.setting, self.agent)

    @property
    def has_changes(self) -> bool:
        return self.setting.has_changes

    def take_lease(self) -> Lease:
        return Lease("lab", self.claim.epoch, "host", "2026-11-21T00:00:00+00:00", "0123")

    renew = BoardSession.renew

    def conditions(self, *_wanted: object) -> "PlayedConditions":
        return PlayedConditions(self.setting)

    def look_again(self) -> BoardFacts:
        self.setting.renewals += 1
        if self.setting.renewal:
            raise self.setting.renewal
        return self.setting.facts()


@dataclass
class PlayedConditions:
    """Conditions that are soon as they were asked for."""

    setting: "Setting"
    unlike: dict[str, JsonValue] = field(default_factory=dict)
    last: tuple[ConditionRecord, ...] = ()

    def held(
        self, mine: Callable[[], None], *, restore: bool = True
    ) -> AbstractContextManager[None]:
        self.setting.restored.append(restore)
        return self.setting.held(mine)

    def ready(self, longest_s: float, _mine: Callable[[], None]) -> tuple[ConditionRecord, ...]:
        self.setting.waits.append(longest_s)
        self.setting.while_waiting()
        return (ConditionRecord(name="temperature", wanted="<= 50 °C", had="45 °C", ok=True),)


class LossesSeen(Observer):
    """Keeps why the link was lost, and the notes."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[InfraError] = []
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def link_lost(self, error: InfraError) -> None:
        self.losses.append(error)


class Setting:
    """A run of four trials, and what stands around it."""

    def __init__(self, runs: Path) -> None:
        self.agent = PlayedAgent()
        self.lost: LeaseLost | None = None
        #: The lab's lease is over; the board's time is another's.
        self.over: LeaseLost | None = None
        self.kept_for_another: BoardBusy | None = None
        self.observer = LossesSeen()
        self.is_untrusted = False
        self.limits = {"m": TrialLimit(seconds=60, source=MAX_TIME)}
        self.waits: list[float] = []
        #: Whether an earlier controller left settings, and whether they were put back.
        self.has_changes = True
        self.restored: list[bool] = []
        #: What was removed when the board was let go.
        self.released: list[str] = []
        self.while_waiting: Callable[[], None] = lambda: None
        self.renewal: InfraError | None = None
        self.held: Callable[[Callable[[], None]], AbstractContextManager[None]] = lambda _mine: (
            nullcontext()
        )
        self.execution = Execution.BOARD
        self.infra_retries = 0
        self.renewals = 0
        self.precision: Precision | None = None
        self.compare: CompareGates = leave_open
        self.search: MoreTrials | None = None
        self.console: ConsoleLog | None = None
        self.trials: Sequence[PlannedTrial] = planned()
        trials = tuple(trial.record() for trial in planned())
        self.directory = planned_run(
            runs, run(), PlanRecord(trials=trials, max_seconds=60, prompt_sha256="")
        )
        self.journal = Journal(self.directory.path, "r")

    @property
    def losses(self) -> list[InfraError]:
        return self.observer.losses

    def may_take(self, seconds: float) -> None:
        """Each trial, by the recipe."""
        self.limits = {"m": TrialLimit(seconds=seconds, source=BY_RECIPE)}

    def lose(self) -> None:
        self.lost = LeaseLost("another lab took the board")

    def facts(self) -> BoardFacts:
        return BoardFacts(
            execution=self.execution,
            machine="aarch64",
            kernel="5.10",
            boot_id=self.agent.boot_id if self.renewals else "b1",
        )

    def forecast(self) -> Forecast:
        return forecast_of({}, self.facts(), None)

    def context(self) -> RunContext:
        board = Board.model_validate(
            {"target": "rk3568", "workdir": "/w", "transport": LocalConfig()}
        )
        board._name = "rk1"
        recipe = ASKED.model_copy(
            update={"infra_retries": self.infra_retries, "repeats_until": self.precision}
        )
        file = ModelFile(Path("m.gguf"), model("m"))
        context = RunContext(
            held=PlayedBoard(self, board, self.facts(), self.agent),  # type: ignore[arg-type]
            prepared=Prepared(
                lab_root=Path("/lab"),
                recipe=recipe,
                engine=LlamaCpp(),
                artifact=None,
                tool=Tool("llama-completion", "completion"),
                program=None,
                prompt="x",
                files={},
                models={"m": file},
            ),
            forecast=self.forecast(),
            run=run(untrusted_recipe=self.is_untrusted),
            directory=self.directory,
            journal=self.journal,
            clock=RunClock(60, self.limits, lambda _trial: None),
            observer=self.observer,
            paths={file.identity.sha256: "/w/store/m"},
            program_sha256=None,
            compare=self.compare,
            search=self.search,
            console=self.console,
        )
        context.conditions = PlayedConditions(self)  # type: ignore[assignment]
        return context

    def run(self, done: Sequence[TrialRecord] = (), *, still_ours: bool = False) -> Outcome:
        return run_trials(self.context(), self.trials, done, still_ours=still_ours)

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
