"""Runs on a board that is played by a few lines: what ends a run, and what stays of it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from llama_output import session
from records_made import model, run

from labctl.board import JobSpec, Started
from labctl.config.variants import Variant
from labctl.engines import Tool
from labctl.engines.llama_cpp import LlamaCpp
from labctl.errors import BoardError, BoardRebooted, DeviceLost, ExitStatus, InfraError, LeaseLost
from labctl.records import BoardFacts, Execution, JobStatus, TrialState
from labctl.runs.directory import RunDirectory
from labctl.runs.execute import Bench, DeployedModel
from labctl.runs.observer import Observer
from labctl.runs.plan import Amount, make_plan
from labctl.runs.runner import Outcome, Runner


@dataclass
class PlayedAgent:
    """Every job prints four tokens. ``events`` by number of the job, from 1, happen in its wait."""

    events: dict[int, Callable[[], None]] = field(default_factory=dict)
    boot_id: str = "b1"
    emulator: str | None = None
    endless: tuple[int, ...] = ()
    blips: list[BaseException] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)

    def job_directory(self, name: str) -> str:
        return f"/w/jobs/{name}"

    def start(self, spec: JobSpec, **_: object) -> Started:
        self.started.append(spec.directory)
        return Started(spec.directory, 1, 2, self.boot_id, 0, self.emulator)

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

    def collect(self, directory: str, local: Path, *, status: JobStatus) -> None:
        if self.blips:
            raise self.blips.pop()
        raw = session([b"a", b"b", b"c", b"d"]).raw()
        for name in ("stdout", "stderr", "timeline"):
            (local / name).write_bytes(getattr(raw, name))

    def stop(self, directory: str) -> None:
        self.stopped.append(directory)

    def remove(self, directory: str) -> None:
        pass


class Setting:
    """A run of four trials, and what stands around it."""

    def __init__(self, runs: Path) -> None:
        self.agent = PlayedAgent()
        self.lost: LeaseLost | None = None
        self.losses: list[InfraError] = []
        self.trial_seconds: float | None = None
        self.execution = Execution.BOARD
        self.directory = RunDirectory.create(runs, run())

    def check_lease(self) -> None:
        if self.lost:
            raise self.lost

    def lose(self) -> None:
        self.lost = LeaseLost("another lab took the board")

    def run(self) -> Outcome:
        facts = BoardFacts(execution=self.execution, machine="aarch64", kernel="5.10", boot_id="b1")
        bench = Bench(
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
        )
        variant = Variant("m", "m", {"tokens": 4, "warmup": True})
        plan = make_plan(
            [variant],
            Amount(4, 0, {variant.slug: 4}),
            interleaved=True,
            max_seconds=60,
            min_tokens=None,
            predict=lambda *_: None,
        )
        runner = Runner(
            bench, self.directory, 60, self.trial_seconds, Observer(), _began=time.monotonic()
        )
        return runner.run(plan, run(), ())

    @property
    def states(self) -> list[str]:
        return [str(trial.state) for trial in self.directory.trials()]


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


def test_all_trials_of_a_good_run_are_kept(setting: Setting) -> None:
    outcome = setting.run()
    assert outcome.exit_status == ExitStatus.OK
    assert setting.states == ["ok"] * 4
    assert outcome.trials[0].timing is not None
    assert outcome.trials[0].timing.p50_ns == 100_000_000
    end = setting.directory.end()
    assert end is not None
    assert end.state == "finished"


def fail(error: BaseException) -> Callable[[], None]:
    def event() -> None:
        raise error

    return event


def test_infra_trouble_ends_the_run_and_keeps_what_was_finished(setting: Setting) -> None:
    setting.agent.events[3] = fail(DeviceLost("the cable is out"))
    with pytest.raises(DeviceLost):
        setting.run()
    assert setting.states == ["ok", "ok", "failed"]
    end = setting.directory.end()
    assert end is not None
    assert end.failure is not None
    assert (end.state, end.failure.kind, end.failure.blame) == ("failed", "DeviceLost", "infra")


def test_a_bug_is_recorded_as_nobodys_result(setting: Setting) -> None:
    setting.agent.events[2] = fail(ZeroDivisionError("division by zero"))
    with pytest.raises(ZeroDivisionError):
        setting.run()
    assert setting.states == ["ok", "failed"]
    for failure in (setting.directory.trials()[1].failure, setting.directory.end().failure):  # type: ignore[union-attr]
        assert failure is not None
        assert (failure.kind, failure.blame) == ("ZeroDivisionError", "infra")
        assert "bug in labctl" in failure.message


def test_an_interruption_stops_the_job_and_is_said(setting: Setting) -> None:
    setting.agent.events[2] = fail(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        setting.run()
    assert setting.agent.stopped == ["/w/jobs/r-2"]
    assert setting.states == ["ok"]
    end = setting.directory.end()
    assert end is not None
    assert end.state == "interrupted"


def test_what_ran_while_another_controller_took_the_board_is_no_result(setting: Setting) -> None:
    setting.agent.events[2] = setting.lose
    with pytest.raises(LeaseLost):
        setting.run()
    assert setting.states == ["ok", "failed"]
    assert setting.directory.trials()[1].timing is None


def test_nothing_is_started_on_a_board_that_another_controller_has(setting: Setting) -> None:
    setting.lose()
    with pytest.raises(LeaseLost):
        setting.run()
    assert setting.agent.started == []


def test_a_restart_between_trials_ends_the_run(setting: Setting) -> None:
    setting.agent.events[2] = lambda: setattr(setting.agent, "boot_id", "b2")
    with pytest.raises(BoardRebooted):
        setting.run()
    assert setting.states == ["ok", "ok", "failed"]
    assert setting.agent.stopped == ["/w/jobs/r-3"]


@pytest.mark.parametrize("execution", [Execution.BOARD, Execution.NATIVE_HOST])
def test_an_emulator_that_the_facts_do_not_tell_makes_no_record(
    setting: Setting, execution: Execution
) -> None:
    setting.execution, setting.agent.emulator = execution, "qemu-aarch64"
    with pytest.raises(BoardError, match="emulator"):
        setting.run()
    assert setting.states == [TrialState.FAILED]


def test_an_emulated_board_may_emulate(setting: Setting) -> None:
    setting.execution, setting.agent.emulator = Execution.EMULATED, "qemu-aarch64"
    assert setting.run().exit_status == ExitStatus.OK


def test_a_link_that_is_lost_for_a_moment_costs_nothing(setting: Setting) -> None:
    setting.agent.blips = [DeviceLost("the cable is out")]
    assert setting.run().exit_status == ExitStatus.OK
    assert setting.states == ["ok"] * 4
    assert [str(error) for error in setting.losses] == ["the cable is out"]


def test_an_interruption_while_files_are_fetched_leaves_the_board_quiet(setting: Setting) -> None:
    setting.agent.blips = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        setting.run()
    assert setting.agent.stopped == ["/w/jobs/r-1"]


@pytest.fixture
def clock(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every job takes 25 s; a run may take 60 s."""
    now = 1000.0

    def job() -> None:
        nonlocal now
        now += 25

    monkeypatch.setattr(time, "monotonic", lambda: now)
    setting.agent.events = dict.fromkeys(range(1, 5), job)


