"""A virtual board that speaks adb, as an official client sees it."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import is_alive
from official_adb import OfficialAdb, official_adb

from labctl.retry import wait_until
from labctl.virtual.board import Served, VirtualBoard, serving


@pytest.fixture
def phone(tmp_path: Path) -> Iterator[Served]:
    with serving(VirtualBoard("phone", tmp_path / "phone", protocol="adb")) as (served,):
        yield served


@pytest.fixture
def adb(phone: Served, tmp_path: Path) -> Iterator[OfficialAdb]:
    with official_adb("29", tmp_path) as adb:
        adb.connect(phone.port)
        yield adb


def test_a_phone_has_androids_look(phone: Served, adb: OfficialAdb, tmp_path: Path) -> None:
    assert adb.ok("shell", "getprop ro.serialno; getprop no.such; getprop none x") == (
        b"phone\n\nx\n"
    )
    assert b"[ro.build.type]: [user]\n" in adb.ok("shell", "getprop")
    assert b"  temperature: 291\n" in adb.ok("shell", "dumpsys battery")
    assert b"Can't find service: ../x" in adb.run("shell", "dumpsys ../x").stderr
    for unframed in (["exec-out"], ["shell", "-x"]):
        assert adb.ok(*unframed, "echo hi") == b"hi\n"
    battery = phone.directory / ".labctl-android/dumpsys/battery"
    battery.write_text("  level: odd\n")
    assert adb.ok("shell", "dumpsys", "battery") == b"  level: odd\n"
    (tmp_path / "a.apk").write_bytes(bytes(5000))
    refused = adb.run("install", str(tmp_path / "a.apk"))
    assert refused.returncode == 1
    assert b"INSTALL_FAILED_USER_RESTRICTED" in refused.stderr


def test_a_reboot_ends_processes_and_changes_the_boot_id(phone: Served, adb: OfficialAdb) -> None:
    asked = "echo $LABCTL_SANDBOX"
    job = int(adb.ok("shell", "sleep 100 >/dev/null 2>&1 </dev/null & echo $!"))
    before = adb.ok("shell", asked)
    assert before.decode().strip() == phone.boot_id
    adb.run("reboot")
    assert wait_until(lambda: adb.state() != "device", timeout=10, interval=0.02)
    adb.connect(phone.port)
    assert adb.ok("shell", asked) != before
    assert not is_alive(job)


def test_the_shell_can_turn_a_phone_off(phone: Served, adb: OfficialAdb) -> None:
    adb.run("shell", "reboot -p")
    assert wait_until(lambda: adb.state() != "device", timeout=10, interval=0.02)
    with socket.socket() as sock:
        assert sock.connect_ex((phone.host, phone.port)) != 0
