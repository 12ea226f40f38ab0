"""Waiting for boards, and telling one boot from another."""

import threading
import time
from pathlib import Path

import pytest

from labctl.errors import BoardError, ConfigError, DeviceLost, LinkRefused, NotAuthorised
from labctl.transport.base import OpenOptions, Transport
from labctl.transport.hdc import HdcTcpConfig
from labctl.transport.local import LocalConfig
from labctl.transport.readiness import boot_id, reboot, wait_until_ready
from labctl.transport.testing import ScriptedTransport
from labctl.virtual.board import VirtualBoard, serving

ONE, TWO = "1" * 32, "2" * 32


def test_a_boot_has_an_id(transport: Transport) -> None:
    assert boot_id(transport, timeout=30) == wait_until_ready(transport, timeout=30)


@pytest.mark.parametrize("answer", ["", "garbage of a shell", f"{ONE}\n{TWO}"])
def test_a_boot_id_is_not_guessed(answer: str) -> None:
    with pytest.raises(BoardError, match="does not report its boot id"):
        boot_id(ScriptedTransport(answer), timeout=1)


def test_a_board_that_is_not_there_is_waited_for(tmp_path: Path) -> None:
    with serving(VirtualBoard("b", tmp_path)) as (board,):
        address, port = board.address, board.port
    found: list[str] = []
    with HdcTcpConfig(address=address).open(OpenOptions(timeout=1)) as transport:
        with pytest.raises(LinkRefused):
            wait_until_ready(transport, timeout=0.5)
        waiting = threading.Thread(
            target=lambda: found.append(wait_until_ready(transport, timeout=20))
        )
        waiting.start()
        with serving(VirtualBoard("b", tmp_path, port=port)) as (board,):
            waiting.join()
    assert found == [board.boot_id]


def test_a_board_that_refuses_us_is_waited_for() -> None:
    board = ScriptedTransport(NotAuthorised("press allow"), DeviceLost("x"), f"{ONE}\n")
    assert wait_until_ready(board, timeout=30) == ONE
    began = time.monotonic()
    with pytest.raises(NotAuthorised):
        wait_until_ready(ScriptedTransport(NotAuthorised("press allow")), timeout=0.5)
    assert time.monotonic() - began < 20


class Rebooting(ScriptedTransport):
    """A board that can be told to restart."""

    def request_reboot(self, how: str = "", *, timeout: float) -> None:
        assert timeout > 0
        self.commands.append(f"reboot {how}")


def test_a_restart_is_over_when_another_boot_answers() -> None:
    board = Rebooting(f"{ONE}\n", f"{ONE}\n", DeviceLost("gone"), LinkRefused("no"), f"{TWO}\n")
    assert reboot(board, timeout=30) == TWO
    assert board.commands[1] == "reboot "


def test_a_board_that_does_not_restart_is_no_success() -> None:
    with pytest.raises(BoardError, match="still runs the same boot") as caught:
        reboot(Rebooting(f"{ONE}\n"), timeout=0.5)
    assert caught.value.hint is not None
    with pytest.raises(BoardError, match="did not come back") as caught:
        reboot(Rebooting(f"{ONE}\n", LinkRefused("no board answers")), timeout=0.5)
    assert caught.value.details == "no board answers"


def test_a_board_that_goes_off_is_gone_when_it_is_silent() -> None:
    board = Rebooting(f"{ONE}\n", DeviceLost("x"), f"{ONE}\n", LinkRefused("no board answers"))
    assert reboot(board, "shutdown", timeout=30) is None
    with pytest.raises(BoardError, match="still runs the same boot"):
        reboot(Rebooting(f"{ONE}\n"), "bootloader", timeout=0.5)


def test_this_host_is_not_restarted() -> None:
    with LocalConfig().open() as local:
        with pytest.raises(ConfigError, match="this host cannot be restarted"):
            reboot(local, timeout=30)
        with pytest.raises(ConfigError, match="remounted"):
            local.over_hdc("have system partitions remounted")
