"""hdc's own words: what people type at hdc's command line, and what it printed."""

import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from daemons import daemon
from hdc_server import OTHER_USB_KEY, USB_KEY, Board, stand_in_server

from labctl.cli.hdc import ports
from labctl.cli.root import run_cli

RECORDED = Path(__file__).parents[1] / "fixtures" / "hdc" / "commands.yaml"
COMMANDS: list[dict[str, Any]] = yaml.safe_load(RECORDED.read_text())


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A board and a server that has it, for all commands in their order."""
    folder = tmp_path_factory.mktemp("board")
    with daemon(folder) as key:
        known = {key: Board(key, "TCP", name="vm")}
        with stand_in_server(known) as server:
            known[key].connect()
            (folder / "files").mkdir()
            address = f"127.0.0.1:{server.port}"
            yield {"key": key, "dir": str(folder / "files"), "server": address}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, places: dict[str, str]) -> Path:
    """Where somebody sits: a lab whose only board is that one."""
    desk = tmp_path_factory.mktemp("desk")
    (desk / "devices.yaml").write_text(
        "boards:\n  vm:\n    target: rk3568\n"
        f'    transport: {{kind: hdc, link: tcp, address: "{places["key"]}"}}\n'
    )
    (desk / "a.txt").write_text("hello\n")
    (desk / "empty").touch()
    (desk / "sp ace.txt").write_text("x")
    (desk / "x.sh").write_text("#!/bin/sh\necho hi there\n"[:23])
    (desk / "folder" / "sub").mkdir(parents=True)
    (desk / "folder" / "one.txt").write_text("one\n")
    (desk / "folder" / "sub" / "two.txt").write_text("two\n")
    return desk


def form(text: str) -> str:
    """Output without what differs each time: line ends, times and rates."""
    return re.sub(r"time:\d+ms rate:[\d.]+kB/s", "time rate", text.replace("\r\n", "\n")).strip(
        "\n"
    )


@pytest.mark.usefixtures("private_state")
@pytest.mark.parametrize("case", COMMANDS, ids=[" ".join(case["words"]) for case in COMMANDS])
def test_what_hdc_takes_is_taken_and_printed_alike(
    case: dict[str, Any],
    places: dict[str, str],
    desk: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(desk)
    words = [
        re.sub(r"\{(key|dir|server)\}", lambda m: places[m[1]], word) for word in case["words"]
    ]
    status = run_cli(["hdc", *words])
    printed = capfd.readouterr()
    assert status == case.get("status", 0), printed.err
    if "error" in case:
        assert case["error"] in " ".join(printed.err.split())
        assert printed.out == ""
    else:
        wanted = case.get("ours", case["stdout"]).replace("{key}", places["key"])
        assert form(printed.out) == form(wanted)


def test_a_rule_lasts_as_long_as_its_labctl(
    places: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """``fport`` and ``rport`` listen where hdc does: the first word listens, the second answers."""
    with socket.create_server(("127.0.0.1", 0)) as service:

        def answer() -> None:
            for _ in range(2):
                connection, _ = service.accept()
                with connection:
                    connection.sendall(connection.recv(100).upper())

        threading.Thread(target=answer, daemon=True).start()
        with socket.create_server(("127.0.0.1", 0)) as free:
            listen = free.getsockname()[1]
        heard = []

        def is_over(*_: object) -> bool:
            with socket.create_connection(("127.0.0.1", listen), timeout=10) as client:
                client.sendall(b"hello")
                heard.append(client.recv(100))
            return True  # the test has seen enough

        monkeypatch.setattr(ports, "is_over", is_over)
        nodes = (f"tcp:{listen}", f"tcp:{service.getsockname()[1]}")
        for word in ("fport", "rport"):
            run_cli(["hdc", "-t", places["key"], word, *nodes])
            assert capfd.readouterr().out == "Forwardport result:OK\n"
    assert heard == [b"HELLO", b"HELLO"]


NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("words", "status", "because"),
    [
        *(
            (("tmode", *mode), 2, "tmode port PORT")
            for mode in (
                ("port", "0"),
                ("port", "65536"),
                ("port", "99999"),
                ("port", "\u0665"),
                ("port", "5555", "x"),
                ("port", "5555;reboot"),
                ("port", ""),
                ("usb", "x"),
                ("tcp",),
            )
        ),
        *(
            (("tmode", *mode), 3, "no board answers")
            for mode in (("port", "1"), ("port", "65535"), ("port", "close"), ("port",), ("usb",))
        ),
        (("shell", "-b", "com.example.app", "ls"), 255, "labctl hdc -b BOARD shell"),
        (("target", "boot", "-nowhere"), 2, "may not come back"),
        *(
            (("target", "boot", how), 3, "no board answers")
            for how in ("bootloader", "-recovery", "-flashd")
        ),
        (("list", "-v"), 2, "list targets -v"),
    ],
)
@pytest.mark.usefixtures("private_state")
def test_what_is_refused_is_refused_before_a_board_is_asked(
    words: tuple[str, ...], status: int, because: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """No board is there: what is sent ends with "no board answers"."""
    assert run_cli(["hdc", "-t", NOBODY, *words]) == status
    assert because in " ".join(capfd.readouterr().err.split())


@pytest.mark.parametrize("words", [["version"], ["-v"]])
def test_the_version_is_labctls(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["--version"]) == 0
    ours = capfd.readouterr().out
    assert run_cli(["hdc", *words]) == 0
    assert capfd.readouterr().out == ours


def test_without_a_server_there_is_no_rule(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("labctl.cli.hdc.words.HDC_SERVER", NOBODY)
    assert run_cli(["hdc", "fport", "rm", "tcp:1", "tcp:2"]) == 2
    assert "keeps no rule tcp:1 tcp:2" in capfd.readouterr().err
    assert run_cli(["hdc", "-s", NOBODY, "fport", "rm", "tcp:1", "tcp:2"]) == 3


def test_what_is_not_proven_is_said(
    places: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_cli(["hdc", "-t", places["key"], "file", "recv", "/proc/version", "x"]) == 0
    printed = capfd.readouterr()
    assert printed.out.startswith("FileTransfer finish, Size:")
    assert "not proven: 1 file of proc" in printed.err


@pytest.mark.parametrize("name", ["/proc/version", "/sys/kernel/uevent_seqnum"])
@pytest.mark.parametrize("words", [["send"], ["file", "send"]])
def test_a_pseudo_file_of_this_host_is_not_sent(
    name: str, words: list[str], places: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    there = Path(places["dir"], "pseudo")
    assert run_cli(["hdc", "-t", places["key"], *words, name, str(there)]) == 2
    printed = capfd.readouterr()
    assert "files of /proc and /sys" in printed.err
    assert (printed.out, there.exists()) == ("", False)


def test_a_serial_number_means_the_servers_board(
    places: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """As with hdc, without --server: the one at the usual place is asked."""
    monkeypatch.chdir(tmp_path)
    with stand_in_server({USB_KEY: Board(places["key"])}) as server:
        server.boards[USB_KEY].connect()
        monkeypatch.setattr("labctl.cli.hdc.target.HDC_SERVER", f"127.0.0.1:{server.port}")
        assert run_cli(["hdc", "-t", USB_KEY, "shell", "echo hi"]) == 0
        assert capfd.readouterr().out == "hi\n"
        assert run_cli(["hdc", "-t", OTHER_USB_KEY, "shell", "true"]) == 255
        said = capfd.readouterr().err
    assert f"no board '{OTHER_USB_KEY}'" in said
