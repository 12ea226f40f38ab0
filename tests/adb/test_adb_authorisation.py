"""Phones that ask their user first, judged by two official servers; and what labctl says then."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from official_adb import RELEASES, OfficialAdb, official_adb

from labctl.adb.daemon.authorisation import Authorisation
from labctl.errors import NotAuthorised
from labctl.retry import wait_until
from labctl.transport.adb import AdbConfig
from labctl.transport.base import OpenOptions
from labctl.virtual.board import Served, VirtualBoard, serving
from labctl.virtual.control import Control


@pytest.fixture(params=RELEASES)
def adb(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OfficialAdb]:
    with official_adb(request.param, tmp_path) as adb:
        yield adb


def phone(held: ExitStack, folder: Path, lock: Authorisation) -> Served:
    plan = VirtualBoard("p", folder, protocol="adb", authorisation=lock)
    (board,) = held.enter_context(serving(plan))
    return board


def test_a_dialog_is_waited_for_and_the_key_known_then(adb: OfficialAdb, tmp_path: Path) -> None:
    with ExitStack() as held:
        board = phone(held, tmp_path / "p", Authorisation("pending"))
        options = OpenOptions(timeout=3)
        link = held.enter_context(AdbConfig(serial=board.address, server=adb.address).open(options))
        with pytest.raises(NotAuthorised, match=r"adb server's key") as caught:
            link.run("true", timeout=3)
        assert "dialog" in (caught.value.hint or "")
        adb.serial = board.address
        assert "unauthorized" in adb.run("shell", "true").stderr.decode()
        (key,) = Control(board.directory).decide(allow=True)
        assert key.startswith("SHA256:")
        assert wait_until(lambda: adb.state() == "device", timeout=20, interval=0.05)
        assert link.run("echo in", timeout=20).text == "in\n"
        # The signature is enough from now on: no dialog waits.
        adb.run("disconnect", board.address)
        link.close()
        assert link.run("echo again", timeout=20).text == "again\n"
        assert Control(board.directory).decide(allow=False) == []


@pytest.mark.parametrize("stranger", [False, True])
def test_only_known_keys_are_admitted(adb: OfficialAdb, tmp_path: Path, stranger: bool) -> None:
    with pytest.raises(ValueError, match="not a public key of adb"):
        Authorisation("accept-known", ["QUJD me@here"])
    with ExitStack() as held:
        refusing = phone(held, tmp_path / "refusing", Authorisation("refuse"))
        adb.run("connect", refusing.address)  # makes the server's key
        (public,) = tmp_path.glob("home*/.android/adbkey.pub")
        known = Authorisation("accept-known", [] if stranger else [public.read_text()])
        board = phone(held, tmp_path / "p", known)
        way = AdbConfig(serial=board.address, server=adb.address)
        link = held.enter_context(way.open(OpenOptions(timeout=3)))
        if stranger:
            with pytest.raises(NotAuthorised):
                link.run("true", timeout=3)
        else:
            assert link.run("echo in", timeout=20).text == "in\n"
