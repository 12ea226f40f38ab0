"""``labctl hdc list`` and what boards and servers call themselves."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from daemons import daemon
from hdc_server import USB_KEY, Board, stand_in_server

from labctl.cli.root import run_cli

BOARD = """\
  {name}:
    target: rk3568
    transport: {{kind: hdc, link: tcp, address: "{address}"}}
"""


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, private_state: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.mark.parametrize(("host", "lines"), [("0.0.0.0", 1), ("127.0.0.1", 0), ("localhost", 0)])
def test_who_names_an_unprotected_server_is_told_once(
    host: str, lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with stand_in_server({USB_KEY: Board("127.0.0.1:9", state="Connected")}) as server:
        assert run_cli(["hdc", "--server", f"{host}:{server.port}", "list"]) == 0
    shown = capsys.readouterr()
    assert USB_KEY in shown.out
    assert len(shown.err.splitlines()) == lines
    assert shown.err.count("is not protected") == lines


def test_names_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    board = Board("127.0.0.1:9", state="Connected", name="\x1b]0;mine\x07\x1b[2J")
    with stand_in_server({USB_KEY: board}) as server:
        assert run_cli(["hdc", "--server", f"127.0.0.1:{server.port}", "list"]) == 0
    shown = capsys.readouterr().out
    assert USB_KEY in shown
    assert "\\x1b[2J" in shown
    assert "\x1b" not in shown


def test_states_and_status_are_those_of_boards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = f"127.0.0.1:{server.getsockname()[1]}"
    (tmp_path / "board").mkdir()
    with daemon(tmp_path / "board") as address:
        for addresses in (
            {"on": address},
            {"on": address, "off": free},
            {"on": address, "off": free, "odd": "a..b:5555"},
        ):
            text = "".join(BOARD.format(name=n, address=a) for n, a in addresses.items())
            Path("devices.yaml").write_text("boards:\n" + text)
            seen = []
            for words in (["boards", "--json"], ["hdc", "list", "--json"]):
                status = run_cli(words)
                listed = json.loads(capsys.readouterr().out)
                seen.append((status, [board["state"] for board in listed]))
            states = ["connected", "offline", "misconfigured"][: len(addresses)]
            assert seen == [((0, 3, 2)[len(addresses) - 1], states)] * 2


@pytest.mark.parametrize(
    "words",
    [
        ["boards"],
        ["boards", "--json"],
        ["hdc", "list"],
        ["hdc", "list", "--json"],
        ["hdc", "list", "targets", "-v"],
    ],
)
def test_an_offline_board_is_status_3_though_nobody_reads(words: list[str]) -> None:
    text = BOARD.format(name="off", address="127.0.0.1:1")
    Path("devices.yaml").write_text("boards:\n" + text)
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "labctl", *words],
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=120,
            check=False,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (3, b"")


def test_a_board_has_its_own_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    key = "7001005458323933328a01ce1"
    listing = ["list", "targets", "-v"]
    (tmp_path / "board").mkdir()
    with daemon(tmp_path / "board") as address:
        with stand_in_server({key: Board(address, name="rk3568 desk")}) as server:
            way = ["hdc", "-s", f"127.0.0.1:{server.port}", "-t", key]
            assert run_cli([*way, *listing]) == 0
        assert capsys.readouterr().out == f"{key}\t\tUSB\tConnected\trk3568 desk\n"
        assert run_cli(["hdc", "-t", address, *listing]) == 0
    line = capsys.readouterr().out.removesuffix("\n").split("\t")
    assert line[:4] == [address, "", "TCP", "Connected"]
    assert line[4] not in ("", "unknown...")


def test_a_server_says_it_in_the_same_words(capsys: pytest.CaptureFixture[str]) -> None:
    boards = {
        state: Board("127.0.0.1:9", state=state)
        for state in ("Connected", "Offline", "Unauthorized", "Unknown")
    }
    with stand_in_server(boards) as server:
        status = run_cli(["hdc", "--server", f"127.0.0.1:{server.port}", "list", "--json"])
    states = [board["state"] for board in json.loads(capsys.readouterr().out)]
    assert (status, states) == (3, ["connected", "offline", "unauthorised", "failing"])
