"""Shared limits hold for all hosts of a lab together, on SQLite and on PostgreSQL."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from postgres_server import PostgresServer

from labctl.config.lab import Board, Lab, LabFile
from labctl.state.job import NewJob
from labctl.state.state import LabState, lab_state
from labctl.transport.local import LocalConfig

SHARING = Board(target="rk3568", transport=LocalConfig(), workdir="/tmp/w", shares=["usb1"])
ALONE = Board(target="rk3568", transport=LocalConfig(), workdir="/tmp/w")


@pytest.fixture(params=["sqlite", "postgresql"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> LabFile:
    given: dict[str, Any] = {
        "shared_limits": {"usb1": 2, "power": 1},
        "boards": {**{f"rk{number}": SHARING for number in range(1, 5)}, "alone": ALONE},
    }
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        given |= {"lab": server.new_lab(), "database": server.url}
    return LabFile(tmp_path, Lab(**given))


@pytest.fixture
def one(lab: LabFile) -> LabState:
    return lab_state(lab)


@pytest.fixture
def other(lab: LabFile) -> LabState:
    """The state as another host has it."""
    return lab_state(lab)


def job(name: str, board: str, **values: Any) -> NewJob:
    return NewJob(name, {}, (board,), **{"submitter": "ann@pc", **values})


def begun(state: LabState, worker: str, *boards: str) -> list[str]:
    return [str(claimed.board) for claimed in state.jobs.claim(boards, worker)]


def test_a_limit_counts_the_jobs_of_all_hosts(one: LabState, other: LabState) -> None:
    first, *_, last = one.jobs.submit(*(job(f"j{n}", f"rk{n}") for n in range(1, 5)))
    assert begun(one, "lab1", "rk1") == ["rk1"]
    assert begun(other, "lab2", "rk2", "rk3", "rk4") == ["rk2"]
    assert begun(one, "lab1", "rk3") == []
    assert begun(other, "lab2", "rk4") == []
    waiting = one.jobs.find(last.id)
    assert waiting.reason == "shared limit usb1 is in use by 2 of 2 jobs: j1 on rk1, j2 on rk2"
    one.jobs.finish(one.jobs.find(first.id), 0)
    assert begun(other, "lab2", "rk4", "rk3") == ["rk3"]  # it stands first


def test_a_claim_counts_what_it_gives_out_itself(one: LabState) -> None:
    one.jobs.submit(*(job(f"j{n}", f"rk{n}") for n in range(1, 5)), job("free", "alone"))
    assert begun(one, "lab1", "rk1", "rk2", "rk3", "rk4", "alone") == ["rk1", "rk2", "alone"]


def test_a_foreground_job_waits_for_a_limit_and_counts_for_it(
    one: LabState, other: LabState
) -> None:
    (run,) = one.jobs.submit(job("run", "rk1", runner="process"))
    one.jobs.submit(job("a", "rk2"), job("b", "rk3"), job("c", "rk4"))
    assert begun(other, "lab2", "rk2", "rk3") == ["rk2", "rk3"]
    assert one.jobs.claim_own(run.id, ["rk1"], "pc") is None
    assert "shared limit usb1" in str(one.jobs.find(run.id).reason)
    other.jobs.finish(next(found for found in other.jobs.list() if found.board == "rk2"), 0)
    claimed = one.jobs.claim_own(run.id, ["rk1"], "pc")
    assert claimed is not None
    assert begun(other, "lab2", "rk4") == []
    one.jobs.finish(claimed, 0)
    assert begun(other, "lab2", "rk4") == ["rk4"]


def test_a_job_uses_limits_of_its_own(one: LabState, other: LabState) -> None:
    first, second = one.jobs.submit(
        job("a", "alone", uses=("power",)), job("b", "rk1", uses=("power", "unknown"))
    )
    assert first.uses == ("power",)
    assert begun(one, "lab1", "alone") == ["alone"]
    assert begun(other, "lab2", "rk1") == []
    assert other.jobs.find(second.id).reason == (
        "shared limit power is in use by 1 of 1 jobs: a on alone"
    )


def test_a_job_of_a_dead_worker_no_longer_counts(one: LabState, lab: LabFile) -> None:
    one.jobs.submit(job("a", "alone", uses=("power",)), job("b", "rk1", uses=("power",)))
    assert begun(one, "lab1", "alone") == ["alone"]
    dying = lab_state(replace(lab, lease_seconds=-1.0))
    dying.jobs.renew("lab1")
    assert begun(one, "lab2", "rk1") == ["rk1"]


def test_a_job_with_another_board_waits_without_a_reason(one: LabState) -> None:
    one.jobs.submit(job("a", "rk1"), job("b", "rk2"))
    assert begun(one, "lab1", "rk1", "rk2") == ["rk1", "rk2"]
    (both,) = one.jobs.submit(NewJob("c", {}, ("rk3", "alone"), submitter="ann@pc"))
    assert begun(one, "lab1", "rk3") == []
    assert one.jobs.find(both.id).reason is None  # it waits for the other board
