"""Faults from outside: the control socket of a virtual board that is served."""

import json
import socket
import stat
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from labctl.cli.virtual_faults import inject
from labctl.errors import CommandTimeout, ConfigError, DeviceLost, HostError
from labctl.transport.hdc import HdcTcpConfig
from labctl.virtual import fault_script as f
from labctl.virtual.board import Served, VirtualBoard, serving
from labctl.virtual.control import Control


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Served]:
    # Longer than what a socket's address holds.
    with serving(VirtualBoard("b", tmp_path / ("long" * 30))) as (board,):
        yield board


def raw(board: Served, line: bytes, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.chdir(board.directory)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(30)
        sock.connect(".labctl-control")
        sock.sendall(line)
        reply = sock.makefile("rb").readline()
    answer: dict[str, object] = json.loads(reply)
    return answer


def test_the_socket_is_the_users_own(board: Served) -> None:
    found = (board.directory / ".labctl-control").stat()
    assert stat.S_ISSOCK(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o600


def test_a_fault_is_added_strikes_and_is_counted(board: Served) -> None:
    control = Control(board.directory)
    assert control.add(f.Drop(on="shell", matching="second")) == 1
    with HdcTcpConfig(address=board.address).open() as link:
        assert link.run("echo first", timeout=30).output == b"first\n"
        assert [(s.name, s.matched, s.fired) for s in control.states()] == [("drop", 0, 0)]
        with pytest.raises(DeviceLost):
            link.run("echo second", timeout=30)
        assert [(s.name, s.matched, s.fired) for s in control.states()] == [("drop", 1, 1)]
        assert link.run("echo second", timeout=30).output == b"second\n"
    control.clear()
    assert control.states() == []


@pytest.mark.parametrize(("words", "times"), [((), 1), (("times=null",), 3), (("times=2",), 2)])
def test_a_fault_of_the_command_line_reads_as_in_a_script(
    board: Served, words: tuple[str, ...], times: int
) -> None:
    folder = str(board.directory)
    inject.main([folder, "drop", "on=shell", *words], standalone_mode=False)
    with HdcTcpConfig(address=board.address).open() as link:
        for number in range(4):
            with nullcontext() if number >= times else pytest.raises(DeviceLost):
                link.run("true", timeout=30)
            if number == 2:
                Control(board.directory).clear()


def test_a_frozen_board_is_thawed(board: Served) -> None:
    control = Control(board.directory)
    with HdcTcpConfig(address=board.address).open() as link:
        link.run("true", timeout=30)
        control.add(f.Freeze(on="now"))
        with pytest.raises(CommandTimeout):
            link.run("echo cold", timeout=0.3)
        control.thaw()
        assert link.run("echo warm", timeout=30).output == b"warm\n"


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"[]\n",
        b'{"do": "dance"}\n',
        b'{"do": "add", "fault": {"fault": "drop", "on": "tuesday"}}\n',
        b'{"do": "add", "fault": {}}\n',
        b"[" * 50_000 + b"\n",
        b"\xff\n",
    ],
)
def test_a_request_that_is_none_is_answered(
    board: Served, line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert raw(board, line, monkeypatch)["error"]
    assert Control(board.directory).states() == []


def test_where_no_board_is_served_it_is_said(tmp_path: Path, board: Served) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(ConfigError, match="no virtual board is served from"):
            Control(folder).states()


def test_what_the_board_refuses_is_an_error(board: Served) -> None:
    wrong = f.Drop().model_copy(update={"nth": 0})
    with pytest.raises(HostError, match="nth"):
        Control(board.directory).add(wrong)


def test_a_board_that_has_stopped_takes_no_faults(tmp_path: Path) -> None:
    with serving(VirtualBoard("b", tmp_path)) as (board,):
        pass
    with pytest.raises(ConfigError, match="is not running"):
        board.faults.add(f.Drop())
    assert not (tmp_path / ".labctl-control").exists()
