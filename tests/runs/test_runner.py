"""Runs on a board that is played by a few lines: what ends a run, and what stays of it."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from played_runs import Setting, fail, planned
from ptys import Pty
from records_made import run

from labctl.board.console import CONSOLE, ConsoleLog
from labctl.config.console import Console
from labctl.config.recipe import Precision
from labctl.errors import (
    BoardBusy,
    BoardError,
    BoardNotReady,
    BoardRebooted,
    ConfigError,
    DeviceLost,
    ExitStatus,
    HostError,
    LeaseLost,
)
from labctl.records.board import Execution
from labctl.records.run import GateRecord
from labctl.records.trial import TrialState
from labctl.report.status import last_lines
from labctl.results.gates import leave_open
from labctl.retry import wait_until
from labctl.runs.planning.trials import PlannedTrial


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


def test_infra_trouble_ends_the_run_and_keeps_what_was_finished(setting: Setting) -> None:
    setting.agent.events[3] = fail(DeviceLost("the cable is out"))
    with pytest.raises(DeviceLost):
        setting.run()
    assert setting.states == ["ok", "ok", "failed"]
    end = setting.directory.end()
    assert end is not None
    assert end.failure is not None
    assert (end.state, end.failure.kind, end.failure.blame) == ("failed", "DeviceLost", "infra")


@pytest.mark.usefixtures("private_state")
def test_a_failure_tells_what_the_kernel_wrote_meanwhile(setting: Setting, tmp_path: Path) -> None:
    pty, panic = Pty(tmp_path / "tty"), "Kernel panic - not syncing: Fatal exception"
    told: list[str] = []
    config = Console.model_construct(device=str(tmp_path / "tty"), baud=115200)
    log = setting.console = ConsoleLog(config, setting.directory.path / CONSOLE, told.append)

    def die() -> None:
        pty.send(b"[    9.000000] Out of memory: Killed process 4 (sh) total-vm:1kB\n")
        assert wait_until(lambda: len(log.since(0)) == 1, timeout=20, interval=0.02)

    def lose() -> None:
        pty.send(f"[   10.000000] {panic}\n".encode())
        assert wait_until(lambda: len(log.since(0)) == 2, timeout=20, interval=0.02)
        raise DeviceLost("the cable is out")

    setting.agent.events |= {2: die, 3: lose}
    with pytest.raises(DeviceLost):
        setting.run()
    pty.unplug()
    assert setting.states == ["ok", "ok", "failed"]
    end, failure = setting.directory.end(), setting.directory.trials()[-1].failure
    assert end is not None
    assert end.failure == failure
    assert failure is not None
    assert failure.sentence == "infra: the cable is out; console: kernel panic"
    assert failure.console_messages == (f"[   10.000000] {panic}",)
    assert last_lines(failure)[-1] == f"console: [   10.000000] {panic}"
    assert told[-1] == f"note: console: kernel panic: [   10.000000] {panic}"


def test_a_nearly_full_disk_stops_a_trial_before_it_starts(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_up() -> None:
        monkeypatch.setattr("labctl.runs.record.disk.free_space", lambda _: (100_000, None))

    setting.agent.events[2] = fill_up
    with pytest.raises(
        HostError, match=r"is nearly full: 100 kB free, and a trial .* needs 1"
    ) as e:
        setting.run()
    assert "labctl runs prune" in (e.value.hint or "")
    assert "labctl resume" in (e.value.hint or "")
    assert len(setting.agent.started) == 2
    assert setting.states == ["ok"] * 2
    end = setting.directory.end()
    assert end is not None
    assert end.failure is not None
    assert (end.state, end.failure.blame) == ("failed", "infra")
    monkeypatch.undo()
    setting.another_controller()
    assert setting.run(setting.directory.trials()).exit_status == ExitStatus.OK
    assert setting.states == ["ok"] * 4


def test_a_trial_needs_what_the_largest_had_and_files_too(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: tuple[int, int | None] = (1_000_000, None)
    monkeypatch.setattr("labctl.runs.record.disk.free_space", lambda _: left)
    setting.run()
    raw = setting.directory.trial_path(1, setting.directory.trials()[0].slug) / "telemetry"
    raw.write_bytes(bytes(600_000))
    with pytest.raises(HostError, match=r"1\.00 MB free, and a trial of this run needs 1\.2"):
        setting.directory.check_space()
    raw.unlink()
    left = (1_000_000, 5)
    with pytest.raises(HostError, match="nearly full: 5 files more"):
        setting.directory.check_space()


def test_a_board_that_is_lost_between_two_trials_cuts_none(setting: Setting) -> None:
    setting.agent.lost_after = 2
    with pytest.raises(DeviceLost):
        setting.run()
    assert setting.states == ["ok", "ok"]
    assert len(setting.agent.started) == 2
    end = setting.directory.end()
    assert end is not None
    assert end.state == "failed"


def test_a_board_that_is_lost_after_the_last_trial_costs_nothing(setting: Setting) -> None:
    setting.agent.lost_after = 4
    assert setting.run().exit_status == ExitStatus.OK
    assert setting.states == ["ok"] * 4
    end = setting.directory.end()
    assert end is not None
    assert end.state == "finished"


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


def test_nothing_is_recorded_once_the_labs_lease_is_over(setting: Setting) -> None:
    def over() -> None:
        setting.over = LeaseLost("the lease of board b has ended")

    setting.agent.events[2] = over
    with pytest.raises(LeaseLost, match="has ended"):
        setting.run()
    assert setting.states == ["ok"]
    lines = setting.directory.path.joinpath("journal.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines][-1] == "started"  # nothing after it


def test_no_trial_begins_in_the_time_of_another(setting: Setting) -> None:
    def begins() -> None:
        setting.kept_for_another = BoardBusy("board b is reserved for ann")

    setting.agent.events[2] = begins
    with pytest.raises(BoardBusy, match="reserved for ann"):
        setting.run()
    assert setting.states == ["ok", "ok"]


@pytest.mark.parametrize("untrusted", [False, True])
def test_only_a_run_that_can_be_resumed_says_how(setting: Setting, *, untrusted: bool) -> None:
    setting.is_untrusted = untrusted
    setting.kept_for_another = BoardBusy("board b is reserved for ann")
    with pytest.raises(BoardBusy):
        setting.run()
    (advice,) = [note for note in setting.observer.notes if "finished trials are kept" in note]
    assert ("labctl resume" in advice) is not untrusted


def test_a_trial_that_the_board_cut_is_begun_again_and_says_so(setting: Setting) -> None:
    setting.infra_retries = 1
    setting.agent.events[2] = fail(BoardRebooted("it restarted"))
    assert setting.run().exit_status == ExitStatus.OK
    assert setting.states == ["ok"] * 4
    assert setting.renewals == 1
    record = setting.directory.trials()[1]
    assert (record.attempt, [f.message for f in record.earlier_failures]) == (2, ["it restarted"])
    jobs = [f"/w/jobs/r-{name}" for name in ("1", "2", "2-2", "3", "4")]
    assert setting.agent.started == jobs
    assert sorted(setting.agent.removed) == sorted(jobs)


def test_a_trial_is_not_begun_more_often_than_the_recipe_allows(setting: Setting) -> None:
    setting.infra_retries = 2
    for job in (1, 2, 3):
        setting.agent.events[job] = fail(BoardError(f"its agent was killed, {job}"))
    with pytest.raises(BoardError, match="killed, 3"):
        setting.run()
    (record,) = setting.directory.trials()
    assert (record.attempt, len(record.earlier_failures)) == (3, 2)


class Searching:
    """A search that plans nothing more, and whose default is trial 1."""

    def more(self, _records: object, _planned: int) -> list[PlannedTrial]:
        return []

    def reason_to_skip(self, _trial: PlannedTrial) -> str | None:
        return None

    def may_drop(self, trial: PlannedTrial) -> bool:
        return trial.number != 1


def test_a_setting_that_loses_the_board_does_not_end_a_search(setting: Setting) -> None:
    setting.infra_retries, setting.search = 1, Searching()
    for job in (2, 3):
        setting.agent.events[job] = fail(BoardRebooted(f"out of memory, {job}"))
    assert setting.run().trials[-1].state is TrialState.OK
    assert setting.states == ["ok", "failed", "ok", "ok"]
    failure = setting.directory.trials()[1].failure
    assert failure is not None
    assert failure.message == "out of memory, 3"
    assert setting.renewals == 2
    assert {*setting.agent.removed} == {*setting.agent.started}


def test_parameters_refused_at_a_trial_end_a_setting_but_never_the_default(
    setting: Setting,
) -> None:
    setting.search = Searching()
    setting.agent.events[2] = fail(ConfigError("no such option"))
    setting.run()
    assert setting.states == ["ok", "failed", "ok", "ok"]


@pytest.mark.parametrize("error", [ConfigError("no such option"), BoardRebooted("restarted")])
def test_the_default_of_a_search_is_never_dropped(setting: Setting, error: Exception) -> None:
    setting.search = Searching()
    setting.agent.events[1] = fail(error)
    with pytest.raises(type(error)):
        setting.run()
    assert setting.states == ["failed"]


def test_a_board_that_does_not_come_back_is_what_the_run_ends_with(setting: Setting) -> None:
    setting.infra_retries, setting.renewal = 1, LeaseLost("another lab took the board")
    setting.agent.events[2] = fail(BoardRebooted("it restarted"))
    with pytest.raises(LeaseLost):
        setting.run()
    failure = setting.directory.trials()[1].failure
    assert failure is not None
    assert failure.kind == "BoardRebooted"
    end = setting.directory.end()
    assert end is not None
    assert end.failure is not None
    assert end.failure.kind == "LeaseLost"


def test_a_board_that_does_not_become_ready_is_not_waited_for_twice(setting: Setting) -> None:
    setting.infra_retries = 5
    setting.while_waiting = fail(BoardNotReady("too hot"))
    with pytest.raises(BoardNotReady):
        setting.run()
    assert (len(setting.waits), setting.renewals, setting.agent.started) == (1, 0, [])


def test_a_board_that_cannot_be_had_as_asked_is_how_the_run_ended(setting: Setting) -> None:
    @contextmanager
    def held(_mine: object) -> Iterator[None]:
        raise ConfigError("cannot set governor=performance")
        yield

    setting.held = held
    with pytest.raises(ConfigError):
        setting.run()
    end = setting.directory.end()
    assert end is not None
    assert end.failure is not None
    assert (end.state, end.failure.blame) == ("failed", "config")
    assert setting.agent.started == []


@pytest.mark.parametrize(
    ("has_changes", "still_ours", "restored"),
    [(True, False, True), (False, False, False), (True, True, False), (False, True, False)],
)
def test_what_an_earlier_controller_left_is_put_back_once(
    setting: Setting, *, has_changes: bool, still_ours: bool, restored: bool
) -> None:
    setting.has_changes = has_changes
    setting.run(still_ours=still_ours)
    assert setting.restored == [restored]


def test_a_full_disk_does_not_hide_why_a_run_ended(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_end: object) -> None:
        raise HostError("cannot write end.json: No space left on device")

    monkeypatch.setattr(setting.directory, "finish", full)
    setting.agent.events[2] = fail(BoardRebooted("it restarted"))
    with pytest.raises(BoardRebooted):
        setting.run()


def test_a_board_that_another_controller_took_is_not_fought_for(setting: Setting) -> None:
    setting.infra_retries = 5
    setting.agent.events[2] = setting.lose
    with pytest.raises(LeaseLost):
        setting.run()
    assert setting.renewals == 0


def test_a_failed_program_is_not_tried_again(setting: Setting) -> None:
    setting.infra_retries = 5
    setting.may_take(1)
    setting.agent.endless = (1,)
    assert setting.run().exit_status == ExitStatus.JOB
    assert setting.agent.started == ["/w/jobs/r-1"]


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
    setting.agent.blips = {"remove": DeviceLost("the cable is out")}
    assert setting.run().exit_status == ExitStatus.OK
    assert setting.states == ["ok"] * 4
    assert [str(error) for error in setting.losses] == ["the cable is out"]


def test_the_last_job_goes_with_the_lease_once_settings_are_put_back(setting: Setting) -> None:
    released: list[list[str]] = []

    @contextmanager
    def held(_mine: Callable[[], None]) -> Iterator[None]:
        yield
        released.append([*setting.released])

    setting.held = held
    assert setting.run().exit_status == ExitStatus.OK
    assert (released, setting.released) == ([[]], ["/w/jobs/r-4"])
    assert setting.agent.removed == [f"/w/jobs/r-{number}" for number in (1, 2, 3, 4)]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), HostError("the disk is full")])
def test_the_last_job_goes_also_where_settings_cannot_be_put_back(
    setting: Setting, error: BaseException
) -> None:
    @contextmanager
    def held(_mine: Callable[[], None]) -> Iterator[None]:
        yield
        raise error

    setting.held = held
    with pytest.raises(type(error)):
        setting.run()
    assert setting.agent.removed == [f"/w/jobs/r-{number}" for number in (1, 2, 3, 4)]
    assert setting.directory.end().state in ("interrupted", "failed")


def test_a_job_stays_that_cannot_be_removed_at_the_end(setting: Setting) -> None:
    setting.agent.lost_after = 4
    assert setting.run().exit_status == ExitStatus.OK
    assert setting.released == []
    assert setting.agent.removed == [f"/w/jobs/r-{number}" for number in (1, 2, 3)]


def test_the_last_job_is_removed_at_once_where_the_run_fails(setting: Setting) -> None:
    setting.agent.events[4] = fail(BoardRebooted("it restarted"))
    with pytest.raises(BoardRebooted):
        setting.run()
    assert setting.released == []
    assert setting.agent.removed == [f"/w/jobs/r-{number}" for number in (1, 2, 3, 4)]


def test_an_interruption_while_files_are_fetched_leaves_the_board_quiet(setting: Setting) -> None:
    setting.agent.blips = {"collect": KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        setting.run()
    assert setting.agent.stopped == ["/w/jobs/r-1"]


def test_an_interruption_while_a_trial_is_tidied_up_leaves_nothing_of_it(setting: Setting) -> None:
    setting.agent.blips = {"remove": KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        setting.run()
    assert setting.agent.removed == ["/w/jobs/r-1"]


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
    setting.agent.endless = (2,)
    setting.may_take(26)
    outcome = setting.run()
    assert outcome.exit_status == ExitStatus.JOB
    assert setting.states == ["ok", "failed", "skipped", "skipped"]
    assert outcome.trials[2].skip_reason == "trial 2 of this variant failed"


def test_waiting_for_the_board_counts_against_the_run_but_is_no_part_of_a_trial(
    setting: Setting, clock: None
) -> None:
    setting.while_waiting = setting.agent.events[1]
    outcome = setting.run()
    # 25 s of waiting and 25 s of the job; then 10 s are left, which is less than a job takes.
    assert setting.states == ["ok", "skipped", "skipped", "skipped"]
    assert outcome.trials[1].skip_reason == "max_time: 10.0 s left, the last such trial took 25.0 s"
    # Nothing is known of the first trial: half of the time for waiting, half for it.
    assert setting.waits == [30]
    limit = outcome.trials[0].limit
    assert limit is not None
    assert (limit.seconds, limit.source) == (35, "max_time: the remaining time")
    assert outcome.trials[0].waited_ns is not None
    assert [trial.took_ns for trial in outcome.trials] == [50 * 10**9, None, None, None]


def test_a_wait_that_the_link_interrupts_takes_no_time_of_the_trial(
    setting: Setting, clock: None
) -> None:
    takes_25_s = setting.agent.events[1]

    def lost_once() -> None:
        takes_25_s()
        setting.while_waiting = lambda: None
        raise DeviceLost("the cable is out")

    setting.while_waiting = lost_once
    setting.run()
    assert setting.waits[:2] == [30, 17.5]  # half of what is left, each time


def test_who_had_little_of_the_runs_time_is_not_said_to_hang(setting: Setting, clock: None) -> None:
    takes_25_s = setting.agent.events[1]
    setting.while_waiting = lambda: (takes_25_s(), takes_25_s())[0]
    setting.agent.endless = (1,)
    setting.run()
    assert setting.directory.trials()[0].skip_reason == "max_time: stopped after 10.0 s"


def test_a_first_trial_that_never_ends_failed(setting: Setting, clock: None) -> None:
    setting.agent.endless = (1,)
    assert setting.run().exit_status == ExitStatus.JOB
    assert setting.states == ["failed", "skipped", "skipped", "skipped"]


def test_a_trial_under_way_is_fetched_before_a_repeat_that_was_left_out(setting: Setting) -> None:
    setting.agent.lost_after = 2
    with pytest.raises(DeviceLost):
        setting.run()
    done = setting.directory.trials()
    first, second, third, fourth = planned()
    setting.trials = (first, second, replace(third, optional=True), fourth)
    setting.precision = Precision(confidence_interval=0.02)  # of two repeats it is unknown
    setting.another_controller()
    setting.journal.started(4, setting.journal.attempt(4), "b1")
    setting.agent.left = ("/w/jobs/r-4",)
    setting.agent.lost_after = None
    setting.run(done)
    assert setting.agent.taken_over == ["/w/jobs/r-4"]
    assert setting.agent.removed.index("/w/jobs/r-4") < setting.agent.removed.index("/w/jobs/r-3")
    assert setting.states == ["ok"] * 4


def test_a_gate_against_another_run_decides_on_the_exit_status_and_stays_in_the_end(
    setting: Setting,
) -> None:
    missed = GateRecord(
        variant="m",
        metric="tpot_ms",
        limit="against release-1.2",
        value=3.0,
        passed=False,
        detail="12 % slower",
        verdict="slower",
        reference=("20261120T223000Z-q2-abcdef",),
        ratio=1.12,
    )
    setting.compare = lambda _run, trials, _parameters: (missed,) if len(trials) == 4 else ()
    assert setting.run().exit_status == ExitStatus.JOB
    end = setting.directory.end()
    assert end is not None
    assert end.gates == (missed,)


def test_a_run_that_nobody_gave_a_comparison_leaves_such_a_gate_open() -> None:
    recipe = {"gates": [{"metric": "tpot_ms", "against": "release-1.2"}]}
    (record,) = leave_open(run(recipe_resolved=recipe), (), {})
    assert (record.passed, record.limit) == (None, "against release-1.2")
