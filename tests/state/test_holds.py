"""Holds, reservations and the audit log, on SQLite and on PostgreSQL."""

import time
from pathlib import Path

import pytest
from postgres_server import PostgresServer

from labctl.config.lab import Lab, LabFile
from labctl.config.quotas import Quota
from labctl.errors import BoardBusy, ConfigError, LeaseLost
from labctl.state.state import LabState, lab_state

ANN, BOB = "ann@desk", "bob@desk"
HOUR = 3600.0


@pytest.fixture(params=["sqlite", "postgresql"])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> LabState:
    if request.param == "sqlite":
        return lab_state(LabFile(tmp_path, Lab(boards={})))
    server: PostgresServer = request.getfixturevalue("postgres")
    return lab_state(LabFile(tmp_path, Lab(lab=server.new_lab(), database=server.url, boards={})))


def audited(state: LabState) -> list[tuple[str, str, str, str | None]]:
    return [(one.actor, one.action, one.subject, one.reason) for one in state.audit.list()]


def test_a_hold_keeps_others_out_and_lets_its_holder_run(state: LabState) -> None:
    held = state.holds.hold("rk1", by=ANN, reason="look at the fan", seconds=HOUR)
    assert state.reservations.in_force() == [held]
    with pytest.raises(BoardBusy, match=r"board rk1 is held by ann@desk until .*: look at"):
        state.leases.acquire("rk1", purpose="run", holder=BOB)
    with pytest.raises(BoardBusy, match="is held by ann@desk"):
        state.holds.hold("rk1", by=BOB)
    lease = state.leases.acquire("rk1", purpose="run", holder=ANN)
    again = state.holds.hold("rk1", by=ANN, seconds=2 * HOUR)
    assert state.reservations.in_force() == [again]
    state.leases.release(lease)
    assert state.holds.release("rk1", by=ANN) == ["the hold of ann@desk"]
    assert state.holds.release("rk1", by=ANN) == []
    assert state.leases.acquire("rk1", purpose="run", holder=BOB).epoch == 2
    assert audited(state) == [
        (ANN, "hold", "rk1", "look at the fan"),
        (ANN, "hold", "rk1", None),
        (ANN, "release", "rk1", None),
    ]


def test_who_has_no_host_is_the_user_on_every_host_and_hosts_stay_apart(state: LabState) -> None:
    state.holds.hold("rk1", by=ANN)
    for other in ("ann@laptop", "bob", BOB, "ann@des", "an"):
        with pytest.raises(ConfigError, match="is ann@desk's"):
            state.holds.release("rk1", by=other)
    assert state.holds.release("rk1", by="ann", via="web") == ["the hold of ann@desk"]
    state.holds.hold("rk1", by="ann", via="web")
    assert state.holds.release("rk1", by="ann@laptop") == ["the hold of ann"]
    begin = time.time() + HOUR
    one = state.reservations.add("rk1", begin, begin + HOUR, holder=BOB, by=ANN)
    assert state.reservations.cancel(one.id, by="ann", reason=None) == one


def test_another_ends_a_hold_with_force_and_a_reason_only(state: LabState) -> None:
    state.holds.hold("rk1", by=ANN)
    lease = state.leases.acquire("rk1", purpose="run q2", holder=ANN)
    with pytest.raises(ConfigError, match="is ann@desk's"):
        state.holds.release("rk1", by=BOB)
    with pytest.raises(ConfigError, match="a reason is required"):
        state.holds.release("rk1", by=BOB, force=True, reason=" ")
    ended = state.holds.release("rk1", by=BOB, force=True, reason="she is on holiday")
    assert ended == ["the hold of ann@desk", "the lease of ann@desk: run q2"]
    with pytest.raises(LeaseLost):
        state.leases.renew(lease)
    # The epoch that the old holder has is never the one of the next.
    assert state.leases.acquire("rk1", purpose="b", holder=BOB).epoch == lease.epoch + 2
    assert audited(state)[-1] == (BOB, "release --force", "rk1", "she is on holiday")


def test_a_board_that_is_used_cannot_be_held_by_another(state: LabState) -> None:
    state.leases.acquire("rk1", purpose="run q2", holder=ANN)
    with pytest.raises(BoardBusy, match="in use by ann@desk"):
        state.holds.hold("rk1", by=BOB)
    with pytest.raises(ConfigError, match="board rk1 is ann@desk's"):
        state.holds.release("rk1", by=BOB)
    state.holds.hold("rk1", by=ANN)


