"""Whose board it is: other controllers are respected while they live, and not a moment longer."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from labctl.board import BoardAgent, BoardLease, BoardStore, Lease
from labctl.config.lab import Board
from labctl.config.target import load_target
from labctl.errors import BoardError, DeviceLost
from labctl.records import BoardFacts, Execution
from labctl.runs import BoardSession
from labctl.transport import connect

AGENT = """#!/bin/sh
[ -f "$3/runs" ] && echo '{"state":"running"}' || echo '{"state":"finished"}'
"""


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    folder = tmp_path / "board"
    folder.mkdir()
    (folder / "agent").write_text(AGENT)
    (folder / "agent").chmod(0o755)
    return folder


@pytest.fixture
def session(tmp_path: Path, private_state: Path, workdir: Path) -> Iterator[BoardSession]:
    board = Board.model_validate(
        {"target": "host-x86_64", "workdir": str(workdir), "transport": {"kind": "local"}}
    )
    with connect("local") as link, ExitStack() as ending:
        yield BoardSession(
            board,
            load_target("host-x86_64"),
            BoardFacts(execution=Execution.NATIVE_HOST, machine="m", kernel="k", boot_id="b"),
            BoardStore(link, str(workdir)),
            BoardAgent(link, str(workdir / "agent"), str(workdir)),
            BoardLease(link, str(workdir)),
            link,
            tmp_path / "state" / "board.epoch",
            ending,
        )


def silent_for(workdir: Path, seconds: float) -> None:
    alive = workdir / "lease.alive"
    now, boot = alive.read_text().split()
    alive.write_text(f"{int(now) - int(seconds)} {boot}\n")


def test_a_free_board_is_taken_and_left(session: BoardSession, workdir: Path) -> None:
    session.refuse_if_taken()
    taken = session.take_lease("lab")
    assert (workdir / "lease.alive").exists()
    session.refuse_if_taken()  # it is ours
    session.ending.close()
    assert not (workdir / "lease.alive").exists()
    assert json.loads((workdir / "lease").read_text())["epoch"] == taken.epoch


def test_a_lease_that_was_taken_over_is_left_as_well(session: BoardSession, workdir: Path) -> None:
    session.keep_lease(session.leases.acquire("lab"))
    session.ending.close()
    assert not (workdir / "lease.alive").exists()


def test_another_controller_is_not_driven_out(session: BoardSession, workdir: Path) -> None:
    theirs = session.leases.acquire("nightly")
    for take in (session.refuse_if_taken, lambda: session.take_lease("lab")):
        with pytest.raises(BoardError, match=r"is in use by nightly .*: it gave a sign of life"):
            take()
    session.ending.close()
    session.leases.check(theirs)


def test_a_dead_one_is_not_waited_for_for_ever(
    session: BoardSession, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labctl.board.lease.ALIVE_SECONDS", 5.0)  # this computer may be just on
    theirs = session.leases.acquire("nightly")
    silent_for(workdir, 10)
    assert session.take_lease("lab").epoch == theirs.epoch + 1


def test_a_silent_one_whose_job_runs_is_alive(session: BoardSession, workdir: Path) -> None:
    session.leases.acquire("nightly")
    (workdir / "lease.alive").unlink()
    job = workdir / "jobs" / "1"
    job.mkdir(parents=True)
    (job / "started.json").write_text("{}")
    (job / "runs").write_text("")
    with pytest.raises(BoardError, match="a job runs there"):
        session.take_lease("lab")
    (job / "runs").unlink()
    session.take_lease("lab")


def test_a_lease_is_our_own_before_its_answer_has_come(
    session: BoardSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The board has it, and who took it dies or loses the link before it knows that."""

    def lost(_lease: Lease) -> None:
        raise DeviceLost("cable")

    with monkeypatch.context() as broken:
        broken.setattr(session.leases, "check", lost)
        with pytest.raises(DeviceLost):
            session.take_lease("lab")
    session.leases.check(taken := session.leases.read() or pytest.fail("there is no lease"))
    assert session.take_lease("lab").epoch == taken.epoch + 1


def test_what_this_host_had_is_its_own_whoever_died(session: BoardSession, tmp_path: Path) -> None:
    """Also when it comes by another way, of which it knows no epoch."""
    first = session.take_lease("lab")
    second = replace(session, known_epoch=tmp_path / "state" / "other.epoch").take_lease("lab")
    assert second.epoch == first.epoch + 1


def test_the_same_epoch_is_not_the_same_lease(session: BoardSession) -> None:
    first = session.take_lease("lab")
    theirs = session.leases.acquire("nightly")
    assert theirs.epoch == first.epoch + 1
    session.known_epoch.write_text(f"{theirs.epoch}\n")
    with pytest.raises(BoardError, match="is in use by nightly"):
        session.take_lease("lab")
