import json
import socket
from pathlib import Path

import pytest

from labctl.cli.root import run_cli

BOARD = """\
  {name}:
    target: rk3568
    transport: {{kind: hdc, link: tcp, address: "{address}"}}
"""


def test_a_board_that_cannot_be_hides_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = f"127.0.0.1:{server.getsockname()[1]}"
    for boards, status in (({"off": free, "odd": "a..b:5555"}, 2), ({"off": free}, 3)):
        text = "boards:\n" + "".join(BOARD.format(name=n, address=a) for n, a in boards.items())
        (tmp_path / "devices.yaml").write_text(text)
        assert run_cli(["--lab", str(tmp_path), "boards", "--json"]) == status
        states = {board["name"]: board["state"] for board in json.loads(capsys.readouterr().out)}
        expected = {"off": "offline", "odd": "misconfigured"}
        assert states == {name: expected[name] for name in boards}


LAB = """\
# my boards
default_board: rk1
boards:
  rk1: # on the desk
    target: rk3568
    transport: {kind: hdc, link: tcp, address: "192.0.2.1:5555"} # over Wi-Fi
build_hosts: {}
"""


@pytest.fixture
def devices(tmp_path: Path, private_state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "devices.yaml").write_text(LAB)
    return tmp_path / "devices.yaml"


def test_boards_are_added_and_removed_and_all_else_stays(
    devices: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["boards", "add", "rk2", "192.0.2.2:5555"]) == 0
    assert run_cli(["boards", "add", "usb", "7001005458323933", "--target", "rk3588"]) == 0
    text = devices.read_text()
    assert [line for line in text.splitlines() if line not in LAB.splitlines()] == [
        "  rk2:",
        '    transport: {kind: hdc, link: tcp, address: "192.0.2.2:5555"}',
        "  usb:",
        "    target: rk3588",
        '    transport: {kind: hdc, link: server, key: "7001005458323933"}',
    ]
    assert run_cli(["boards", "remove", "usb", "rk2"]) == 0
    assert devices.read_text() == LAB
    assert run_cli(["boards", "remove", "rk1"]) == 0
    assert devices.read_text() == "# my boards\nboards: {}\nbuild_hosts: {}\n"
    assert "no default_board now" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "rk1", "192.0.2.9:5555"), "has a board 'rk1' already"),
        (("add", "rk2", "192.0.2.1:5555"), "board 'rk1' has this address too"),
        (("add", "rk2", "192.0.2.2:99999"), "must be HOST:PORT"),
        (("add", "Rk 2", "192.0.2.2:5555"), "not a name for a board: 'Rk 2'"),
        (
            ("add", "rk2", "192.0.2.2:5555", "--target", "rk3658"),
            "(changed):8:13: boards.rk2.target: no target 'rk3658'",
        ),
        (("remove", "rk11"), "did you mean 'rk1'"),
    ],
)
def test_what_cannot_be_in_devices_yaml_is_refused(
    devices: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert run_cli(["boards", *words]) == 2
    assert said in capsys.readouterr().err
    assert devices.read_text() == LAB


def test_the_list_has_a_name(devices: Path, capsys: pytest.CaptureFixture[str]) -> None:
    devices.write_text("boards: {}\n")
    assert run_cli(["boards", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
