"""``agent receive`` with strangers, rivals, damage and limits. Native, without a board."""

import errno
import hashlib
import json
import os
import random
import resource
import signal
import socket
import struct
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import agent_builds
import pytest

from labctl import process
from labctl.retry import wait_until

pytestmark = pytest.mark.e2e

USAGE, DIRECTORY, BUSY, PUBLISHED = 2, 73, 76, 77
CHUNK = 1000
RAW = random.Random(2).randbytes(5 * CHUNK - 300)


@dataclass
class Receiving:
    """A file that an agent of this host receives."""

    folder: Path

    @property
    def partial(self) -> Path:
        return self.folder / "partial"

    @property
    def target(self) -> Path:
        return self.folder / "target"

    def run(self, size: int, chunk: int, idle: float = 20) -> process.Completed:
        words = ["receive", "--file", self.partial, "--target", self.target, "--size", str(size)]
        agent = agent_builds.native_agent()
        return process.run([agent, *words, "--chunk", str(chunk), "--idle", str(idle)], timeout=120)

    def start(self, size: int, chunk: int, idle: float = 20) -> tuple[tuple[str, int], bytes]:
        """Where the agent listens, and the token it wants to hear."""
        said = json.loads(self.run(size, chunk, idle).stdout)
        return ("127.0.0.1", said["port"]), said["token"].encode()

    def is_free(self, size: int, chunk: int) -> bool:
        return self.run(size, chunk, 0.1).exit_status != BUSY

    def meet(self, idle: float = 20) -> "Peer":
        """Start it for RAW, and be its peer."""
        address, token = self.start(len(RAW), CHUNK, idle)
        return Peer(address, token)

    def agents(self) -> list[int]:
        """The processes that receive here."""
        word = str(self.partial).encode()
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and word in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found


class Peer(socket.socket):
    """The host's end of a conversation."""

    def __init__(self, address: tuple[str, int], token: bytes):
        super().__init__(socket.AF_INET, socket.SOCK_STREAM)
        self.settimeout(60)
        self.connect(address)
        self.sendall(token)

    def take(self, count: int) -> bytes:
        data = b""
        while len(data) < count and (piece := self.recv(count - len(data))):
            data += piece
        return data

    def hear(self) -> tuple[bytes, int]:
        """A word and its number."""
        return self.take(1), int.from_bytes(self.take(4), "big")

    def begin(self) -> tuple[list[int], list[int]]:
        """The chunks that are there, and those that are damaged."""
        good, bad = [], []
        while (kind := self.take(1)) in (b"G", b"B"):
            index = int.from_bytes(self.take(4), "big")
            (good if kind == b"G" else bad).append(index)
            if kind == b"G":
                assert self.take(32) == hashlib.sha256(chunk_of(index)).digest()
        assert kind == b"R"
        return good, bad

    def send_chunk(self, index: int, raw: bytes | None = None) -> tuple[bytes, int]:
        """Send a chunk of RAW, or something else in its place; the answer."""
        self.sendall(head(index, chunk_of(index)) + (chunk_of(index) if raw is None else raw))
        return self.hear()

    def end(self) -> bytes:
        self.sendall(b"F")
        return self.take(1)


def chunk_of(index: int) -> bytes:
    return RAW[index * CHUNK : (index + 1) * CHUNK]


def head(index: int, raw: bytes) -> bytes:
    return struct.pack(">cII32s", b"C", index, len(raw), hashlib.sha256(raw).digest())


@pytest.fixture
def receiving(tmp_path: Path) -> Receiving:
    return Receiving(tmp_path)


def message(raw: bytes) -> bytes:
    head = b"C" + (0).to_bytes(4, "big") + len(raw).to_bytes(4, "big")
    return head + hashlib.sha256(raw).digest() + raw + b"F"


@pytest.mark.parametrize("strangers", [4, 20])
def test_strangers_do_not_keep_the_peer_waiting(receiving: Receiving, strangers: int) -> None:
    address, token = receiving.start(10, 10)
    with ExitStack() as held:
        for number in range(strangers):
            stranger = held.enter_context(socket.create_connection(address, timeout=30))
            stranger.sendall(token[: number % 64])
        peer = held.enter_context(socket.create_connection(address, timeout=30))
        for digit in token:  # it may come in pieces
            peer.sendall(bytes([digit]))
        assert peer.recv(1) == b"R"
        peer.sendall(message(b"0123456789"))
        assert peer.recv(5) == b"A\0\0\0\0"
        assert peer.recv(1) == b"D"
    assert receiving.target.read_bytes() == b"0123456789"


