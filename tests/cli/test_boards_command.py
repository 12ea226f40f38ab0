import codecs
import json
import platform
import socket
from pathlib import Path

import pytest
from official_adb import official_adb

from labctl.board.status import BoardStatus
from labctl.cli.root import run_cli
from labctl.config.lab import find_lab
from labctl.config.lab_edit import add_board, remove_boards
from labctl.errors import ConfigError
from labctl.transport.adb import AdbConfig
from labctl.transport.built_in import TRANSPORTS
from labctl.virtual.board import VirtualBoard, serving

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
    assert (
        run_cli(["boards", "add", "usb", "7001005458323933328a01ce1c2f3900", "--target", "rk3588"])
        == 0
    )
    text = devices.read_text()
    assert [line for line in text.splitlines() if line not in LAB.splitlines()] == [
        "  rk2:",
        '    transport: {kind: hdc, link: tcp, address: "192.0.2.2:5555"}',
        "  usb:",
        "    target: rk3588",
        '    transport: {kind: hdc, link: server, key: "7001005458323933328a01ce1c2f3900"}',
    ]
    assert run_cli(["boards", "remove", "usb", "rk2"]) == 0
    assert devices.read_text() == LAB
    assert run_cli(["boards", "remove", "rk1"]) == 0
    assert devices.read_text() == "# my boards\nboards: {}\nbuild_hosts: {}\n"
    assert "the lab has no boards now" in capsys.readouterr().err


