"""Checks are due when they were never made, long ago, many jobs ago, or are wanted."""

from pathlib import Path

import pytest

from labctl.config.health import HealthChecks
from labctl.config.lab import Board, Lab, LabFile
from labctl.farm.health.checks_due import due
from labctl.state.health import Health
from labctl.state.state import lab_state
from labctl.transport.local import LocalConfig


@pytest.fixture
def lab(tmp_path: Path) -> LabFile:
    one = Board(target="rk3568", transport=LocalConfig(), workdir="/tmp/w")
    boards = {name: one.model_copy() for name in ("b0", "b1", "b2")}
    return LabFile(tmp_path, Lab(boards=boards, health=HealthChecks(jobs=3)))


def reasons(lab: LabFile) -> dict[str, str]:
    return {one.board: one.reason for one in due(lab)}


def test_every_board_is_checked_once_and_after_some_jobs(lab: LabFile) -> None:
    state = lab_state(lab)
    assert reasons(lab) == dict.fromkeys(["b0", "b1", "b2"], "no health check yet")
    for name in ("b0", "b1", "b2"):
        state.health.checked(name, None)
    assert reasons(lab) == {}
    for _ in range(3):
        state.health.job_done("b1")
    assert reasons(lab) == {"b1": "3 jobs since the last check"}
    state.health.want_check("b2", "job 7 broke there")
    assert list(reasons(lab)) == ["b1", "b2"]  # who waits longest first
    state.health.set("b2", Health.MAINTENANCE, reason="fan", by="me")
    assert list(reasons(lab)) == ["b1"]


def test_a_check_is_due_after_a_time_and_a_hot_board_cools_first(lab: LabFile) -> None:
    state = lab_state(lab)
    for name in ("b0", "b1", "b2"):
        state.health.checked(name, None)
    with state.changing() as connection:
        connection.exec_driver_sql("UPDATE board_health SET checked_at = checked_at - 86400")
    state.health.want_check("b1", "hot", after_s=900)
    assert reasons(lab) == dict.fromkeys(["b0", "b2"], "the last check was 24.0 h ago")
