import socket
from pathlib import Path

import pytest
from raw_hdc import raw_host

from labctl.errors import ConfigError, HostError
from labctl.hdc.wire import Command
from labctl.retry import wait_until
from labctl.virtual import board as board_module
from labctl.virtual.board import VirtualBoard, serving


def ask(address: str, command: str) -> str:
    with raw_host(address) as host:
        host.shake_hands()
        host.send(1, Command.UNITY_EXECUTE, command.encode())
        said = host.until_close(1)
        return b"".join(data for kind, data in said if kind == Command.ECHO_RAW).decode()


def test_several_boards_share_nothing(tmp_path: Path) -> None:
    plans = [VirtualBoard(f"b{n}", tmp_path / f"b{n}") for n in range(3)]
    with serving(*plans) as boards:
        assert len({board.address for board in boards}) == 3
        for board in boards:
            assert ask(board.address, "pwd; echo $LABCTL_SANDBOX").split() == [
                str(board.directory),
                board.boot_id,
            ]
            assert board.workdir == board.directory / "data/local/tmp/labctl"
    for board in boards:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((board.host, board.port), timeout=1)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "localhost", ""])
def test_only_loopback_is_listened_on(tmp_path: Path, host: str) -> None:
    plan = VirtualBoard("b", tmp_path, host=host)
    with pytest.raises(ConfigError, match="loopback only"), serving(plan):
        pass


def test_a_directory_serves_one_board_at_a_time(tmp_path: Path) -> None:
    plan = VirtualBoard("b", tmp_path)
    with (
        serving(plan) as (board,),
        pytest.raises(ConfigError, match="another virtual board"),
        serving(plan),
    ):
        pass
    with serving(plan) as (again,):
        assert again.boot_id != board.boot_id


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        plan = VirtualBoard("b", tmp_path, port=port)
        with pytest.raises(HostError, match=f"cannot listen on 127.0.0.1:{port}"), serving(plan):
            pass


def test_a_reboot_drops_the_link_kills_all_and_changes_the_boot_id(tmp_path: Path) -> None:
    with serving(VirtualBoard("b", tmp_path)) as (board,):
        ask(
            board.address,
            "setsid sh -c 'while :; do sleep 0.01; done' </dev/null >/dev/null 2>&1 &",
        )
        assert ask(board.address, "pgrep -f 'while :' | wc -l").strip() != "0"
        with raw_host(board.address) as host:
            host.shake_hands()
            host.send(1, Command.UNITY_REBOOT)
            assert host.receive() == (1, Command.CHANNEL_CLOSE, b"\x01")
            assert host.ended()
        said: list[str] = []

        def answers() -> bool:
            try:
                said.append(ask(board.address, "echo $LABCTL_SANDBOX").strip())
            except OSError:
                return False
            return True

        assert wait_until(answers, timeout=30, interval=0.02)
        assert len(said[0]) == 32
        assert said[0] != board.boot_id


def test_a_shutdown_does_not_come_back(tmp_path: Path) -> None:
    with serving(VirtualBoard("b", tmp_path)) as (board,):
        with raw_host(board.address) as host:
            host.shake_hands()
            host.send(1, Command.UNITY_REBOOT, b"shutdown")
            host.receive()
            assert host.ended()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((board.host, board.port), timeout=1)


def test_a_board_that_cannot_be_stopped_keeps_no_other_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[str] = []

    def kill_boot(boot_id: str) -> None:
        killed.append(boot_id)
        if len(killed) == 1:
            raise HostError("processes do not end")

    plans = [VirtualBoard(f"b{n}", tmp_path / f"b{n}") for n in range(3)]
    with pytest.raises(HostError, match="do not end"), serving(*plans) as boards:
        monkeypatch.setattr(board_module, "kill_boot", kill_boot)
    assert sorted(killed) == sorted(board.boot_id for board in boards)
