"""The table of uses: docs = data = behaviour."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from sqlalchemy import text

from labctl.config.lab import Board, Lab, LabFile
from labctl.config.quotas import Quota
from labctl.errors import BoardBusy, BoardOutOfService, LeaseLost
from labctl.state.health import NOT_LOOKED_THROUGH, UNTRUSTED, Health
from labctl.state.job import NewJob
from labctl.state.lease import StateLease
from labctl.state.lease_wish import Wish
from labctl.state.state import LabState, lab_state
from labctl.state.uses import QUEUED_KINDS, USE_KINDS, USES, Use, UseKind
from labctl.transport.local import LocalConfig

DOCS = Path(__file__).parents[2] / "docs" / "queue.md"
WORDS: dict[str, dict[str, object]] = {
    "queues": {"waits": True, "fails": False},
    "counts": {"counts": True, "no": False},
    "health": {"fit": "fit", "fit, or inspection due": "uninspected", "any": "any"},
    "limits": {"counts": True, "no": False},
    "left_program": {"refused": "refused", "continues its own": "continues", "ends it": "ends"},
    "alone": {"refused": True, "has it": False},
}
SHARING = Board(target="rk3568", transport=LocalConfig(), workdir="/tmp/w", shares=["usb1"])
RUN = "20261120T223000Z-q8-abcdef"
ANN, BOB = "ann@pc", "bob@pc"
kinds = pytest.mark.parametrize("kind", USE_KINDS)


def documented() -> dict[str, Use]:
    lines = DOCS.read_text().splitlines()
    rows = [re.split(r"\s*\|\s*", line)[1:-1] for line in lines if line.startswith("| `")]
    return {
        row[0].strip("`"): Use(
            **{
                name: cells[cell]
                for (name, cells), cell in zip(WORDS.items(), row[2:], strict=True)
            }  # type: ignore[arg-type]
        )
        for row in rows
    }


def test_the_docs_have_the_table() -> None:
    assert documented() == USES
    assert tuple(USES) == USE_KINDS == get_args(UseKind)


@pytest.fixture
def lab(tmp_path: Path) -> LabFile:
    return LabFile(
        tmp_path, Lab(shared_limits={"usb1": 9}, boards={"rk1": SHARING, "rk2": SHARING})
    )


@pytest.fixture
def state(lab: LabFile) -> LabState:
    return lab_state(lab)


def takes(state: LabState, kind: UseKind, board: str = "rk1", **more: Any) -> StateLease:
    return state.leases.take(Wish(board, str(kind), kind, **{"holder": BOB, "token": kind, **more}))


def gets(state: LabState, kind: UseKind, **more: Any) -> bool:
    """Whether a use gets rk1 at once, and a job of its kind by its turn: both or neither."""
    try:
        lease = takes(state, kind, **more)
    except (BoardBusy, BoardOutOfService):
        at_once = False
    else:
        at_once = True
        state.leases.release(lease)
    if kind in QUEUED_KINDS:
        seconds = more.get("planned_seconds", 0.0)
        user = more.get("holder", BOB)
        new = NewJob("q8", {}, ("rk1",), kind, submitter=user, max_seconds=seconds)
        (job,) = state.jobs.submit(new)
        claimed = state.jobs.claim(["rk1"], "worker")
        assert [one.id for one in claimed] == [job.id] * at_once
        (state.jobs.finish(claimed[0], 0) if claimed else state.jobs.cancel(job.id, "x"))
    return at_once


@kinds
def test_a_use_is_a_job_from_its_lease_to_the_leases_end(state: LabState, kind: UseKind) -> None:
    lease = takes(state, kind)
    (job,) = state.jobs.list()
    assert (job.id, job.kind, job.state, job.board) == (lease.job, kind, "running", "rk1")
    assert (job.submitter, job.name) == (BOB, kind)
    with pytest.raises(BoardBusy, match=rf"board rk1 is in use by {BOB} .*{kind}"):
        takes(state, kind, token="another")
    assert len(state.jobs.list()) == 1  # who fails at once leaves nothing that waits
    state.leases.release(lease)
    assert state.jobs.list() == []
    assert state.jobs.find(job.id).state == "done"


@kinds
def test_who_queues_waits_for_the_board(state: LabState, kind: UseKind) -> None:
    lease = takes(state, "run", holder=ANN)
    new = NewJob("q8", {}, ("rk1",), kind, submitter=BOB)
    state.jobs.submit(new)
    assert state.jobs.claim(["rk1"], "worker") == []
    state.leases.release(lease)
    assert [one.id for one in state.jobs.claim(["rk1"], "worker")] == [new.id]
    assert (kind in QUEUED_KINDS) is USES[kind].queues


@kinds
def test_all_respect_holds_reservations_and_claims(state: LabState, kind: UseKind) -> None:
    assert gets(state, kind, planned_seconds=3600.0)
    now = state.moment()
    state.reservations.add("rk1", now + 1800, now + 3600, holder=ANN, by=ANN)
    assert gets(state, kind, planned_seconds=600.0)
    assert not gets(state, kind, planned_seconds=3600.0)
    assert gets(state, kind, planned_seconds=3600.0, holder=ANN)
    for one in state.reservations.list():
        state.reservations.cancel(one.id, by=ANN, reason="x")
    state.holds.hold("rk1", by=ANN)
    assert not gets(state, kind)
    state.holds.release("rk1", by=ANN)
    state.jobs.submit(NewJob("anns", {}, ("rk1",), submitter=ANN))
    (claimed,) = state.jobs.claim(["rk1"], "lab2:1:ab")
    if USES[kind].alone:
        what = rf"rk1 is in use by ann@pc .*job {claimed.id} \(anns\)"
        with pytest.raises(BoardBusy, match=what):
            takes(state, kind)
    else:
        state.leases.release(takes(state, kind))  # it has claimed the board, and gets ready
    part = takes(state, kind, job=claimed.id, attempt=1)  # what is a part of it may
    assert (part.job, part.host) == (claimed.id, "lab2")
    state.leases.release(part)
    assert state.jobs.find(claimed.id).state == "running"
    with pytest.raises(LeaseLost, match="was lost"):
        takes(state, kind, job=claimed.id, attempt=2)
    with pytest.raises(LeaseLost, match="was lost"):
        takes(state, kind, "rk2", job=claimed.id, attempt=1)


@kinds
def test_quotas_count_by_the_table(state: LabState, kind: UseKind) -> None:
    own = takes(state, kind, "rk2")
    assert gets(state, kind)
    state.quotas = {"bob": Quota(boards=1)}
    assert gets(state, "run") is not USES[kind].counts  # what it has already
    state.leases.release(own)
    other = takes(state, "run", "rk2", token="other")
    assert gets(state, kind) is not USES[kind].counts  # what it wants
    state.leases.release(other)
    assert gets(state, kind)  # a job and its lease are one


@kinds
def test_hours_count_by_the_table(state: LabState, kind: UseKind) -> None:
    lease = takes(state, kind, "rk2")
    earlier = "UPDATE board_lease SET since = since - 7200"
    with state.changing() as connection:
        connection.execute(text(earlier))
    state.quotas = {"bob": Quota(hours=1.0)}
    assert gets(state, "run") is not USES[kind].counts
    state.leases.release(lease)
    assert gets(state, "run") is not USES[kind].counts


@kinds
def test_a_user_who_has_boards_comes_later_by_the_table(state: LabState, kind: UseKind) -> None:
    takes(state, kind, "rk2")
    bobs, anns = (NewJob(who, {}, ("rk1",), submitter=who) for who in (BOB, ANN))
    state.jobs.submit(bobs, anns)
    (first,) = state.jobs.claim(["rk1"], "worker")
    assert first.submitter == (ANN if USES[kind].counts else BOB)


SICK: dict[str, Callable[[LabState], object]] = {
    **{
        health.value: lambda state, health=health: state.health.set(  # type: ignore[misc]
            "rk1", health, reason="x", by="test"
        )
        for health in Health
    },
    "uninspected": lambda state: state.health.set(
        "rk1", Health.BAD, reason="x", by="test", evidence={UNTRUSTED: NOT_LOOKED_THROUGH}
    ),
}


@kinds
@pytest.mark.parametrize("sick", SICK)
def test_health_by_the_table(state: LabState, kind: UseKind, sick: str) -> None:
    SICK[sick](state)
    rule = USES[kind].health
    fits = sick in ("good", "unknown") or rule in ("any", sick)
    assert gets(state, kind) is fits
    state.holds.hold("rk1", by=BOB)
    assert gets(state, kind)


@kinds
def test_shared_limits_by_the_table(state: LabState, kind: UseKind) -> None:
    state.shared_limits = replace(state.shared_limits, most={"usb1": 1})
    own = takes(state, kind, "rk2")
    assert gets(state, "run") is not USES[kind].limits  # what it uses
    state.leases.release(own)
    other = takes(state, "run", "rk2")
    assert gets(state, kind) is not USES[kind].limits  # what it waits for
    state.leases.release(other)
    assert gets(state, kind)


def dies(lab: LabFile, **more: Any) -> None:
    """A run has rk1, and its process dies."""
    state = lab_state(lab)
    wish = {"run": RUN, "planned_seconds": 3600.0, "holder": ANN, **more}
    takes(state, "run", token="dead", **wish)
    with state.changing() as connection:
        for table in ("board_lease", "job"):
            connection.execute(text(f"UPDATE {table} SET expires = expires - 61"))


@kinds
def test_the_program_of_a_dead_run_by_the_table(lab: LabFile, kind: UseKind) -> None:
    state, rule = lab_state(lab), USES[kind].left_program
    for run in (None, "another", RUN):
        dies(lab)
        if rule == "refused" or (rule == "continues" and run != RUN):
            with pytest.raises(BoardBusy, match=f"in use by run {RUN} of {ANN}") as refused:
                takes(state, kind, run=run)
            assert f"labctl resume {RUN}" in str(refused.value.hint)
        else:
            state.leases.release(takes(state, kind, run=run))
        released = takes(state, kind, run=run, is_idle=True)  # the caller saw that it has ended
        state.leases.release(released)
        state.leases.release(takes(state, kind))  # it is as if it had never been there
    for is_over in ("max_time", "force"):
        dies(lab, planned_seconds=0.0 if is_over == "max_time" else 3600.0)
        if is_over == "force":
            state.holds.release("rk1", by=BOB, force=True, reason="x")
        else:
            with state.changing() as connection:
                connection.execute(text("UPDATE job SET started_at = started_at - 1"))
        state.leases.release(takes(state, kind, token="next"))


def test_a_dead_holder_of_this_host_ends_its_job_at_once(state: LabState) -> None:
    first = takes(state, "deploy", token="dead")
    second = takes(state, "deploy", token="next", is_dead=lambda token: token == "dead")
    assert [one.id for one in state.jobs.list()] == [second.job]
    ended = state.jobs.find(str(first.job))
    assert (ended.state, ended.reason) == ("cancelled", "its holder died")


def test_a_lease_that_is_renewed_keeps_its_job(lab: LabFile, state: LabState) -> None:
    lease = takes(state, "probe")
    before = state.jobs.find(str(lease.job)).expires
    lab_state(replace(lab, lease_seconds=600.0)).leases.renew(lease)
    assert (state.jobs.find(str(lease.job)).expires or 0) > (before or 0) + 500


def test_a_job_whose_lease_ran_out_is_over(lab: LabFile, state: LabState) -> None:
    dies(lab)
    state.jobs.free_lost()
    assert state.jobs.list() == []
    (ended,) = state.jobs.list(ended=9)
    assert (ended.state, ended.run) == ("cancelled", RUN)
