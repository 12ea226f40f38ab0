"""Boards that hang are brought back by the mildest switch that helps, under the lab's lease."""

import os
import re
import socket
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import agent_builds
import pytest
from failing_boards import PowerSwitch, command, connect, lab_of_boards, load, thawing
from ptys import terminal

from labctl.config.lab import LabFile
from labctl.errors import (
    BoardBusy,
    BoardError,
    BoardNoSpace,
    BoardNotReady,
    CommandTimeout,
    ConfigError,
    LinkRefused,
)
from labctl.farm.health.checking import check
from labctl.farm.health.verdict import Finding, Verdict
from labctl.farm.recovery.host_fault import find_host_fault
from labctl.farm.recovery.ladder import Climb, recover
from labctl.runs.observer import Observer
from labctl.state.health import Health
from labctl.state.state import lab_state
from labctl.virtual.board import Served
from labctl.virtual.fault_script import Freeze, Truncate

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.usefixtures("private_state")


def hang(board: Served) -> None:
    board.faults.add(Freeze(on="now"))


def silence(board: Served) -> None:
    """Let a board answer nothing to its end: found out at once, unlike one that hangs."""
    board.faults.add(Truncate(on="shell", after_bytes=0, times=None))


def recovered(lab: LabFile, *, patience: float = 2.0, reconnect_seconds: float = 0.5) -> Climb:
    return recover(
        lab,
        lab.board("b0"),
        partial(connect, patience=patience),
        Observer(),
        why="it hangs",
        by="test",
        reconnect_seconds=reconnect_seconds,
    )


def climb(lab: LabFile, **limits: float) -> list[tuple[str, bool]]:
    found = recovered(lab, **limits)
    return [(step.rung, step.helped) for step in found.steps]


@pytest.fixture
def switch() -> PowerSwitch:
    return PowerSwitch()


def test_a_board_that_answers_is_only_contacted(tmp_path: Path) -> None:
    reflash = command(thawing(tmp_path, "reflash"), "BOARD", "on")
    with lab_of_boards(tmp_path, switches=f"reflash: {reflash}") as (lab, _):
        assert climb(lab) == [("reconnect", True)]
        assert not (tmp_path / "reflash.told").exists()
        (event,) = lab_state(lab).events.list("b0", kinds=["recovery"])
        assert (event.value, event.reason, event.made_by) == ("reconnect", "it helped", "test")
        assert lab_state(lab).leases.get("b0") is None


def test_a_board_is_not_waited_for_longer_than_after_a_switch(tmp_path: Path) -> None:
    with lab_of_boards(tmp_path) as (_, (board,)):
        devices = tmp_path / "devices.yaml"
        devices.write_text(devices.read_text().replace("wait: 5s", "wait: 100ms"))
        silence(board)
        assert climb(load(tmp_path), reconnect_seconds=600.0) == [("reconnect", False)]


@pytest.mark.parametrize("rung", ["usb", "reboot", "reflash"])
def test_a_program_brings_a_board_back(tmp_path: Path, rung: str) -> None:
    program = thawing(tmp_path, rung)
    on = command(program, "BOARD", "on")
    off = command(program, "BOARD", "off")
    action = f"{{off: {off}, on: {on}, pause: 10ms}}" if rung == "usb" else on
    with lab_of_boards(tmp_path, switches=f"{rung}: {action}") as (lab, (board,)):
        (hang if rung == "usb" else silence)(board)
        assert climb(lab) == [("reconnect", False), (rung, True)]
        told = (tmp_path / f"{rung}.told").read_text().splitlines()
        assert told == (["b0 off", "b0 on"] if rung == "usb" else ["b0 on"])


@pytest.mark.parametrize("shell", ["sh", "cat"])
def test_a_shell_on_the_console_brings_a_board_back(tmp_path: Path, shell: str) -> None:
    """It comes before the power supply; what is no shell gets no command."""
    program = thawing(tmp_path, "console")
    reboot = command(thawing(tmp_path, "reboot"), "BOARD", "on")
    words = f'[["{sys.executable}", "{program}", b0, "on"]]'
    with (
        terminal("env", f"PYTHONPATH={ROOT}", shell) as device,
        lab_of_boards(tmp_path, switches=f"reboot: {reboot}") as (_, (board,)),
    ):
        devices = tmp_path / "devices.yaml"
        text = devices.read_text()
        console = f"    console: {{device: {device}, baud: 115200}}\n"
        devices.write_text(
            text.replace("    switches: {", f"{console}    switches: {{console: {words}, ")
        )
        silence(board)
        lab = load(tmp_path)
        steps = recovered(lab).steps
    if shell == "sh":
        assert [(s.rung, s.helped) for s in steps] == [("reconnect", False), ("console", True)]
        assert (tmp_path / "console.told").read_text() == "b0 on\n"
        assert not (tmp_path / "reboot.told").exists()
    else:
        assert [(s.rung, s.helped) for s in steps][1:] == [("console", False), ("reboot", True)]
        assert "no shell answers on the console" in (steps[1].reason or "")
        assert not (tmp_path / "console.told").exists()


