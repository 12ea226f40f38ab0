"""The journal, and what another controller makes of it after the first one died."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from played_runs import Setting, fail

from labctl.board.lease import Lease
from labctl.errors import BoardError, BoardRebooted, ConfigError, DeviceLost
from labctl.runs.record.journal import Journal

LEASE = Lease("lab", 3, "host", "2026-11-21T00:00:00+00:00", "0123")


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path, "r")


def test_a_trial_that_was_begun_and_has_no_end_is_open(journal: Journal, tmp_path: Path) -> None:
    first = journal.attempt(7)
    assert (first.number, first.directory, first.open) == (1, "r-7", False)
    journal.started(7, first, "b1")
    assert Journal(tmp_path, "r").attempt(7).open
    assert not Journal(tmp_path, "r").attempt(8).open


def test_the_attempt_after_a_cut_has_a_job_of_its_own(journal: Journal, tmp_path: Path) -> None:
    first = journal.attempt(7)
    journal.started(7, first, "b1")
    journal.cut(7, first, BoardError("the agent was killed"))
    second = Journal(tmp_path, "r").attempt(7)
    assert (second.number, second.directory, second.open) == (2, "r-7-2", False)
    assert [failure.message for failure in second.failures] == ["the agent was killed"]


def test_only_the_last_lease_is_the_runs_own(journal: Journal, tmp_path: Path) -> None:
    assert not journal.holds(LEASE)
    assert not journal.holds(None)
    journal.leased(LEASE)
    again = Journal(tmp_path, "r")
    assert again.holds(LEASE)
    assert not again.holds(Lease("lab", 3, "host", LEASE.utc, "4567"))


def test_a_user_without_name_and_home_can_lease(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_123)  # as in a container
    journal.leased(LEASE)
    (entry,) = Journal(tmp_path, "r").leases
    assert (entry.user, entry.home) == ("4000123", None)


def test_a_line_that_a_power_cut_tore_was_not_acted_on(journal: Journal, tmp_path: Path) -> None:
    journal.started(1, journal.attempt(1), "b1")
    path = tmp_path / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])
    again = Journal(tmp_path, "r")
    assert path.read_bytes() != whole  # who only looks changes nothing: it may be being written
    again.resumed("rk1")
    assert Journal(tmp_path, "r").resumptions == 1
    assert path.read_bytes().startswith(whole)


def test_a_damaged_journal_is_refused_not_guessed_at(journal: Journal, tmp_path: Path) -> None:
    journal.resumed("rk1")
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"{}\n" + path.read_bytes())
    with pytest.raises(ConfigError, match=r"journal\.jsonl is not a journal"):
        Journal(tmp_path, "r")


def test_a_journal_of_a_newer_labctl_is_refused_by_name(journal: Journal, tmp_path: Path) -> None:
    journal.resumed("rk1")
    path = tmp_path / "journal.jsonl"
    path.write_bytes(path.read_bytes() + b'{"schema_version": 3, "event": "paused"}\n')
    with pytest.raises(ConfigError, match=r"journal\.jsonl was written by a newer labctl"):
        Journal(tmp_path, "r")


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


def go_on(setting: Setting) -> None:
    setting.another_controller()
    setting.agent.events = {}
    done = [record for record in setting.directory.trials() if record.failure is None]
    for record in setting.directory.trials():
        if record.failure:
            setting.directory.set_aside(record.number, record.slug, record.attempt)
    setting.run(done)


def test_a_job_whose_link_was_lost_is_taken_over_not_repeated(setting: Setting) -> None:
    setting.agent.events[3] = fail(DeviceLost("the cable is out"))
    with pytest.raises(DeviceLost):
        setting.run()
    assert setting.states == ["ok", "ok", "failed"]
    go_on(setting)
    assert setting.states == ["ok"] * 4
    assert setting.agent.taken_over == ["/w/jobs/r-3"]
    assert setting.agent.started == [f"/w/jobs/r-{number}" for number in (1, 2, 3, 4)]
    assert [record.attempt for record in setting.directory.trials()] == [1] * 4


def test_a_job_that_the_board_lost_is_measured_again(setting: Setting) -> None:
    setting.agent.events[3] = fail(BoardError("the agent was killed"))
    with pytest.raises(BoardError):
        setting.run()
    go_on(setting)
    assert setting.states == ["ok"] * 4
    assert setting.agent.taken_over == []
    third = setting.directory.trials()[2]
    assert (third.attempt, third.earlier_failures[0].message) == (2, "the agent was killed")


def test_a_job_of_a_killed_controller_stays_on_the_board_until_its_record_is_on_disk(
    setting: Setting,
) -> None:
    """In a process of its own, killed as no handler sees it."""
    if (child := os.fork()) == 0:  # pragma: no cover - the child has no coverage to give
        setting.agent.events[2] = lambda: os.kill(os.getpid(), signal.SIGKILL)
        try:
            setting.run()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert setting.states == ["ok"]
    setting.agent.left = ("/w/jobs/r-2",)
    go_on(setting)
    assert setting.states == ["ok"] * 4
    assert setting.agent.taken_over == ["/w/jobs/r-2"]


def test_a_job_that_never_came_to_the_board_is_begun_as_any_other(setting: Setting) -> None:
    """Its controller was interrupted, or died between the journal and the board."""
    setting.agent.events[2] = fail(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        setting.run()
    setting.agent.left = ()
    setting.waits.clear()
    go_on(setting)
    assert setting.states == ["ok"] * 4
    assert setting.agent.taken_over == []
    # It waited for the board as all others, and says so.
    assert len(setting.waits) == 3
    second = setting.directory.trials()[1]
    assert (second.attempt, second.conditions[0].had) == (1, "45 °C")


def test_what_ended_while_no_controller_looked_costs_no_retry_of_this_one(
    setting: Setting,
) -> None:
    assert setting.infra_retries == 0
    setting.agent.events[2] = fail(DeviceLost("the cable is out"))
    with pytest.raises(DeviceLost):
        setting.run()
    setting.another_controller()
    record = setting.directory.trials()[1]
    setting.directory.set_aside(record.number, record.slug, record.attempt)
    setting.agent.events = {2: once(BoardRebooted("it restarted meanwhile"))}
    setting.run(setting.directory.trials())
    assert setting.states == ["ok"] * 4
    second = setting.directory.trials()[1]
    assert (second.attempt, second.earlier_failures[0].kind) == (2, "BoardRebooted")


def once(error: Exception) -> Callable[[], None]:
    """An event that happens the first time only."""
    errors = [error]

    def event() -> None:
        if errors:
            raise errors.pop()

    return event


def test_a_kill_between_putting_aside_and_beginning_anew_mixes_nothing(setting: Setting) -> None:
    setting.agent.events[2] = fail(BoardError("the agent was killed"))
    with pytest.raises(BoardError):
        setting.run()
    record = setting.directory.trials()[1]
    folder = setting.directory.trial_path(record.number, record.slug)
    (folder / "telemetry").write_bytes(b"of the first attempt")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", replace_but("record.json"))  # killed before the last file
        with pytest.raises(KeyboardInterrupt):
            setting.directory.set_aside(record.number, record.slug, record.attempt)
    # The next controller sees a record that is no result, and does it again.
    assert [path.name for path in folder.iterdir() if path.is_file()] == ["record.json"]
    assert setting.directory.trials()[1].failure is not None


def replace_but(name: str) -> Callable[[Path, Path], Path]:
    real = Path.replace

    def replace(path: Path, target: Path) -> Path:
        if path.name == name:
            raise KeyboardInterrupt
        return real(path, target)

    return replace
