"""Health checks of boards whose hdc server is lost: their host is to blame, and no board."""

import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from failing_boards import command, connect, lab_of_boards, load, thawing
from fake_hdc import FakeHdc, install

from labctl.config.lab import LabFile
from labctl.farm.health.checking import CheckResult, check
from labctl.farm.health.verdict import Finding
from labctl.runs.observer import Observer
from labctl.state.health import Health
from labctl.state.state import lab_state
from labctl.transport.hdc_server import shared

pytestmark = pytest.mark.usefixtures("private_state")

#: A server that stands still is given up soon.
PATIENCE = 1.0


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        number: int = free.getsockname()[1]
        return number


@pytest.fixture
def hdc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHdc]:
    monkeypatch.setattr(shared, "_shared", {})
    hdc = install(tmp_path, monkeypatch)
    hdc.does(boards={"cable": "127.0.0.1:1"})  # a board is found at once
    yield hdc
    for restarting in shared._shared.values():
        restarting.stop()


@pytest.fixture
def lab(tmp_path: Path, port: int) -> Iterator[Callable[[str], LabFile]]:
    """Makes a lab of three boards of which the first is behind an hdc server, with its switches."""
    with lab_of_boards(tmp_path, count=3) as (_, boards):

        def make(switches: str) -> LabFile:
            devices = tmp_path / "devices.yaml"
            way = f"link: server, key: '{boards[0].address}', server: '127.0.0.1:{port}'"
            text = re.sub("link: tcp, address: '[^']*'", way, devices.read_text(), count=1)
            devices.write_text(text.replace("wait: 5s, ", f"wait: 2s, {switches}", 1))
            lab = load(tmp_path)
            lab_state(lab).health.set("b0", Health.GOOD, reason="fast", by="check")
            return lab

        yield make


def checked(lab: LabFile) -> CheckResult:
    return check(lab, lab.board("b0"), partial(connect, patience=PATIENCE), Observer())


def hang(lab: LabFile, hdc: FakeHdc) -> None:
    """Let the server run, and then stand still."""
    with connect(lab.board("b0"), PATIENCE) as link:
        assert link.run("true", timeout=30).exit_status == 0
    os.kill(hdc.server_pid(), signal.SIGSTOP)


def test_a_server_that_is_down_takes_no_health_and_switches_no_board(
    lab: Callable[[str], LabFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = thawing(tmp_path, "reboot")
    made = lab(f"reboot: {command(program, 'b0', 'on')}")
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nowhere")  # no hdc: none is started
        result = checked(made)
    assert (result.verdict.finding, result.climb) == (Finding.HOST, None), result.verdict
    assert "no hdc server answers" in result.verdict.reason
    assert result.health.health is Health.GOOD
    assert (lab_state(made).health.get("b0").check_wanted_for or "").startswith("host: ")
    assert not (tmp_path / "reboot.told").exists()


def test_a_server_that_hangs_is_restarted_where_that_is_allowed(
    lab: Callable[[str], LabFile], hdc: FakeHdc
) -> None:
    made = lab("restart_hdc: true")
    hang(made, hdc)
    first = hdc.server_pid()
    result = checked(made)
    assert hdc.server_pid() != first
    assert result.climb is not None, result.verdict
    assert result.climb.helped == "restart hdc"
    assert result.verdict.finding not in (Finding.HOST, Finding.FAILING), result.verdict
    assert result.health.health is not Health.BAD


def test_a_board_that_a_restarted_server_does_not_reach_is_bad(
    lab: Callable[[str], LabFile], hdc: FakeHdc
) -> None:
    made = lab("restart_hdc: true")
    hang(made, hdc)
    with socket.socket() as nothing:  # bound, so that nobody else has the port, and refusing
        nothing.bind(("127.0.0.1", 0))
        hdc.does(dial=f"127.0.0.1:{nothing.getsockname()[1]}")
        result = checked(made)
    assert result.verdict.finding is Finding.FAILING, result.verdict
    assert "nothing helped (tried: reconnect, restart hdc)" in (result.health.reason or "")
    assert result.health.health is Health.BAD
    assert lab_state(made).health.get("b0").contact == "offline"