def test_the_ladder_stops_at_the_first_rung_that_helps(
    tmp_path: Path, switch: PowerSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The USB port does not help, the power supply does, nothing is reflashed."""
    usb, reflash = (thawing(tmp_path, name, after=99) for name in ("usb", "reflash"))
    with lab_of_boards(tmp_path) as (lab, (board,)), switch.serving(board):
        power = ", ".join(
            f"{word}: {{kind: http, address: '{switch.address}/{word}?port=b0',"
            " authorization_env: PDU_SECRET}"
            for word in ("off", "on")
        )
        switches = (
            f"usb: {{off: {command(usb, 'b0', 'off')}, on: {command(usb, 'b0', 'on')},"
            f" pause: 10ms}}, power: {{{power}, pause: 10ms}},"
            f" reflash: {command(reflash, 'b0', 'on')}"
        )
        devices = tmp_path / "devices.yaml"
        devices.write_text(devices.read_text().replace("wait: 5s, ", f"wait: 1s, {switches}"))
        lab = load(tmp_path)  # noqa: PLW2901 - the switches are known now
        silence(board)
        monkeypatch.delenv("PDU_SECRET", raising=False)
        with pytest.raises(ConfigError, match="variable PDU_SECRET, which a switch needs"):
            climb(lab)
        monkeypatch.setenv("PDU_SECRET", "Bearer hunter2")
        assert climb(lab) == [("reconnect", False), ("usb", False), ("power", True)]
        assert [path.rpartition("/")[2] for path in switch.asked] == ["off?port=b0", "on?port=b0"]
        assert switch.headers[0]["Authorization"] == "Bearer hunter2"
        assert not (tmp_path / "reflash.told").exists()
        events = lab_state(lab).events.list("b0", kinds=["recovery"])
        assert [(event.value, event.details["helped"]) for event in events] == [
            ("reconnect", False),
            ("usb", False),
            ("power", True),
        ]
        assert "hunter2" not in str(events)


def test_the_hdc_server_is_ended_before_the_next_contact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "hdc"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/told\n[ "$3" = kill ]\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with socket.create_server(("127.0.0.1", 0)) as hung:  # it accepts, and says nothing
        server = f"127.0.0.1:{hung.getsockname()[1]}"
        (tmp_path / "devices.yaml").write_text(
            f"""\
lab: test
boards:
  b0:
    target: {agent_builds.HOST}
    transport: {{kind: hdc, link: server, key: abc, server: "{server}"}}
    switches: {{restart_hdc: true, wait: 100ms}}
"""
        )
        with pytest.raises(CommandTimeout, match="sends no handshake"):  # no board is to blame
            climb(load(tmp_path), patience=0.5)
        events = lab_state(load(tmp_path)).events.list("b0", kinds=["recovery"])
        assert [(event.value, event.details["helped"]) for event in events] == [
            ("reconnect", False)
        ]
    assert (tmp_path / "told").read_text() == f"-s {server} kill\n"


@pytest.mark.parametrize("status", [302, 503])
def test_a_switch_that_refuses_is_told(tmp_path: Path, switch: PowerSwitch, status: int) -> None:
    with lab_of_boards(tmp_path) as (lab, (board,)), switch.serving(board):
        switch.status = status
        action = f"reboot: {{kind: http, address: '{switch.address}/reboot?port=b0'}}"
        devices = tmp_path / "devices.yaml"
        devices.write_text(devices.read_text().replace("wait: 5s, ", f"wait: 100ms, {action}"))
        lab = load(tmp_path)  # noqa: PLW2901 - the switches are known now
        silence(board)
        found = recovered(lab)
        assert found.helped is None
        assert str(found) == "nothing helped (tried: reconnect, reboot)"
        assert f"answers with status {status}" in (found.steps[-1].reason or "")
        assert len(switch.asked) == 1


def test_a_switch_without_its_secret_hides_no_failing_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PDU_SECRET", raising=False)
    action = "{kind: http, address: 'http://127.0.0.1:1/', authorization_env: PDU_SECRET}"
    with lab_of_boards(tmp_path, switches=f"reboot: {action}") as (lab, (board,)):
        silence(board)
        result = check(lab, lab.board("b0"), connect, Observer())
        assert result.verdict.finding is Finding.FAILING
        assert result.health.health is Health.BAD
        assert "nothing was tried" in (result.health.reason or "")
        assert "PDU_SECRET" in (result.health.reason or "")


def test_a_board_that_somebody_has_is_not_switched(tmp_path: Path) -> None:
    reflash = command(thawing(tmp_path, "reflash"), "BOARD", "on")
    with lab_of_boards(tmp_path, switches=f"reflash: {reflash}") as (lab, (board,)):
        silence(board)
        lab_state(lab).leases.acquire("b0", purpose="a long run")
        with pytest.raises(BoardBusy, match="a long run"):
            climb(lab)
        assert not (tmp_path / "reflash.told").exists()


@pytest.fixture
def eight(tmp_path: Path) -> Iterator[tuple[LabFile, list[Served]]]:
    with lab_of_boards(tmp_path, count=8) as found:
        yield found


@pytest.mark.parametrize(("failing", "is_hosts"), [(3, False), (4, True), (8, True)])
def test_half_of_a_hosts_boards_are_its_fault(
    eight: tuple[LabFile, list[Served]], failing: int, is_hosts: bool
) -> None:
    lab, boards = eight
    for board in boards[:failing]:
        silence(board)
    state = lab_state(lab)
    for name in ("b0", "b1"):  # two checks notice it
        fault = find_host_fault(lab, lab.board(name), connect, state)
        assert (fault is not None) == is_hosts, fault
    events = state.events.list(kinds=["host"])
    assert len(events) == is_hosts  # one message, not one for each board
    if is_hosts:
        assert f"{failing} of 8 boards" in (events[0].reason or "")
        assert events[0].details["boards"] == [f"b{n}" for n in range(failing)]


def test_a_hosts_fault_takes_no_boards_health(eight: tuple[LabFile, list[Served]]) -> None:
    lab, boards = eight
    state = lab_state(lab)
    for board in boards:
        state.health.set(board.name, Health.GOOD, reason="fast", by="check")
    for board in boards[:4]:
        silence(board)
    for name in ("b0", "b1", "b2", "b3"):
        result = check(lab, lab.board(name), connect, Observer())
        assert (result.verdict.finding, result.climb) == (Finding.HOST, None)
        assert result.health.health is Health.GOOD
        assert (state.health.get(name).check_wanted_for or "").startswith("host: 4 of 8 boards")
    assert state.events.list(kinds=["recovery"]) == []
    assert len(state.events.list(kinds=["host"])) == 1


def test_a_board_behind_a_host_that_is_down_is_not_switched(tmp_path: Path) -> None:
    """Nor is it counted where boards of this host fail."""
    program = thawing(tmp_path, "reboot")
    (tmp_path / "known").touch()
    with (
        socket.create_server(("127.0.0.1", 0)) as free,
        lab_of_boards(tmp_path, count=3, switches=f"reboot: {command(program, 'BOARD')}"),
    ):
        port = free.getsockname()[1]
        free.close()
        devices = tmp_path / "devices.yaml"
        there = f"link: server, ssh: {{host: 127.0.0.1, port: {port}, known_hosts: known}}"
        text = devices.read_text()
        for number in (0, 1):
            text = re.sub("link: tcp, address: '[^']*'", f"{there}, key: k{number}", text, count=1)
        devices.write_text(text)
        lab, state = load(tmp_path), lab_state(load(tmp_path))
        state.health.set("b0", Health.GOOD, reason="fast", by="check")
        result = check(lab, lab.board("b0"), connect, Observer())
        assert (result.verdict.finding, result.climb) == (Finding.HOST, None), result.verdict
        assert result.health.health is Health.GOOD
        assert (state.health.get("b0").check_wanted_for or "").startswith("host: ")
        assert find_host_fault(lab, lab.board("b2"), connect, state) is None
        with pytest.raises(LinkRefused):
            recovered(lab)
        assert not (tmp_path / "reboot.told").exists()


def test_a_board_that_nothing_helps_is_bad_with_all_that_was_tried(tmp_path: Path) -> None:
    reflash = command(thawing(tmp_path, "reflash", after=99), "BOARD", "on")
    with lab_of_boards(tmp_path, count=3, switches=f"reflash: {reflash}") as (lab, boards):
        one = lab.board("b0").switches.model_copy(update={"wait": 0.1})
        lab.lab.boards["b0"] = lab.board("b0").model_copy(update={"switches": one})
        silence(boards[0])
        result = check(lab, lab.board("b0"), connect, Observer())
        assert result.verdict.finding is Finding.FAILING
        assert result.health.health is Health.BAD
        assert "nothing helped (tried: reconnect, reflash)" in (result.health.reason or "")
        tried = result.health.evidence["tried"]
        assert [(step["rung"], step["helped"]) for step in tried] == [
            ("reconnect", False),
            ("reflash", False),
        ]
        kinds = [event.kind for event in lab_state(lab).health.history("b0")]
        assert "state" in kinds
        assert kinds[-1] == "health"
        assert lab_state(lab).health.get("b0").contact == "offline"


@pytest.mark.parametrize("helps", [True, False])
def test_a_board_that_answers_and_is_not_well_climbs_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, helps: bool
) -> None:
    program = thawing(tmp_path, "reboot")
    told = tmp_path / "reboot.told"

    def look(_self: object) -> Verdict:
        well = helps and told.exists()
        return (
            Verdict(Finding.GOOD, "fast", {}) if well else Verdict(Finding.FAILING, "it fails", {})
        )

    monkeypatch.setattr("labctl.farm.health.checking._Looking.look", look)
    with lab_of_boards(tmp_path, count=3, switches=f"reboot: {command(program, 'BOARD')}") as (
        lab,
        _boards,
    ):
        result = check(lab, lab.board("b0"), connect, Observer())
        assert result.climb is not None
        steps = [(step.rung, step.helped) for step in result.climb.steps]
        assert steps == [("reconnect", False), ("reboot", helps)]
        assert told.exists()
        failed = "it did not help: it answers; it fails"
        events = lab_state(lab).events.list("b0", kinds=["recovery"])
        assert [(event.value, event.reason, event.details.get("helped")) for event in events] == [
            ("reconnect", "the board answers", None),
            ("reconnect", failed, False),
            ("reboot", "the board answers", None),
            ("reboot", "it helped" if helps else failed, helps),
        ]
        health = lab_state(lab).health.get("b0")
        assert health.health is (Health.GOOD if helps else Health.BAD)
        assert helps or "it fails; nothing helped (tried: reconnect, reboot)" in str(health.reason)
        assert not health.is_offline


@pytest.mark.parametrize(
    ("error", "health"),
    [(BoardNotReady("80 °C"), Health.GOOD), (BoardNoSpace("no space"), Health.BAD)],
)
def test_a_hot_or_full_board_is_not_switched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BoardError, health: Health
) -> None:
    program = thawing(tmp_path, "reboot")

    def measured(_self: object) -> None:
        raise error

    monkeypatch.setattr("labctl.farm.health.checking._Looking._measured", measured)
    with lab_of_boards(tmp_path, count=3, switches=f"reboot: {command(program, 'BOARD')}") as (
        lab,
        _boards,
    ):
        lab_state(lab).health.set("b0", Health.GOOD, reason="fast", by="check")
        result = check(lab, lab.board("b0"), connect, Observer())
        assert (result.climb, result.health.health) == (None, health)
        assert not (tmp_path / "reboot.told").exists()


def test_boards_that_are_out_of_work_do_not_blame_the_host(
    eight: tuple[LabFile, list[Served]],
) -> None:
    lab, boards = eight
    for board in boards[:4]:
        silence(board)
    state = lab_state(lab)
    state.health.set("b1", Health.RETIRED, reason="eMMC", by="me@desk")
    state.health.set("b2", Health.BAD, reason="slow", by="check")
    assert find_host_fault(lab, lab.board("b0"), connect, state) is None


def test_boards_of_another_lab_host_say_nothing_about_this_one(
    eight: tuple[LabFile, list[Served]],
) -> None:
    lab, boards = eight
    for number, board in enumerate(boards):  # those of lab2 cannot be reached from here
        at = lab.board(board.name).model_copy(update={"host": "lab1" if number < 2 else "lab2"})
        lab.lab.boards[board.name] = at
        if at.host == "lab2":
            silence(board)
    silence(boards[0])
    assert find_host_fault(lab, lab.board("b0"), connect, lab_state(lab)) is None
