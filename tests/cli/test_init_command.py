"""``labctl init`` and boards at loopback addresses: virtual ones, and tunnels to real ones."""

import getpass
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import daemon
from hdc_server import Board, stand_in_server
from official_adb import official_adb
from sshd_host import ssh_host

from labctl import process
from labctl.cli.root import run_cli
from labctl.config.lab import WORKDIR, find_lab
from labctl.config.target import load_target
from labctl.package_data import TOOLCHAINS
from labctl.transport.adb import AdbConfig
from labctl.transport.built_in import TRANSPORTS
from labctl.transport.ssh.config import SshConfig
from labctl.virtual.board import Served, VirtualBoard, serving


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture(autouse=True)
def no_server(nobody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labctl.cli.init.HDC_SERVER", nobody)
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", nobody.partition(":")[2])


@pytest.fixture
def virtual(tmp_path: Path) -> Iterator[Served]:
    with serving(VirtualBoard("b", tmp_path / "virtual board")) as (board,):
        yield board


def workdir_of(folder: Path, name: str) -> str:
    return find_lab(folder, TRANSPORTS).board(name).workdir


def test_a_virtual_board_gets_a_workdir_of_its_own(virtual: Served, tmp_path: Path) -> None:
    """Its shell is this host's: the default would be a folder of the host."""
    lab = tmp_path / "lab"
    assert run_cli(["init", str(lab), "--address", f"vb={virtual.address}"]) == 0
    assert workdir_of(lab, "vb") == str(virtual.workdir)


def test_a_virtual_board_that_a_server_lists(
    virtual: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = {virtual.address: Board(virtual.address, "TCP", state="Connected")}
    with stand_in_server(listed) as server:
        monkeypatch.setattr("labctl.cli.init.HDC_SERVER", f"127.0.0.1:{server.port}")
        assert run_cli(["init", str(tmp_path / "lab")]) == 0
    assert find_lab(tmp_path / "lab", TRANSPORTS).board().workdir == str(virtual.workdir)


def test_a_phone_of_this_hosts_adb_server_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        serving(VirtualBoard("p", tmp_path / "p", protocol="adb")) as (phone,),
        official_adb("29", tmp_path) as adb,
    ):
        adb.connect(phone.port)
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", adb.address.partition(":")[2])
        assert run_cli(["init", str(tmp_path / "lab")]) == 0
    board = find_lab(tmp_path / "lab", TRANSPORTS).board()
    assert board.transport == AdbConfig(serial=phone.address, server=adb.address)
    assert board.workdir == str(phone.workdir)


def test_a_tunnel_to_a_real_board(tmp_path: Path) -> None:
    with daemon(tmp_path) as address:
        assert run_cli(["init", str(tmp_path / "lab"), "--address", f"rk1={address}"]) == 0
    assert workdir_of(tmp_path / "lab", "rk1") == WORKDIR


def test_a_board_gets_the_target_of_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uname = tmp_path / "bin" / "uname"
    uname.parent.mkdir()
    monkeypatch.setenv("PATH", f"{uname.parent}:/usr/bin:/bin")
    written = {}
    for machine in ("x86_64", "aarch64", "mips64"):
        uname.write_text(f"#!/bin/sh\necho 5.10.0 {machine}\n")
        uname.chmod(0o755)
        with daemon(tmp_path) as address:
            lab = tmp_path / machine
            assert run_cli(["init", str(lab), "--address", f"b={address}"]) == 0
            given = tmp_path / f"{machine}-given"
            words = ["init", str(given), "--target", "rk3568", "--address", f"b={address}"]
            assert run_cli(words) == 0
        written[machine] = find_lab(lab, TRANSPORTS).board("b").target
        assert find_lab(given, TRANSPORTS).board("b").target == "rk3568"
        assert f"target: {written[machine]}\n" in (lab / "recipes/first.yaml").read_text()
        added = tmp_path / f"{machine}-added"
        added.mkdir()
        (added / "devices.yaml").write_text("boards: {}\n")
        with daemon(tmp_path) as address:
            words = ["--lab", str(added), "boards", "add", "b", address]
            assert run_cli(words) == (2 if machine == "mips64" else 0)
        if machine != "mips64":
            assert find_lab(added, TRANSPORTS).board("b").target == written[machine]
    assert written["x86_64"] == "host-x86_64"
    assert load_target(written["aarch64"]).machine == "aarch64"
    said = capsys.readouterr().err
    assert "b: its machine is x86_64: rk3568 is wrong, host-x86_64 is for it" in said
    assert "b: its machine is mips64: no target is for it; rk3568 is wrong" in said


def test_a_board_that_is_off(
    nobody: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["init", str(tmp_path / "lab"), "--address", f"rk1={nobody}"]) == 0
    assert workdir_of(tmp_path / "lab", "rk1") == WORKDIR
    assert "rk1 cannot be checked for a virtual board: no board" in capsys.readouterr().err


def test_a_virtual_board_is_added_only_where_it_is_wanted_or_alone(
    nobody: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that nobody started would make the first `labctl boards` end with 3."""
    rk1 = ("--address", f"rk1={nobody}")
    for folder, words, boards in (
        ("alone", (), ["virtual"]),
        ("one", rk1, ["rk1"]),
        ("both", (*rk1, "--virtual"), ["rk1", "virtual"]),
    ):
        assert run_cli(["init", str(tmp_path / folder), *words]) == 0
        lab = find_lab(tmp_path / folder, TRANSPORTS).lab
        assert (list(lab.boards), lab.default_board) == (boards, boards[0])
        said = capsys.readouterr().out
        assert ("labctl virtual-board" in said) == ("virtual" in boards)
        assert f"({', '.join(boards)})" in said


def test_where_to_go_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_cli(["init", "new lab"]) == 0
    assert "cd 'new lab'\n" in capsys.readouterr().out
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert run_cli(["init"]) == 0
    assert "cd " not in capsys.readouterr().out


def test_two_boards_at_one_address_are_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = tmp_path / "lab"
    assert run_cli(["init", str(lab), "--address", "vb=127.0.0.1:5555", "--virtual"]) == 2
    assert "board 'vb' has its name or its address" in capsys.readouterr().err
    assert not lab.exists()


@pytest.mark.slow
def test_a_board_with_sshd_is_written_and_its_host_key_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with ssh_host(tmp_path / "sshd") as host:
        shown = process.run(["ssh-keygen", "-lf", host.folder / "host_key.pub"], timeout=120)
        fingerprint = shown.text.split()[1]
        words = ["init", "--ssh", f"rk1=me@127.0.0.1:{host.port}"]
        assert run_cli([*words, str(tmp_path / "one")]) == 0
        said = capsys.readouterr().err
        assert f"is not in known_hosts; it shows the ssh-ed25519 key {fingerprint}" in said
        assert "ssh-keyscan" in said
        (tmp_path / "home" / ".ssh" / "known_hosts").write_text(host.known_hosts.read_text())
        (tmp_path / "home" / ".ssh" / "config").write_text(f"IdentityFile {host.key}\n")
        words = ["init", "--ssh", f"rk1={getpass.getuser()}@127.0.0.1:{host.port}"]
        assert run_cli([*words, str(tmp_path / "two")]) == 0
        out = capsys.readouterr().out
        assert f"rk1: known_hosts has its host key, ssh-ed25519 {fingerprint}" in out
    board = find_lab(tmp_path / "one", TRANSPORTS).board("rk1")
    assert board.transport == SshConfig(host="127.0.0.1", port=host.port, user="me")
    assert board.workdir == "/var/tmp/labctl"


def test_a_target_of_the_labs_own(nobody: str, tmp_path: Path) -> None:
    own = tmp_path / "toolchains" / "mine"
    own.mkdir(parents=True)
    text = (TOOLCHAINS / "rk3568" / "target.yaml").read_text()
    (own / "target.yaml").write_text(text.replace("name: rk3568", "name: mine"))
    words = ["init", str(tmp_path), "--target", "mine", "--address", f"rk1={nobody}"]
    assert run_cli(words) == 0
    assert find_lab(tmp_path, TRANSPORTS).board().target == "mine"