def test_work_must_end_before_a_reservation_of_another(state: LabState) -> None:
    begin = time.time() + HOUR
    state.reservations.add("rk1", begin, begin + HOUR, holder="ann", by=BOB, reason="demo")
    with pytest.raises(BoardBusy, match=r"rk1 is reserved for ann from 20.* to 20.*: demo"):
        state.leases.acquire("rk1", purpose="long", holder=BOB, planned_seconds=2 * HOUR)
    short = state.leases.acquire("rk1", purpose="short", holder=BOB, planned_seconds=HOUR / 2)
    state.leases.release(short)
    with pytest.raises(BoardBusy, match="is reserved for ann"):
        state.holds.hold("rk1", by=BOB, seconds=2 * HOUR)
    state.holds.hold("rk1", by=BOB, seconds=HOUR / 2)
    with pytest.raises(BoardBusy, match="is reserved for ann"):
        state.reservations.add("rk1", begin + 60, begin + 120, holder=BOB, by=BOB)
    state.reservations.add("rk1", begin + HOUR, begin + 2 * HOUR, holder=BOB, by=BOB)
    state.holds.release("rk1", by=BOB)
    # ``ann`` is ann on whatever host.
    state.leases.acquire("rk1", purpose="long", holder="ann@lab9", planned_seconds=1.5 * HOUR)


def test_nobody_starts_work_in_a_time_of_maintenance(state: LabState) -> None:
    now = time.time()
    state.reservations.add(
        "rk1", now - 5, now + HOUR, holder=ANN, by=ANN, kind="maintenance", reason="new fan"
    )
    for who in (ANN, BOB):
        with pytest.raises(BoardBusy, match=r"rk1 has maintenance from .*: new fan"):
            state.leases.acquire("rk1", purpose="run", holder=who)


def test_a_reservation_is_cancelled_by_its_user_or_with_force(state: LabState) -> None:
    begin = time.time() + HOUR
    one = state.reservations.add("rk1", begin, begin + HOUR, holder=ANN, by=ANN)
    two = state.reservations.add("rk2", begin, begin + HOUR, holder=ANN, by=BOB)
    assert state.reservations.list() == [one, two]
    assert state.reservations.list("rk2") == [two]
    with pytest.raises(ConfigError, match="is ann@desk's"):
        state.reservations.cancel(one.id, by=BOB, reason=None)
    assert state.reservations.cancel(two.id, by=BOB, reason=None) == two
    state.reservations.cancel(one.id, by=BOB, force=True, reason="no demo")
    assert state.reservations.list() == []
    with pytest.raises(ConfigError, match="no reservation"):
        state.reservations.cancel(one.id, by=ANN, reason=None)
    assert audited(state)[-1] == (BOB, "reserve cancel", "rk1", "no demo")


@pytest.mark.parametrize(("begins", "ends"), [(HOUR, HOUR), (HOUR, 60), (-2 * HOUR, -HOUR)])
def test_times_that_cannot_be_are_refused(tmp_path: Path, begins: float, ends: float) -> None:
    state = lab_state(LabFile(tmp_path, Lab(boards={})))
    now = time.time()
    with pytest.raises(ConfigError):
        state.reservations.add("rk1", now + begins, now + ends, holder=ANN, by=ANN)
    assert state.reservations.list() == []


def test_the_audit_log_tells_what_was_done(state: LabState) -> None:
    state.audit.record(ANN, "web", "queue cancel", "j1", "a\x1b[2J\nb", details={"n": 1})
    state.audit.record("an%@desk", "cli", "health", "rk1")
    state.audit.record(BOB, "cli", "health", "rk1", "x" * 9999)
    first, second, third = state.audit.list()
    assert (first.actor, first.via, first.reason, first.details) == (
        ANN,
        "web",
        "a\\x1b[2J\\x0ab",
        {"n": 1},
    )
    assert [one.id for one in (first, second, third)] == [1, 2, 3]
    assert len(third.reason or "") == 500
    assert state.audit.list(actor="ann") == [first]
    assert state.audit.list(actor="an%") == [second]
    assert state.audit.list(actor=BOB) == [third]
    assert state.audit.list(subject="rk1") == [second, third]
    assert state.audit.list(limit=1) == [third]
    assert state.audit.list(since=third.at + 1) == []


