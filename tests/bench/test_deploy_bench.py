"""Deliveries: against plain pushes, other ways in chunks, when nothing is to be sent, to many."""

import hashlib
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import agent_builds
import pytest
from interleaved import medians, show
from virtual_process import virtual_board_process

from labctl.board import BoardStore, StoredObject
from labctl.board.chunks import ChunkedFile
from labctl.hdc import Session, send_file
from labctl.transport import Transport, connect, remote_words
from labctl.virtual import Control
from labctl.virtual.faults import Slow

pytestmark = [pytest.mark.bench, pytest.mark.usefixtures("private_state")]

FILE_BYTES = 512 << 20
#: What a board on USB 2 takes, bytes per second.
USB2 = 30_000_000
SLOW_BYTES = 96 << 20


@dataclass
class Bench:
    """A board in a process of its own, with the agent on it."""

    directory: Path
    workdir: str
    agent: str
    transport: Transport
    session: Session

    def fresh(self, number: int) -> BoardStore:
        """A store with nothing in it; what the one before held is gone."""
        shutil.rmtree(f"{self.workdir}/{number - 1}", ignore_errors=True)
        return BoardStore(
            self.transport,
            f"{self.workdir}/{number}",
            hash_command=(self.agent, "hash"),
            agent=self.agent,
        )


@contextmanager
def bench_on(directory: Path) -> Iterator[Bench]:
    with (
        virtual_board_process(directory) as board,
        connect("hdc", link="tcp", address=board.address) as transport,
    ):
        agent = f"{board.workdir}/agent"
        Path(agent).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(agent_builds.native_agent(), agent)
        host, _, port = board.address.rpartition(":")
        session = Session.connect(host, int(port), timeout=10)
        try:
            yield Bench(board.directory, board.workdir, agent, transport, session)
        finally:
            session.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with bench_on(tmp_path / "board") as made:
        yield made


def random_file(path: Path, count: int) -> StoredObject:
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for _ in range(count >> 20):
            block = os.urandom(1 << 20)
            digest.update(block)
            file.write(block)
    return StoredObject(digest.hexdigest(), count)


def ways(bench: Bench, local: Path, item: StoredObject) -> dict[str, Callable[[], object]]:
    """Ways to bring one file: what hdc does with nothing proven, ours, and what else there is."""
    number = itertools.count(1)
    plain = f"{bench.workdir}/plain"

    def push() -> None:
        with local.open("rb") as source:
            send_file(bench.session, source, plain, timeout=60, on_chunk=lambda _chunk: None)

    def push_and_hash() -> None:
        push()
        text = bench.transport.run(remote_words(bench.agent, "hash", plain), timeout=300).text
        assert text.startswith(item.sha256)

    def deliver() -> None:
        bench.fresh(next(number)).publish(local, item)

    def chunk_files() -> None:
        """Each chunk a file of its own, hashed on the board, then appended."""
        whole, piece = f"{bench.workdir}/whole", f"{bench.workdir}/piece"
        bench.transport.run(remote_words("rm", "-f", whole), timeout=30).check()
        with ChunkedFile(local, item.sha256, item.size_bytes) as source:
            for index in range(source.count):
                chunk = source.chunk(index)
                part = local.with_name("piece")
                part.write_bytes(chunk.data)
                with part.open("rb") as opened:
                    send_file(
                        bench.session, opened, piece, timeout=60, on_chunk=lambda _chunk: None
                    )
                words = f"{remote_words(bench.agent, 'hash', piece)} && "
                words += f"cat {remote_words(piece)} >>{remote_words(whole)}"
                said = bench.transport.run(words, timeout=60).check().text
                assert said.startswith(chunk.digest.hex())

    return {
        "plain hdc push, nothing proven": push,
        "plain hdc push, then hashed": push_and_hash,
        "delivery": deliver,
        "chunks as hdc files, appended": chunk_files,
    }


def tell(what: str, found: dict[str, float], count: int) -> None:
    base = "plain hdc push, nothing proven"
    show(what, found, base)
    for name, seconds in found.items():
        print(
            f"  {name:32} {found[base] / seconds:6.2f} of its speed, {count / seconds / 1e6:.0f}"
            " MB/s"
        )


def test_delivery_against_other_ways(bench: Bench, tmp_path: Path) -> None:
    local = tmp_path / "file"
    item = random_file(local, FILE_BYTES)
    found = medians(3, ways(bench, local, item))
    tell(f"{FILE_BYTES >> 20} MiB over loopback", found, FILE_BYTES)
    assert found["delivery"] < found["chunks as hdc files, appended"]


def test_delivery_over_a_link_as_slow_as_usb_2(bench: Bench, tmp_path: Path) -> None:
    local = tmp_path / "file"
    item = random_file(local, SLOW_BYTES)
    for operation in ("send", "forward"):
        Control(bench.directory).add(Slow(on=operation, rate=USB2, times=None))
    found = medians(2, ways(bench, local, item))
    tell(f"{SLOW_BYTES >> 20} MiB at {USB2 / 1e6:.0f} MB/s", found, SLOW_BYTES)