def test_what_the_runs_time_does_not_allow_is_not_measured(setting: Setting, clock: None) -> None:
    outcome = setting.run()
    assert outcome.exit_status == ExitStatus.OK
    assert setting.states == ["ok", "ok", "skipped", "skipped"]
    reason = "max_time: 10.0 s left, the last such trial took 25.0 s"
    assert outcome.trials[2].skip_reason == reason


def test_a_trial_that_the_end_of_the_runs_time_stops_is_no_failure(
    setting: Setting, clock: None
) -> None:
    setting.agent.endless = (2,)
    outcome = setting.run()
    assert outcome.exit_status == ExitStatus.OK
    assert setting.states == ["ok", "skipped", "skipped", "skipped"]
    reason = "max_time: stopped after 35.0 s, the one before took 25.0 s"
    assert outcome.trials[1].skip_reason == reason


def test_a_trial_that_exceeds_its_own_time_failed(setting: Setting, clock: None) -> None:
    setting.agent.endless, setting.trial_seconds = (2,), 26
    outcome = setting.run()
    assert outcome.exit_status == ExitStatus.JOB
    assert setting.states == ["ok", "failed", "skipped", "skipped"]
    assert outcome.trials[2].skip_reason == "trial 2 of this variant failed"


def test_a_first_trial_that_never_ends_failed(setting: Setting, clock: None) -> None:
    setting.agent.endless = (1,)
    assert setting.run().exit_status == ExitStatus.JOB
    assert setting.states == ["failed", "skipped", "skipped", "skipped"]
