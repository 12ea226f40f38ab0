"""Deliveries: against plain pushes, other ways in chunks, when nothing is to be sent, to many."""

import hashlib
import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import agent_builds
import gguf
import lz4.block
import pytest
from interleaved import medians, show
from slow_link import slow_link
from stored import publish
from virtual_process import virtual_board_process

from labctl.board.lease import Fence
from labctl.board.store import BoardStore, StoredObject
from labctl.board.upload.client import CHUNK_BYTES, ChunkedFile
from labctl.board.upload.resumable import DeliveryOptions
from labctl.deploy.plan import Object, plan
from labctl.deploy.send import deploy
from labctl.folders import cache_dir
from labctl.hdc.host.files import send_file
from labctl.hdc.host.session import Session
from labctl.transport.base import Transport, remote_words
from labctl.transport.hdc import HdcTcpConfig

pytestmark = [pytest.mark.bench, pytest.mark.usefixtures("private_state")]

FILE_BYTES = 512 << 20
#: What a board on USB 2 takes, bytes per second, and one on gigabit Ethernet.
LINKS = {"USB 2": 30_000_000, "gigabit Ethernet": 110_000_000}
SLOW_BYTES = 96 << 20
BOARDS = 8


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
            fence=Fence(self.transport, f"{self.workdir}/{number}", self.agent),
        )


@contextmanager
def bench_on(directory: Path, bytes_per_second: int | None = None) -> Iterator[Bench]:
    with ExitStack() as stack:
        board = stack.enter_context(virtual_board_process(directory))
        address = board.address
        if bytes_per_second is not None:
            address = stack.enter_context(slow_link(address, bytes_per_second))
        transport = stack.enter_context(HdcTcpConfig(address=address).open())
        agent = f"{board.workdir}/agent"
        Path(agent).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(agent_builds.native_agent(), agent)
        host, _, port = address.rpartition(":")
        session = Session.connect(host, int(port), timeout=10)
        stack.callback(session.close)
        yield Bench(board.directory, board.workdir, agent, transport, session)


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
        publish(bench.fresh(next(number)), local, item)

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


@pytest.mark.parametrize("link", list(LINKS))
def test_delivery_over_a_real_links_speed(tmp_path: Path, link: str) -> None:
    local = tmp_path / "file"
    item = random_file(local, SLOW_BYTES)
    with bench_on(tmp_path / "board", LINKS[link]) as bench:
        found = medians(3, ways(bench, local, item))
    tell(f"{SLOW_BYTES >> 20} MiB over {link}", found, SLOW_BYTES)


def test_fan_out(tmp_path: Path) -> None:
    """To many boards at once, over links of their own, against one after the other."""
    local = tmp_path / "file"
    item = random_file(local, SLOW_BYTES)
    number = itertools.count(1)
    with ExitStack() as stack:
        benches = [
            stack.enter_context(bench_on(tmp_path / f"b{i}", LINKS["USB 2"])) for i in range(BOARDS)
        ]
        pool = stack.enter_context(ThreadPoolExecutor(BOARDS))

        def one_after_the_other() -> None:
            turn = next(number)
            for bench in benches:
                publish(bench.fresh(turn), local, item)

        def at_once() -> None:
            turn = next(number)
            with ChunkedFile(local, item.sha256, item.size_bytes) as source:

                def bring(bench: Bench) -> None:
                    bench.fresh(turn).receive(source, item, options=DeliveryOptions())

                list(pool.map(bring, benches))

        found = medians(1, {"one after the other": one_after_the_other, "at once": at_once})
    show(f"{SLOW_BYTES >> 20} MiB to {BOARDS} boards on USB 2", found, "one after the other")
    assert found["at once"] < found["one after the other"] / 2


def test_a_second_deploy_of_8_gb(bench: Bench, tmp_path: Path) -> None:
    """Nothing crosses the link, and nothing is read: a stamp is believed."""
    local = tmp_path / "model"
    with local.open("wb") as file:
        file.truncate(8 << 30)
    sha256 = bench.transport.run(remote_words(bench.agent, "hash", str(local)), timeout=600).text
    item = Object(sha256.split()[0], 8 << 30, local, "model")
    store = bench.fresh(1)
    there = Path(store.path(item.sha256))
    there.parent.mkdir(parents=True)
    with there.open("wb") as file:
        file.truncate(item.size_bytes)
    assert plan(store, [item]).missing == ()  # hashed once, and stamped
    found = medians(5, {"second deploy": lambda: deploy(store, plan(store, [item]))})
    print(f"\na second deploy of 8 GB: {found['second deploy']:.3f} s")
    assert found["second deploy"] < 1


def test_compression() -> None:
    """Why models are not compressed on the way: LZ4 of each chunk, as the link would carry it."""
    models = sorted((cache_dir() / "models").glob("*/*.*.gguf"))  # NAME.QUANTIZATION.gguf
    samples = {path.suffixes[-2][1:]: path.read_bytes() for path in models}
    if "Q8_0" not in samples:
        pytest.skip("no model in the cache: run the tests first")
    quantized = gguf.GGUFReader(next(p for p in models if p.suffixes[-2] == ".Q8_0"))
    tensor = max(quantized.tensors, key=lambda tensor: tensor.n_bytes)
    weights = gguf.dequantize(tensor.data, tensor.tensor_type)
    samples["its largest tensor as F16"] = weights.astype("float16").tobytes()
    samples["its largest tensor as F32"] = weights.tobytes()
    samples["the agent, a static program"] = agent_builds.native_agent().read_bytes()
    print("\nLZ4 of chunks of 4 MiB")
    for name, raw in samples.items():
        chunks = [raw[at : at + CHUNK_BYTES] for at in range(0, len(raw), CHUNK_BYTES)]
        began = time.perf_counter()
        packed = [lz4.block.compress(chunk) for chunk in chunks]
        middle = time.perf_counter()
        assert [lz4.block.decompress(chunk) for chunk in packed] == chunks
        ended = time.perf_counter()
        print(
            f"  {name:28} {sum(map(len, packed)) / len(raw):6.3f} of its size,"
            f" packed at {len(raw) / (middle - began) / 1e6:5.0f} MB/s,"
            f" unpacked at {len(raw) / (ended - middle) / 1e6:5.0f} MB/s"
        )