def test_removing_the_default_board_tells_what_commands_use_then(
    devices: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("b", "c"):
        assert run_cli(["boards", "add", name, f"{name}.example.org:5555"]) == 0
    before = devices.read_text()
    capsys.readouterr()
    assert run_cli(["boards", "remove", "rk1", "rk1"]) == 0
    said = capsys.readouterr()
    assert said.out == f"removed rk1 from {devices}\n"
    assert "name one with --board (b or c)" in said.err
    devices.write_text(before)
    assert run_cli(["boards", "remove", "rk1", "c"]) == 0
    assert "commands use b, the only board" in capsys.readouterr().err


def test_a_board_that_another_command_added_meanwhile_stays(devices: Path) -> None:
    read_before = find_lab(devices.parent, TRANSPORTS)
    address = {"link": "tcp", "address": "192.0.2.3:5555"}
    assert run_cli(["boards", "add", "rk2", "192.0.2.2:5555"]) == 0
    devices.write_text(devices.read_text().replace("build_hosts: {}\n", "lab: third-floor\n"))
    add_board(read_before, "rk3", address, "rk3568", place="192.0.2.3:5555")
    lab = find_lab(devices.parent, TRANSPORTS).lab
    assert (list(lab.boards), lab.lab) == (["rk1", "rk2", "rk3"], "third-floor")
    with pytest.raises(ConfigError, match="has a board 'rk2' already"):
        add_board(read_before, "rk2", address, "rk3568", place="192.0.2.3:5555")
    remove_boards(read_before, ["rk2"])
    with pytest.raises(ConfigError, match="no board 'rk2'"):
        remove_boards(read_before, ["rk2"])


def test_what_is_written_in_an_odd_way_is_left_alone(
    devices: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "boards:\n"
        "  a: {target: &t rk3568, transport: {kind: hdc, link: tcp, address: '192.0.2.1:1'}}\n"
        "  b: {target: *t, transport: {kind: hdc, link: tcp, address: '192.0.2.2:1'}}\n"
    )
    devices.write_text(text)
    assert run_cli(["boards", "remove", "a"]) == 2
    said = capsys.readouterr().err
    assert f"{devices} is written in a way that cannot be changed here" in said
    assert "the changed text:2:15: the anchor &t does not exist" in said
    assert devices.read_text() == text


def test_links_line_ends_and_marks_of_the_file_stay(devices: Path) -> None:
    place = devices.with_name("shared.yaml")
    place.write_bytes(codecs.BOM_UTF8 + LAB.replace("\n", "\r\n").encode())
    place.chmod(0o664)
    devices.unlink()
    devices.symlink_to(place.name)
    before = place.read_bytes()
    assert run_cli(["boards", "add", "rk2", "192.0.2.2:5555"]) == 0
    after = place.read_bytes()
    assert devices.is_symlink()
    assert place.stat().st_mode & 0o777 == 0o664
    assert after.startswith(codecs.BOM_UTF8 + b"# my boards\r\n")
    assert after.count(b"\n") == after.count(b"\r\n") == before.count(b"\n") + 3
    assert run_cli(["boards", "remove", "rk2"]) == 0
    assert place.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "rk1", "192.0.2.9:5555"), "has a board 'rk1' already"),
        (
            ("add", "rk2", "192.0.2.1:5555"),
            "192.0.2.1:5555: boards.rk2.transport.address: board 'rk1' has this address too",
        ),
        (("add", "rk2", "192.0.2.2:99999"), "must be HOST:PORT"),
        (("add", "Rk 2", "192.0.2.2:5555"), "not a name for a board: 'Rk 2'"),
        (
            ("add", "rk2", "192.0.2.2:5555", "--target", "rk3658"),
            "--target rk3658: boards.rk2.target: no target 'rk3658'",
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


def test_a_name_is_checked_before_any_contact(
    devices: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("Rk 2", "rk1"):
        assert run_cli(["boards", "add", name, "ssh:root@127.0.0.1:1"]) == 2
        said = capsys.readouterr().err
        assert said.startswith("error (config)")
        assert "sshd" not in said


def test_the_list_has_a_name(devices: Path, capsys: pytest.CaptureFixture[str]) -> None:
    devices.write_text("boards: {}\n")
    assert run_cli(["boards", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert run_cli(["boards"]) == 0
    assert "no boards yet: labctl boards add NAME HOST:PORT" in capsys.readouterr().err


def test_on_a_terminal_a_detail_wraps_under_itself(
    devices: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    detail = "aarch64, 4 cores, 4.10 GB memory, 21.0 GB free, no agent"
    state = BoardStatus("rk1", "rk3568", "hdc", "192.0.2.1:5555", "connected", detail)
    monkeypatch.setattr("labctl.cli.boards.board_status", lambda *_, **__: state)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for columns, expected in (
        (68, ["aarch64, 4 cores,", "4.10 GB memory, 21.0", "GB free, no agent"]),
        (50, ["", "aarch64, 4 cores, 4.10 GB memory, 21.0 GB", "free, no agent"]),
    ):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert run_cli(["boards"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert all(len(line) <= columns for line in lines)
        assert lines[0].startswith("rk1  connected     rk3568  hdc 192.0.2.1:5555")
        assert [lines[0][47:], *(line.strip() for line in lines[1:])] == expected


def test_a_phone_is_added_by_its_serial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "devices.yaml").write_text("boards: {}\n")
    monkeypatch.chdir(tmp_path)
    with (
        serving(VirtualBoard("p", tmp_path / "p", protocol="adb")) as (phone,),
        official_adb("29", tmp_path) as adb,
    ):
        place = f"adb:{phone.address}"
        assert run_cli(["boards", "add", "p", place, "--server", adb.address]) == 0
    added = find_lab(tmp_path, TRANSPORTS).board("p")
    assert added.transport == AdbConfig(serial=phone.address, server=adb.address)
    assert added.workdir == str(phone.workdir)
    assert added.target == f"host-{platform.machine()}"


def test_a_phone_that_cannot_be_asked_is_no_board_of_another_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = "{target: rk3568, transport: {kind: hdc, link: tcp, address: '192.0.2.1:5555'}}"
    (tmp_path / "devices.yaml").write_text(f"boards:\n  rk1: {other}\n")
    monkeypatch.chdir(tmp_path)
    nobody = ["--server", "127.0.0.1:1"]
    assert run_cli(["boards", "add", "p", "adb:serial", *nobody]) == 0
    assert "check its target, android-arm64" in capsys.readouterr().err
    assert find_lab(tmp_path, TRANSPORTS).board("p").target == "android-arm64"
