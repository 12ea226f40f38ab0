"""Large files to virtual boards, over links that break: each byte once, nothing torn."""

import hashlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import agent_builds
import pytest
from official_adb import official_adb
from small_disk import fill, small_disk
from stored import publish

from labctl import process
from labctl.board.lease import Fence
from labctl.board.store import STAT, BoardStore, StoredObject
from labctl.board.upload.client import CHUNK_BYTES, WINDOW, ChunkedFile
from labctl.board.upload.resumable import DeliveryOptions
from labctl.deploy.send import Pace
from labctl.errors import BoardNoSpace, ConfigError, InfraError
from labctl.folders import cache_dir
from labctl.retry import wait_until
from labctl.transport.adb import AdbConfig
from labctl.transport.base import Transport, remote_words
from labctl.transport.hdc import HdcTcpConfig
from labctl.virtual.board import Protocol, Served, VirtualBoard, serving
from labctl.virtual.fault_script import Drop, Duplicate, Freeze, Reboot

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("private_state")]

MEGABYTE = 1 << 20


@dataclass
class Bench:
    board: Served
    transport: Transport
    agent: Path
    losses: list[InfraError] = field(default_factory=list)

    @property
    def fence(self) -> Fence:
        return Fence(self.transport, str(self.board.workdir), str(self.agent))

    @property
    def store(self) -> BoardStore:
        hashing = (str(self.agent), "hash")
        return BoardStore(
            self.transport, str(self.board.workdir), hash_command=hashing, fence=self.fence
        )

    def publish(self, file: Path, item: StoredObject, **options: Any) -> Path:
        chosen = DeliveryOptions(on_loss=self.losses.append, **options)
        with ChunkedFile(file, item.sha256, item.size_bytes) as source:
            return Path(self.store.receive(source, item, options=chosen))

    @property
    def folder(self) -> Path:
        return self.board.workdir / "store"

    def leftovers(self) -> list[str]:
        return [p.name for p in self.folder.iterdir() if p.name.startswith(".")]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with on_board(tmp_path / "board") as made:
        yield made


@contextmanager
def on_board(directory: Path, protocol: Protocol = "hdc") -> Iterator[Bench]:
    with ExitStack() as held:
        plan = VirtualBoard("board", directory, protocol=protocol)
        (board,) = held.enter_context(serving(plan))
        agent = directory / "agent"
        shutil.copy(agent_builds.native_agent(), agent)
        if protocol == "adb":
            server = held.enter_context(official_adb("36", directory)).address
            transport = AdbConfig(serial=board.address, server=server).open()
        else:
            transport = HdcTcpConfig(address=board.address).open()
        yield Bench(board, held.enter_context(transport), agent)