def test_a_peer_that_takes_nothing_does_not_hold_the_file_for_ever(receiving: Receiving) -> None:
    count = 200_000
    digest = hashlib.sha256(b"\0").hexdigest()
    receiving.partial.write_bytes(bytes(count))
    journal = receiving.folder / "partial.journal"
    lines = "".join(f"{index} {digest}\n" for index in range(count))
    journal.write_text(f"labctl-partial 1 {count} 1\n{lines}")
    address, token = receiving.start(count, 1, idle=2)
    with socket.create_connection(address) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.sendall(token)
        assert peer.recv(1) == b"G"
        assert not receiving.is_free(count, 1)
        assert wait_until(lambda: receiving.is_free(count, 1), timeout=120, interval=0.2)


def test_what_a_power_cut_left_beside_a_finished_file_is_removed(receiving: Receiving) -> None:
    receiving.target.write_bytes(b"whole")
    (receiving.folder / "partial.journal").write_text("labctl-partial 1 5 5\n")
    assert receiving.run(5, 5).exit_status == PUBLISHED
    assert [path.name for path in receiving.folder.iterdir()] == ["target"]


@pytest.mark.parametrize(
    ("size", "chunk"), [((1 << 63) - 1, 64 << 20), (1 << 62, 1), ((1 << 32) - 1, 1), (5, 65 << 20)]
)
def test_sizes_that_no_board_can_count_are_refused(
    receiving: Receiving, size: int, chunk: int
) -> None:
    assert receiving.run(size, chunk).exit_status == USAGE
    assert list(receiving.folder.iterdir()) == []


def test_one_that_nobody_talks_to_keeps_nobody_away(receiving: Receiving) -> None:
    first, second = receiving.start(len(RAW), CHUNK), receiving.start(len(RAW), CHUNK)
    with Peer(*second) as peer:
        assert peer.begin() == ([], [])
        with Peer(*first) as late:
            assert late.hear() == (b"E", errno.EAGAIN)
        assert receiving.run(len(RAW), CHUNK).exit_status == BUSY
        assert all(peer.send_chunk(index) == (b"A", index) for index in range(5))
        assert peer.end() == b"D"
    assert receiving.target.read_bytes() == RAW
    assert receiving.run(len(RAW), CHUNK).exit_status == PUBLISHED


def test_who_is_heard_after_the_end_of_another_is_told_so(receiving: Receiving) -> None:
    waiting = receiving.start(len(RAW), CHUNK)
    with receiving.meet() as peer:
        peer.begin()
        for index in range(5):
            peer.send_chunk(index)
        assert peer.end() == b"D"
    with Peer(*waiting) as late:
        assert late.hear() == (b"E", errno.EEXIST)
    assert sorted(path.name for path in receiving.folder.iterdir()) == ["target"]
    assert receiving.target.read_bytes() == RAW


def test_a_killed_receiver_is_followed_by_another(receiving: Receiving) -> None:
    with receiving.meet() as peer:
        peer.begin()
        assert peer.send_chunk(0) == (b"A", 0)
        assert peer.send_chunk(3) == (b"A", 3)
        peer.sendall(head(1, chunk_of(1)) + chunk_of(1)[:500])
        for agent in receiving.agents():
            os.kill(agent, signal.SIGKILL)
        with suppress(ConnectionResetError):
            assert peer.recv(1) == b""
    with receiving.meet() as peer:
        assert peer.begin() == ([0, 3], [])
        assert [peer.send_chunk(index) for index in (1, 2, 4)] == [(b"A", 1), (b"A", 2), (b"A", 4)]
        assert peer.end() == b"D"
    assert receiving.target.read_bytes() == RAW


