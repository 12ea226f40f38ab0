"""``agent receive`` and callers that are not its peer, or stand still. Native, without a board."""

import hashlib
import json
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import agent_builds
import pytest

from labctl import process
from labctl.retry import wait_until

pytestmark = pytest.mark.e2e

USAGE, BUSY, PUBLISHED = 2, 76, 77


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

    def run(self, size: int, chunk: int, idle: float = 5) -> process.Completed:
        words = ["receive", "--file", self.partial, "--target", self.target, "--size", str(size)]
        agent = agent_builds.native_agent()
        return process.run([agent, *words, "--chunk", str(chunk), "--idle", str(idle)], timeout=20)

    def start(self, size: int, chunk: int, idle: float = 5) -> tuple[tuple[str, int], bytes]:
        """Where the agent listens, and the token it wants to hear."""
        said = json.loads(self.run(size, chunk, idle).stdout)
        return ("127.0.0.1", said["port"]), said["token"].encode()

    def is_free(self, size: int, chunk: int) -> bool:
        return self.run(size, chunk, 0.1).exit_status != BUSY


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
            stranger = held.enter_context(socket.create_connection(address, timeout=5))
            stranger.sendall(token[: number % 64])
        peer = held.enter_context(socket.create_connection(address, timeout=2))
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
    address, token = receiving.start(count, 1, idle=1)
    with socket.create_connection(address) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.sendall(token)
        assert peer.recv(1) == b"G"
        assert not receiving.is_free(count, 1)
        assert wait_until(lambda: receiving.is_free(count, 1), timeout=10, interval=0.2)


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