@pytest.fixture(scope="session")
def model() -> tuple[Path, StoredObject]:
    """300 MB and a bit that no link can guess."""
    path = cache_dir() / "tests" / "random-300M"
    size = 300 * MEGABYTE + 12_345
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        with temporary.open("wb") as file:
            source = random.Random(5)
            for _ in range(300):
                file.write(source.randbytes(MEGABYTE))
            file.write(source.randbytes(12_345))
        temporary.replace(path)
    with path.open("rb") as file:
        return path, StoredObject(hashlib.file_digest(file, "sha256").hexdigest(), size)


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, StoredObject]:
    """Three chunks and a half."""
    path = tmp_path / "small"
    path.write_bytes(random.Random(1).randbytes(3 * CHUNK_BYTES + CHUNK_BYTES // 2))
    return path, described(path)


def described(path: Path) -> StoredObject:
    raw = path.read_bytes()
    return StoredObject(hashlib.sha256(raw).hexdigest(), len(raw))


def test_a_file_arrives_whole_and_is_known_at_a_glance(
    bench: Bench, small: tuple[Path, StoredObject]
) -> None:
    file, item = small
    there = bench.publish(file, item)
    assert there.read_bytes() == file.read_bytes()
    assert there.stat().st_mode & 0o777 == 0o644
    assert bench.leftovers() == []
    assert bench.store.missing([item]) == []
    assert (bench.folder / f"{item.sha256}.stamp").exists()
    program = publish(bench.store, file, item, executable=True)
    assert Path(program).read_bytes() == file.read_bytes()


@pytest.fixture
def phone(tmp_path: Path) -> Iterator[Bench]:
    with on_board(tmp_path / "phone", "adb") as made:
        yield made


@pytest.mark.parametrize("link", ["bench", "phone"])
@pytest.mark.parametrize("count", [5, pytest.param(40, marks=pytest.mark.soak)])
def test_dropped_links_cost_no_more_than_what_was_under_way(
    request: pytest.FixtureRequest, model: tuple[Path, StoredObject], count: int, link: str
) -> None:
    bench: Bench = request.getfixturevalue(link)
    file, item = model
    sent = 0

    def pace(count: int) -> None:
        nonlocal sent
        sent += count

    source = random.Random(count)
    for number in range(1, count + 1):
        after = source.randrange(1, item.size_bytes // count)
        bench.board.faults.add(Drop(on="forward", nth=number, after_bytes=after))
    there = bench.publish(file, item, pace=pace)
    assert described(there) == item
    assert [state.fired for state in bench.board.faults.states()] == [1] * count
    assert sent <= item.size_bytes + count * WINDOW * CHUNK_BYTES
    assert bench.leftovers() == []


CONTROLLER = """
import os
import sys
from pathlib import Path
from labctl.board.lease import Fence
from labctl.board.store import BoardStore, StoredObject
from labctl.board.upload.client import ChunkedFile
from labctl.board.upload.resumable import DeliveryOptions
from labctl.transport.hdc import HdcTcpConfig
address, workdir, agent, file, sha256, size = sys.argv[1:]
item = StoredObject(sha256, int(size))
sent = 0
def tell(what, count):
    os.write(1, f"{what} {count}\\n".encode())  # whole, or not at all
def pace(count):
    global sent
    sent += count
    tell("sent", sent)
def progress(done):
    tell("done", done)
with HdcTcpConfig(address=address).open() as transport:
    fence = Fence(transport, workdir, agent)
    store = BoardStore(transport, workdir, hash_command=(agent, "hash"), fence=fence)
    with ChunkedFile(Path(file), item.sha256, item.size_bytes) as source:
        options = DeliveryOptions(progress=progress, pace=pace)
        store.receive(source, item, options=options)
"""


def killed_controller(
    bench: Bench,
    file: Path,
    item: StoredObject,
    until: int,
    begun: Callable[[], object] = lambda: None,
) -> int:
    """Deliver in a process, and kill it once so many bytes are on the board; the bytes it sent.

    ``begun`` is called when the first chunk is there.
    """
    words = [bench.board.address, bench.board.workdir, bench.agent, file, item.sha256]
    controller = process.start(
        [sys.executable, "-c", CONTROLLER, *words, str(item.size_bytes)], stderr=subprocess.STDOUT
    )
    assert controller.stdout is not None
    sent, killed, first = 0, False, True
    for line in controller.stdout:
        what, _, count = line.partition(b" ")
        assert what in (b"sent", b"done"), line + controller.stdout.read()
        if what == b"sent":
            sent = int(count)
            continue
        if first:
            begun()
            first = False
        if int(count) >= until and not killed:
            os.killpg(controller.pid, signal.SIGKILL)
            killed = True
    controller.wait()
    controller.stdout.close()
    assert killed
    return sent


@pytest.mark.parametrize("count", [3, pytest.param(20, marks=pytest.mark.soak)])
def test_killed_controllers_cost_no_more_than_what_was_under_way(
    bench: Bench, model: tuple[Path, StoredObject], count: int
) -> None:
    file, item = model
    source = random.Random(count)
    # The last one may have said its last word and be whole before it is killed.
    points = sorted(source.randrange(item.size_bytes * 9 // 10) for _ in range(count))
    sent = sum(killed_controller(bench, file, item, until) for until in points)
    rest: list[int] = []
    there = bench.publish(file, item, pace=rest.append)
    assert described(there) == item
    assert sum(rest) <= item.size_bytes - points[-1]
    assert sent + sum(rest) <= item.size_bytes + count * WINDOW * CHUNK_BYTES
    assert bench.leftovers() == []


def test_who_waits_for_another_goes_on_when_that_one_is_killed(
    bench: Bench, model: tuple[Path, StoredObject]
) -> None:
    file, item = model
    rest: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        second: list[Future[Path]] = []

        def begin_second() -> None:
            second.append(pool.submit(bench.publish, file, item, pace=rest.append))

        sent = killed_controller(bench, file, item, item.size_bytes // 2, begin_second)
        assert described(second[0].result()) == item
    assert sum(rest) <= item.size_bytes // 2
    assert sent + sum(rest) <= item.size_bytes + WINDOW * CHUNK_BYTES


def test_a_board_that_restarts_goes_on(bench: Bench, model: tuple[Path, StoredObject]) -> None:
    file, item = model
    bench.board.faults.add(Reboot(on="forward", after_bytes=item.size_bytes // 2))
    there = bench.publish(file, item)
    assert described(there) == item
    assert bench.losses


def test_what_was_changed_on_the_board_meanwhile_is_sent_again(
    bench: Bench, small: tuple[Path, StoredObject]
) -> None:
    file, item = small
    partial = bench.folder / f".part-{item.sha256}"
    journal = Path(f"{partial}.journal")
    sent = 0

    def is_journaled() -> bool:
        return len(journal.read_text().splitlines()) >= 2

    def cut_in_the_third_chunk(count: int) -> None:
        nonlocal sent
        sent += count
        if sent > 2 * CHUNK_BYTES and not bench.board.faults.states():
            assert wait_until(is_journaled, timeout=120, interval=0.01)
            bench.board.faults.add(Drop(on="forward", times=None))
            bench.board.faults.add(Drop(on="now"))

    with pytest.raises(InfraError):
        bench.publish(file, item, retry_timeout=0.0, pace=cut_in_the_third_chunk)
    bench.board.faults.clear()
    assert is_journaled()
    with partial.open("r+b") as damaged:
        damaged.write(b"flipped")
    assert bench.publish(file, item).read_bytes() == file.read_bytes()


def test_bytes_that_come_twice_are_noticed(bench: Bench, small: tuple[Path, StoredObject]) -> None:
    file, item = small
    bench.board.faults.add(Duplicate(on="forward", direction="in", packet=30))
    assert bench.publish(file, item).read_bytes() == file.read_bytes()


def test_a_frozen_board_is_given_up_in_time_and_taken_up_again(
    bench: Bench, small: tuple[Path, StoredObject]
) -> None:
    file, item = small
    bench.board.faults.add(Freeze(on="forward", after_bytes=CHUNK_BYTES))
    with pytest.raises(InfraError):
        bench.publish(file, item, stall_timeout=1.0, retry_timeout=0.0)
    bench.board.faults.thaw()
    assert bench.publish(file, item).read_bytes() == file.read_bytes()


def test_a_full_disk_is_told_before_the_first_byte_with_what_it_lacks(
    tmp_path: Path, small: tuple[Path, StoredObject]
) -> None:
    file, item = small
    disk = tmp_path / "board" / "data" / "local" / "tmp"
    disk.mkdir(parents=True)
    with small_disk(disk, 16 * 1024) as full, on_board(tmp_path / "board") as bench:
        (full / "other").write_bytes(bytes(8 << 20))
        seen: list[int] = []
        with pytest.raises(BoardNoSpace, match=r"small, 14.7 MB: free space missing: 6\.\d+ MB"):
            bench.publish(file, item, pace=seen.append)
        assert seen == []
        assert bench.store.missing([item]) == [item]
        assert bench.leftovers() == []
        (full / "other").unlink()
        assert bench.publish(file, item).read_bytes() == file.read_bytes()


def test_a_disk_that_fills_meanwhile_has_the_room_that_was_reserved(
    tmp_path: Path, small: tuple[Path, StoredObject]
) -> None:
    file, item = small
    disk = tmp_path / "board" / "data" / "local" / "tmp"
    disk.mkdir(parents=True)
    with small_disk(disk, 24 * 1024) as full, on_board(tmp_path / "board") as bench:

        def fill_it(_done: int) -> None:
            if not (full / "filling").exists():
                fill(full)

        there = bench.publish(file, item, progress=fill_it)
        assert there.read_bytes() == file.read_bytes()
        assert (full / "filling").exists()


def test_two_at_once_send_it_once(bench: Bench, model: tuple[Path, StoredObject]) -> None:
    file, item = model
    sent: list[int] = []

    def once(_number: int) -> None:
        bench.publish(file, item, pace=sent.append)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(once, range(2)))
    assert sum(sent) == item.size_bytes
    assert described(bench.folder / item.sha256) == item


def bring_to_all(
    boards: tuple[Served, ...], file: Path, item: StoredObject, options: DeliveryOptions
) -> int:
    """The same file to several boards at once; the bytes that were read of it for that."""
    read = 0
    read_once = os.pread

    def reading(descriptor: int, count: int, offset: int) -> bytes:
        nonlocal read
        if os.path.samestat(os.fstat(descriptor), file.stat()):
            read += count
        return read_once(descriptor, count, offset)

    with (
        pytest.MonkeyPatch.context() as patch,
        ChunkedFile(file, item.sha256, item.size_bytes) as source,
        ThreadPoolExecutor(len(boards)) as pool,
    ):
        patch.setattr(os, "pread", reading)

        def bring(board: Served) -> Path:
            agent = board.directory / "agent"
            shutil.copy(agent_builds.native_agent(), agent)
            with HdcTcpConfig(address=board.address).open() as transport:
                store = BoardStore(
                    transport,
                    str(board.workdir),
                    hash_command=(str(agent), "hash"),
                    fence=Fence(transport, str(board.workdir), str(agent)),
                )
                return Path(store.receive(source, item, options=options))

        for there in pool.map(bring, boards):
            assert there.read_bytes() == file.read_bytes()
    return read


def test_sixteen_boards_share_one_reading(tmp_path: Path, small: tuple[Path, StoredObject]) -> None:
    file, item = small
    boards = [VirtualBoard(f"b{number}", tmp_path / f"b{number}") for number in range(16)]
    sent: list[int] = []
    with serving(*boards) as served:
        read = bring_to_all(served, file, item, DeliveryOptions(pace=sent.append))
    assert read == item.size_bytes
    assert sum(sent) == 16 * item.size_bytes


@pytest.mark.soak
def test_a_board_that_falls_behind_reads_for_itself_alone(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(random.Random(4).randbytes(24 * CHUNK_BYTES))
    item = described(file)
    with serving(*(VirtualBoard(name, tmp_path / name) for name in ("quick", "late"))) as served:
        served[1].faults.add(Freeze(on="forward", after_bytes=CHUNK_BYTES, lasting="2s"))
        read = bring_to_all(served, file, item, DeliveryOptions())
    assert read <= 2 * item.size_bytes


def test_boards_together_keep_a_rate(tmp_path: Path, small: tuple[Path, StoredObject]) -> None:
    file, item = small
    rate, began = 20_000_000, time.monotonic()
    with serving(*(VirtualBoard(name, tmp_path / name) for name in ("one", "other"))) as served:
        bring_to_all(served, file, item, DeliveryOptions(pace=Pace(rate)))
    # A tenth of a second may be saved up, and the last piece is not waited for.
    assert time.monotonic() - began > 2 * item.size_bytes / rate - 0.2


def test_a_file_that_changes_on_this_host_is_not_published(
    bench: Bench, small: tuple[Path, StoredObject]
) -> None:
    file, item = small
    other = StoredObject("0" * 64, item.size_bytes)
    with pytest.raises(ConfigError, match="changed"):
        bench.publish(file, other)
    assert not (bench.folder / other.sha256).exists()
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ConfigError, match="changed"):
        bench.publish(file, item)


def test_a_stranger_without_the_token_writes_nothing(bench: Bench, tmp_path: Path) -> None:
    partial, target = tmp_path / "partial", tmp_path / "target"
    words = ["receive", "--file", partial, "--target", target, "--size", "10", "--chunk", "10"]
    done = process.run([bench.agent, *words, "--idle", "3"], timeout=120)
    said = json.loads(done.stdout)
    raw = b"0123456789"
    message = b"C" + (0).to_bytes(4, "big") + len(raw).to_bytes(4, "big")
    message += hashlib.sha256(raw).digest() + raw + b"F"
    with socket.create_connection(("127.0.0.1", said["port"])) as stranger:
        stranger.sendall(b"0" * 64 + message)
        with suppress(ConnectionResetError):
            assert stranger.recv(10) == b""
    assert not target.exists()
    with socket.create_connection(("127.0.0.1", said["port"])) as friend:
        friend.sendall(said["token"].encode() + message)
        assert friend.recv(1) == b"R"
        assert friend.recv(5) == b"A\0\0\0\0"
        assert friend.recv(1) == b"D"
    assert target.read_bytes() == raw
    assert wait_until(lambda: not partial.exists(), timeout=120, interval=0.05)
    again = process.run([bench.agent, *words], timeout=120)
    assert again.exit_status == 77


@pytest.mark.parametrize("forged", [False, True], ids=["stamped before", "stamp forged"])
def test_damage_of_what_was_published_is_found_each_time(
    bench: Bench, small: tuple[Path, StoredObject], forged: bool
) -> None:
    file, item = small
    whole = file.read_bytes()
    source = random.Random(6)
    for turn in range(9):
        there = bench.publish(file, item)
        assert bench.store.missing([item]) == []
        with there.open("r+b") as damaged:
            if turn % 3 == 0:
                damaged.truncate(source.randrange(item.size_bytes))
            elif turn % 3 == 1:
                at = source.randrange(item.size_bytes)
                damaged.seek(at)
                damaged.write(bytes([whole[at] ^ 1 << source.randrange(8)]))
            else:
                damaged.seek(0, os.SEEK_END)
                damaged.write(b"\0")
        if forged:
            quoted = remote_words(str(there))
            bench.transport.run(f"{STAT} {quoted} >{quoted}.stamp", timeout=30).check()
            assert bench.store.verify([item]) == [item]
        else:
            assert bench.store.missing([item]) == [item]
        assert not there.exists()
