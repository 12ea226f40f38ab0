"""Commands with boards behind an hdc server."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hdc_server import OTHER_USB_KEY, UART_KEY, USB_KEY, Board, StandInServer, stand_in_server

from labctl.cli.root import run_cli
from labctl.config.lab import find_lab
from labctl.transport.built_in import TRANSPORTS
from labctl.transport.hdc import HdcServerConfig, HdcTcpConfig
from labctl.virtual.board import VirtualBoard, serving

OFFLINE = "7001005458323933328a01ce3e513b00"
UNKNOWN = "7001005458323933328a01ce4f623c00"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInServer]:
    with serving(VirtualBoard("b", tmp_path / "board")) as (board,):
        boards = {
            USB_KEY: Board(board.address),
            OTHER_USB_KEY: Board("", state="Unauthorized"),
            OFFLINE: Board("", state="Offline"),
            UART_KEY: Board("", "UART", state="Connected"),
            "192.168.1.20:5555": Board("", "TCP", state="Connected"),
            "192.168.1.21:5555": Board("", "TCP", state="Offline"),
        }
        with stand_in_server(boards) as server:
            monkeypatch.setattr("labctl.cli.init.HDC_SERVER", f"127.0.0.1:{server.port}")
            yield server


def test_init_takes_what_the_server_lists(
    server: StandInServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["init", str(tmp_path / "lab")]) == 0
    said = capsys.readouterr()
    boards = find_lab(tmp_path / "lab", TRANSPORTS).lab.boards
    ways = {name: board.transport for name, board in boards.items() if name != "virtual"}
    assert ways == {
        f"board-{USB_KEY}": HdcServerConfig(key=USB_KEY),
        f"board-{OTHER_USB_KEY}": HdcServerConfig(key=OTHER_USB_KEY),
        "board-dev-ttyusb0-1500000": HdcServerConfig(key=UART_KEY),
        "board-192-168-1-20-5555": HdcTcpConfig(address="192.168.1.20:5555"),
    }
    assert find_lab(tmp_path / "lab", TRANSPORTS).board().name == f"board-{USB_KEY}"
    assert f"{OTHER_USB_KEY}: allow this host in the dialog on the board's screen" in said.err
    assert f"left out: {OFFLINE} (USB) is offline" in said.err
    assert "left out: 192.168.1.21:5555 (TCP) is offline" in said.err


def test_init_goes_on_where_another_program_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def greet() -> None:
            client, _ = other.accept()
            with client:
                client.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")

        greeting = threading.Thread(target=greet)
        greeting.start()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        monkeypatch.setattr("labctl.cli.init.HDC_SERVER", address)
        assert run_cli(["init", str(tmp_path / "lab")]) == 0
        greeting.join()
    said = capsys.readouterr().err
    assert f"boards were not searched through hdc: the hdc server at {address} sent" in said
    assert set(find_lab(tmp_path / "lab", TRANSPORTS).lab.boards) == {"virtual"}


def test_boards_and_shell(
    server: StandInServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "boards:\n"
    keys = {"one": USB_KEY, "two": OTHER_USB_KEY, "three": OFFLINE, "four": UNKNOWN}
    for name, key in keys.items():
        text += f"""\
  {name}:
    target: rk3568
    transport: {{kind: hdc, link: server, key: "{key}", server: "127.0.0.1:{server.port}"}}
    workdir: {tmp_path}/work
"""
    (tmp_path / "devices.yaml").write_text(text)
    assert run_cli(["--lab", str(tmp_path), "boards", "--json"]) == 3
    states = {board["name"]: board for board in json.loads(capsys.readouterr().out)}
    assert {name: board["state"] for name, board in states.items()} == {
        "one": "connected",
        "two": "unauthorised",
        "three": "offline",
        "four": "offline",
    }
    assert [states["one"]["address"], states["two"]["address"]] == [USB_KEY, OTHER_USB_KEY]
    assert f"knows no board {UNKNOWN}" in states["four"]["detail"]
    assert "board's screen" in states["two"]["detail"]
    assert run_cli(["--lab", str(tmp_path), "shell", "one", "--", "sh", "-c", "exit 7"]) == 7
    assert run_cli(["--lab", str(tmp_path), "shell", "three", "--", "true"]) == 255
    assert "is offline, says the hdc server" in capsys.readouterr().err