def test_a_damaged_chunk_is_never_there(receiving: Receiving) -> None:
    with receiving.meet() as peer:
        peer.begin()
        for bit in range(0, 8 * CHUNK, 997):
            damaged = bytearray(chunk_of(1))
            damaged[bit // 8] ^= 1 << bit % 8
            assert peer.send_chunk(1, bytes(damaged)) == (b"B", 1)
        for index in (0, 2, 3, 4):
            assert peer.send_chunk(index) == (b"A", index)
        peer.sendall(b"F")
        assert peer.hear() == (b"B", 1)
        assert not receiving.target.exists()
        assert peer.send_chunk(1) == (b"A", 1)
        assert peer.end() == b"D"
    assert receiving.target.read_bytes() == RAW


@pytest.mark.parametrize("seed", range(12))
def test_damage_between_two_attempts_is_found(receiving: Receiving, seed: int) -> None:
    with receiving.meet() as peer:
        peer.begin()
        for index in (0, 1, 2):
            peer.send_chunk(index)
    assert wait_until(lambda: receiving.agents() == [], timeout=120, interval=0.05)
    source = random.Random(seed)
    index, at = source.randrange(3), source.randrange(CHUNK)
    with receiving.partial.open("r+b") as file:
        if seed % 3 == 2:
            file.truncate(index * CHUNK + at)
            bad = list(range(index, 3))
        else:
            length = source.choice([1, CHUNK - at])
            file.seek(index * CHUNK + at)
            before = file.read(length)
            file.seek(index * CHUNK + at)
            file.write(bytes(byte ^ (1 << source.randrange(8)) for byte in before))
            bad = [index]
    with receiving.meet() as peer:
        assert peer.begin() == ([i for i in range(3) if i not in bad], bad)
        for index in (*bad, 3, 4):
            assert peer.send_chunk(index) == (b"A", index)
        assert peer.end() == b"D"
    assert receiving.target.read_bytes() == RAW


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0" * 4096,
        "labctl-partial 2 4700 1000\n",
        "labctl-partial 1 4700 999\n",
        "labctl-partial 1 4701 1000\n0 {good}\n",
        "labctl-partial 1 4700 1000\n{good}\n",
        "labctl-partial 1 4700 1000\n5 {good}\n",
        "labctl-partial 1 4700 1000\n-1 {good}\n",
        "labctl-partial 1 4700 1000\n18446744073709551616 {good}\n",
        "labctl-partial 1 4700 1000\n0 {upper}\n",
        "labctl-partial 1 4700 1000\n0 {half}",
        "labctl-partial 1 4700 1000\n0 {good}",
        "labctl-partial 1 4700 1000\n0 \0{good}\n",
        "labctl-partial 1 4700 1000\n" + "0 " * 5000,
    ],
)
def test_a_journal_that_says_nothing_is_begun_anew(receiving: Receiving, text: str) -> None:
    good = hashlib.sha256(chunk_of(0)).hexdigest()
    journal = receiving.folder / "partial.journal"
    journal.write_text(text.format(good=good, upper=good.upper(), half=good[:30]))
    receiving.partial.write_bytes(RAW)
    with receiving.meet() as peer:
        assert peer.begin() == ([], [])
        assert peer.send_chunk(4) == (b"A", 4)
    assert wait_until(lambda: receiving.agents() == [], timeout=120, interval=0.05)
    lines = journal.read_text().splitlines()
    assert lines == ["labctl-partial 1 4700 1000", f"4 {hashlib.sha256(RAW[4000:]).hexdigest()}"]


@pytest.mark.parametrize(
    "said",
    [
        head(5, b"x"),
        head(0xFFFFFFFF, chunk_of(0)),
        struct.pack(">cII32s", b"C", 0, 0xFFFFFFFF, bytes(32)),
        struct.pack(">cII32s", b"C", 0, 0, bytes(32)),
        struct.pack(">cII32s", b"C", 4, CHUNK, bytes(32)),
        b"X",
        b"\0" * 50,
    ],
)
def test_what_no_peer_says_ends_the_conversation(receiving: Receiving, said: bytes) -> None:
    with receiving.meet() as peer:
        peer.begin()
        assert peer.send_chunk(0) == (b"A", 0)
        peer.sendall(said)
        assert peer.recv(1) == b""
    with receiving.meet() as peer:
        assert peer.begin() == ([0], [])


def test_a_file_too_large_for_the_limit_is_told_before_the_first_byte(
    receiving: Receiving,
) -> None:
    words = [agent_builds.native_agent(), "receive", "--file", receiving.partial, "--target"]
    words += [receiving.target, "--size", str(len(RAW)), "--chunk", str(CHUNK)]
    done = process.run(["sh", "-c", 'ulimit -f 1; exec "$@"', "sh", *words], timeout=120)
    assert done.exit_status == DIRECTORY
    assert "File too large" in json.loads(done.stdout)["message"]
    assert list(receiving.folder.iterdir()) == []


def test_a_write_that_fails_within_a_chunk_is_told_and_costs_only_that(
    receiving: Receiving,
) -> None:
    with receiving.meet() as peer:
        peer.begin()
        assert peer.send_chunk(0) == (b"A", 0)
        (agent,) = receiving.agents()
        resource.prlimit(agent, resource.RLIMIT_FSIZE, (3 * CHUNK + 10, 3 * CHUNK + 10))
        peer.sendall(head(3, chunk_of(3)) + chunk_of(3))
        peer.sendall(head(4, chunk_of(4)) + chunk_of(4))  # it was under way
        assert peer.hear() == (b"E", errno.EFBIG)
        assert peer.recv(1) == b""
    with receiving.meet() as peer:
        assert peer.begin() == ([0], [])
        for index in (1, 2, 3, 4):
            assert peer.send_chunk(index) == (b"A", index)
        assert peer.end() == b"D"
    assert receiving.target.read_bytes() == RAW
