"""Health of boards in the lab's state, on SQLite and on PostgreSQL."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from postgres_server import PostgresServer

from labctl.config.lab import Lab, LabFile
from labctl.errors import BoardBusy, BoardOutOfService
from labctl.state.events import this_user
from labctl.state.health import NOT_LOOKED_THROUGH, Health, untrusted_use
from labctl.state.state import LabState, lab_state


@pytest.fixture(params=["sqlite", "postgresql"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> LabFile:
    if request.param == "sqlite":
        return LabFile(tmp_path, Lab(boards={}))
    server: PostgresServer = request.getfixturevalue("postgres")
    return LabFile(tmp_path, Lab(lab=server.new_lab(), database=server.url, boards={}))


@pytest.fixture
def state(lab: LabFile) -> LabState:
    return lab_state(lab)


def test_a_board_that_nobody_checked_is_unknown_and_may_work(state: LabState) -> None:
    health = state.health.get("rk1")
    assert (health.health, health.reason) == (Health.UNKNOWN, "no health check yet")
    health.require_work()
    state.health.job_done("rk1")
    assert state.health.get("rk1").health is Health.UNKNOWN
    assert state.health.history("rk1") == []


def test_health_is_kept_with_its_reason_evidence_and_history(state: LabState) -> None:
    state.health.set("rk1", Health.GOOD, reason="as before", by="check", evidence={"n": 8})
    bad = state.health.set(
        "rk1", Health.BAD, reason="memory -12 %", by="check", evidence={"probe": "p.json"}
    )
    assert state.health.get("rk1") == bad
    assert (bad.health, bad.made_by, bad.evidence) == (Health.BAD, "check", {"probe": "p.json"})
    with pytest.raises(BoardOutOfService, match="board rk1 is bad: memory -12 %") as refused:
        bad.require_work()
    assert refused.value.exit_status == 3
    assert "labctl boards history rk1" in (refused.value.hint or "")
    again = state.health.set("rk1", Health.BAD, reason="memory -13 %", by="check")
    assert again.since == bad.since
    assert again.reason == "memory -13 %"
    state.health.set("rk2", Health.GOOD, reason="new fan", by="me@desk")
    events = state.health.history("rk1")
    assert [(e.kind, e.value, e.reason) for e in events] == [
        ("health", "good", "as before"),
        ("health", "bad", "memory -12 %"),
    ]
    assert events[1].details == {"probe": "p.json"}
    assert state.health.history("rk1", since=events[1].at + 1) == []
    assert state.health.history("rk1", limit=1) == events[1:]
    assert [one.board for one in state.health.list()] == ["rk1", "rk2"]


def test_a_check_does_not_end_what_a_person_decided(state: LabState) -> None:
    state.health.set("rk1", Health.MAINTENANCE, reason="new fan", by="me@desk")
    kept = state.health.set(
        "rk1", Health.GOOD, reason="check", by="check", unless=[Health.MAINTENANCE]
    )
    assert (kept.health, kept.reason) == (Health.MAINTENANCE, "new fan")
    assert len(state.health.history("rk1")) == 1
    with pytest.raises(BoardOutOfService, match="maintenance: new fan"):
        kept.require_work()


def test_jobs_are_counted_until_the_next_check(state: LabState) -> None:
    for _ in range(3):
        state.health.job_done("rk1")
    assert state.health.get("rk1").jobs_since_check == 3
    state.health.checked("rk1", "probe-1.json")
    checked = state.health.get("rk1")
    assert (checked.jobs_since_check, checked.checked_run) == (0, "probe-1.json")
    assert checked.checked_at is not None
    assert checked.health is Health.UNKNOWN


def test_firmware_and_state_are_in_the_history_where_they_change(state: LabState) -> None:
    assert not state.health.set_firmware("rk1", "OpenHarmony 4.1", by="check")
    assert not state.health.set_firmware("rk1", "OpenHarmony 4.1", by="check")
    assert state.health.set_firmware("rk1", "OpenHarmony 5.0", by="check")
    for result in ("connected", "offline", "unauthorised", "connected"):
        state.health.contacted({"rk1": result}, by="check", reason="x")
        assert state.health.get("rk1").contact == result
        assert state.health.get("rk1").is_offline == (result != "connected")
    assert [(e.kind, e.value) for e in state.health.history("rk1")] == [
        ("firmware", "OpenHarmony 4.1"),
        ("firmware", "OpenHarmony 5.0"),
        ("state", "offline"),
        ("state", "idle"),
    ]
    assert state.health.history("rk1")[1].reason == "before: OpenHarmony 4.1"


def test_what_a_board_says_cannot_reach_a_terminal(state: LabState) -> None:
    state.health.set("rk1", Health.BAD, reason="\x1b[2Jx\ny", by="check")
    state.health.set_firmware("rk1", "\x1b]0;title\x07", by="check")
    for event in state.health.history("rk1"):
        for text in (event.value, event.reason or ""):
            assert text.isprintable(), text
    assert (state.health.get("rk1").reason or "").isprintable()
    assert not state.health.set_firmware("rk1", "\x1b]0;title\x07", by="check")


def test_the_history_is_backed_up_and_goes_on_after_a_restore(
    state: LabState, tmp_path: Path
) -> None:
    state.health.set("rk1", Health.GOOD, reason="a", by="check")
    copy = state.backup(tmp_path / "copy.sqlite")
    state.health.set("rk1", Health.BAD, reason="b", by="check")
    state.restore(copy)
    assert state.health.get("rk1").health is Health.GOOD
    state.health.set("rk1", Health.BAD, reason="c", by="check")
    assert [event.reason for event in state.health.history("rk1")] == ["a", "c"]


def test_who_holds_a_bad_board_may_use_it(state: LabState) -> None:
    state.health.set("rk1", Health.BAD, reason="slow", by="check")
    with pytest.raises(BoardOutOfService, match="rk1 is bad: slow"):
        state.health.require_work("rk1", "me@desk")
    state.holds.hold("rk1", by="me@desk", reason="to look at it")
    state.health.require_work("rk1", "me@desk")
    with pytest.raises(BoardOutOfService):
        state.health.require_work("rk1", "you@desk")
    state.health.require_work("rk2", "you@desk")


def test_a_check_is_wanted_until_it_is_done(state: LabState) -> None:
    state.health.want_check("rk1", "hot", after_s=900)
    state.health.want_check("rk1", "job 7 broke there")
    state.health.want_check("rk1", "later", after_s=900)
    wish = state.health.get("rk1")
    assert wish.check_wanted_for == "job 7 broke there"
    assert (wish.check_wanted_at or 0) <= state.moment()
    state.health.checked("rk1", None)
    assert state.health.get("rk1").check_wanted_at is None


def _used(state: LabState, pid: int, **by: object) -> None:
    evidence = untrusted_use(pid) | by
    state.health.set("rk1", Health.BAD, reason=NOT_LOOKED_THROUGH, by="test", evidence=evidence)


def test_a_board_that_an_untrusted_recipe_has_is_waited_for_while_its_process_lives(
    state: LabState,
) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    )
    _used(state, other.pid)
    with pytest.raises(BoardBusy, match="board rk1 is in use: an untrusted recipe has it"):
        state.health.require_work("rk1", this_user())
    assert state.health.working(["rk1"], this_user()) == ["rk1"]
    other.communicate()
    with pytest.raises(BoardOutOfService, match="not looked through"):
        state.health.require_work("rk1", this_user())
    assert state.health.working(["rk1"], this_user(), untrusted=True) == ["rk1"]


def test_another_process_with_the_same_id_has_no_board(state: LabState) -> None:
    """Ids are used again soon: on a small host, and after a restart of the host."""
    with subprocess.Popen(["sleep", "600"]) as other:
        try:
            _used(state, other.pid, started=untrusted_use(os.getpid())["started"])
            with pytest.raises(BoardOutOfService, match="not looked through"):
                state.health.require_work("rk1", this_user())
        finally:
            other.kill()


def test_a_board_that_an_untrusted_recipe_of_another_host_has_is_waited_for_while_it_gives_signs(
    lab: LabFile, state: LabState
) -> None:
    _used(state, os.getpid(), host="elsewhere")
    with pytest.raises(BoardBusy):  # it was told now
        state.health.require_work("rk1", this_user())
    later = lab_state(replace(lab, lease_seconds=-1.0))
    lease = state.leases.acquire("rk1", purpose="run", kind="untrusted")
    with pytest.raises(BoardBusy):
        later.health.require_work("rk1", this_user())
    state.leases.release(lease)
    with pytest.raises(BoardOutOfService):
        later.health.require_work("rk1", this_user())