def test_a_user_has_no_more_boards_at_once_than_the_quota(state: LabState) -> None:
    state.quotas = {"ann": Quota(boards=2), "default": Quota(boards=1)}
    first = state.leases.acquire("rk1", purpose="run", holder=ANN)
    state.holds.hold("rk2", by="ann@laptop")
    state.leases.acquire("rk2", purpose="run", holder="ann@laptop")  # is hers already
    for take in (
        lambda: state.leases.acquire("rk3", purpose="run", holder=ANN),
        lambda: state.holds.hold("rk3", by=ANN),
    ):
        with pytest.raises(BoardBusy, match="ann has rk1, rk2 already, and may have 2 at once"):
            take()
    state.leases.release(first)
    state.leases.acquire("rk3", purpose="run", holder=ANN)
    state.leases.acquire("rk4", purpose="run", holder=BOB)
    with pytest.raises(BoardBusy, match="bob has rk4 already"):
        state.leases.acquire("rk5", purpose="run", holder=BOB)


def test_reservations_count_for_the_quota_of_boards(state: LabState) -> None:
    state.quotas = {"default": Quota(boards=2)}
    begin = time.time() + HOUR

    def reserve(board: str, first: float, last: float) -> None:
        state.reservations.add(board, begin + first * HOUR, begin + last * HOUR, holder=ANN, by=BOB)

    reserve("rk1", 0, 2)
    reserve("rk2", 2, 4)  # once rk1 is over
    reserve("rk3", 0, 4)  # beside one of them at each time
    with pytest.raises(BoardBusy, match="ann has rk1, rk3 in that time, and may have 2 at once"):
        reserve("rk4", 1, 2)
    with pytest.raises(BoardBusy, match="ann has rk2, rk3 in that time"):
        reserve("rk4", 3, 9)
    reserve("rk4", 4, 9)
    state.reservations.add(
        "rk5", begin, begin + HOUR, holder=ANN, by=ANN, kind="maintenance", reason="fan"
    )
    now = time.time() - 1
    for board in ("rk6", "rk7"):
        state.reservations.add(board, now, now + 60, holder=BOB, by=BOB)
    with pytest.raises(BoardBusy, match="bob has rk6, rk7 already"):
        state.holds.hold("rk8", by=BOB)


def test_a_hold_counts_until_its_end_for_the_quota_of_boards(state: LabState) -> None:
    state.quotas = {"default": Quota(boards=1)}
    now = time.time()
    state.reservations.add("rk3", now + HOUR, now + 2 * HOUR, holder=ANN, by=ANN)
    with pytest.raises(BoardBusy, match="ann has rk3 in that time, and may have 1 at once"):
        state.holds.hold("rk1", by=ANN, seconds=8 * HOUR)
    state.holds.hold("rk1", by=ANN, seconds=HOUR / 2)


def test_a_user_has_no_more_hours_a_day_than_the_quota(state: LabState) -> None:
    state.quotas = {"default": Quota(hours=2.5)}

    def had(board: str, began: float, ended: float | None) -> None:
        """Let a lease have begun, and ended, so many hours ago."""
        lease = state.leases.acquire(board, purpose="run", holder=ANN)
        with state.changing() as connection:
            connection.exec_driver_sql(
                f"UPDATE board_lease SET since = since - {began * HOUR} WHERE board = '{board}'"
            )
        if ended is not None:
            state.leases.release(lease)
            with state.changing() as connection:
                connection.exec_driver_sql(
                    f"UPDATE board_event SET at = at - {ended * HOUR} WHERE board = '{board}'"
                )

    had("rk1", 30, 23)  # one hour of it is in the last day
    had("rk2", 50, 30)
    had("rk3", 1, None)
    had("rk4", 0.6, 0)
    with pytest.raises(BoardBusy, match=r"ann used boards for 2\.6 h in the last 24 hours"):
        state.leases.acquire("rk5", purpose="run", holder=ANN)
    state.leases.acquire("rk5", purpose="run", holder=BOB)
