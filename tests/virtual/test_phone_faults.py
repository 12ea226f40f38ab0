"""Faults of a virtual phone: every fault on the operations that it can strike, over adb."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from official_adb import RELEASES, official_adb

from labctl.errors import BoardError, BoardNoSpace, InfraError, IntegrityError
from labctl.transport.adb import AdbConfig
from labctl.transport.base import OpenOptions, TransferOptions, Transport
from labctl.transport.readiness import boot_id, reboot, wait_until_ready
from labctl.virtual import fault_script as f
from labctl.virtual.board import Served, VirtualBoard, serving

OPTIONS = TransferOptions(timeout=20)
SENT = bytes(range(256)) * 4000


@pytest.fixture(scope="module", params=RELEASES)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with official_adb(request.param, tmp_path_factory.mktemp("adb")) as adb:
        yield adb.address


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Served]:
    with serving(VirtualBoard("p", tmp_path / "p", protocol="adb")) as (board,):
        yield board


@pytest.fixture
def link(board: Served, server: str) -> Iterator[Transport]:
    with AdbConfig(serial=board.address, server=server).open(OpenOptions(timeout=10)) as link:
        link.run("true", timeout=20)
        yield link


def fired(board: Served) -> list[int]:
    return [state.fired for state in board.faults.states()]


def try_all(link: Transport, folder: Path) -> None:
    """Do each kind of work; nothing of it may be wrong, each may fail as a fault of the board."""
    (folder / "here").write_bytes(SENT)
    there, back = folder / "p/there", folder / "back"
    try:
        done = link.run("seq 20000; exit 7", timeout=3)
        assert (done.exit_status, len(done.output)) == (7, 108894)
    except InfraError:
        wait_until_ready(link, timeout=20)
    try:
        link.push(folder / "here", str(there), TransferOptions(timeout=3))
        assert there.read_bytes() == SENT
    except InfraError:
        wait_until_ready(link, timeout=20)
    (folder / "p/given").write_bytes(SENT)
    try:
        link.pull(str(folder / "p/given"), back, TransferOptions(timeout=3))
        assert back.read_bytes() == SENT
    except InfraError:
        assert not back.exists()


STRIKES: list[dict[str, object]] = [
    {"fault": "drop", "after_bytes": 50_000},
    {"fault": "freeze", "lasting": "4s", "after_bytes": 50_000},
    {"fault": "hang-up", "after_bytes": 50_000},
    {"fault": "garbage", "after_bytes": 50_000},
    {"fault": "reboot", "after_bytes": 50_000},
    {"fault": "delay", "by": "10ms"},
    {"fault": "slow", "rate": "400kB"},
    {"fault": "truncate", "after_bytes": 50_000},
    {"fault": "corrupt", "after_bytes": 50_000},
    {"fault": "lie"},
    {"fault": "no-space", "after_bytes": 50_000},
    {"fault": "permission-denied"},
    {"fault": "read-only"},
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "on"),
    [
        pytest.param(keys, on, id=f"{keys['fault']}-{on}")
        for keys in STRIKES
        for on in ("shell", "send", "receive")
        if on in f.FAULTS[str(keys["fault"])].possible
    ],
)
def test_no_fault_makes_a_wrong_result(
    board: Served, link: Transport, tmp_path: Path, keys: dict[str, object], on: str
) -> None:
    # A shell's script starts after the questions with which a transfer begins and ends.
    matching = {"matching": "seq"} if on == "shell" else {}
    board.faults.add(f.ANY_FAULT.validate_python({**keys, "on": on, **matching}))
    try_all(link, tmp_path)
    assert fired(board) == [1]


def test_a_damaged_push_is_noticed_by_its_hash(
    board: Served, link: Transport, tmp_path: Path
) -> None:
    (tmp_path / "here").write_bytes(SENT)
    for fault in (f.Corrupt(on="send", after_bytes=1000), f.Truncate(on="send", after_bytes=9)):
        board.faults.add(fault)
        with pytest.raises(IntegrityError):
            link.push(tmp_path / "here", str(tmp_path / "p/there"), OPTIONS)
    board.faults.add(f.NoSpace(on="send", after_bytes=100_000))
    with pytest.raises(BoardNoSpace):
        link.push(tmp_path / "here", str(tmp_path / "p/there"), OPTIONS)


def test_a_lie_about_a_restart_is_noticed(board: Served, link: Transport) -> None:
    before = boot_id(link, timeout=20)
    board.faults.add(f.Lie(on="reboot"))
    with pytest.raises(BoardError):
        reboot(link, timeout=2)
    assert boot_id(link, timeout=20) == before
    assert fired(board) == [1]
