"""A large file over each way to a board: in chunks, to the agent's own port there."""

import hashlib
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from agent_fences import native_fence
from listening_sockets import listening
from sshd_host import ssh_host
from wrapped_transport import WrappedTransport

from labctl.board.store import BoardStore, StoredObject
from labctl.board.upload.client import ChunkedFile
from labctl.board.upload.resumable import DeliveryOptions
from labctl.errors import LinkRefused
from labctl.transport.base import TransferOptions, Transport
from labctl.transport.file_transfer import FileTransfer
from labctl.transport.hdc import HdcTcpConfig
from labctl.transport.linked import Stream
from labctl.virtual.board import VirtualBoard, serving

#: The least that comes in chunks.
LARGE_BYTES = DeliveryOptions.chunked_bytes
AT_ONCE = DeliveryOptions(retry_timeout=0)
#: Names of the threads that read and hash a file beside its sending.
OF_THE_FILE = ("read chunks", "hash file")

Board = Callable[[Path], AbstractContextManager[Transport]]


class Watched(WrappedTransport):
    """Notes in which way files cross."""

    def __init__(self, inner: Transport):
        super().__init__(inner)
        self.ports: list[int] = []
        self.transfers = 0

    @contextmanager
    def connect(self, port: int, *, timeout: float) -> Iterator[Stream]:
        self.ports.append(port)
        with self.inner.connect(port, timeout=timeout) as stream:
            yield stream

    def file_transfer(self, options: TransferOptions) -> FileTransfer:
        self.transfers += 1
        return super().file_transfer(options)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A file just above the limit."""
    file = tmp_path / "large"
    file.write_bytes(secrets.token_bytes(LARGE_BYTES + 1))
    return file


def bring(link: Transport, workdir: Path, file: Path, options: DeliveryOptions = AT_ONCE) -> Path:
    """Bring a file as a deploy does; its path on the board."""
    data = file.read_bytes()
    item = StoredObject(hashlib.sha256(data).hexdigest(), len(data))
    store = BoardStore(link, str(workdir), fence=native_fence(link, str(workdir)))
    with ChunkedFile(file, item.sha256, item.size_bytes) as source:
        return Path(store.receive(source, item, options=options))


def test_a_large_file_crosses_in_chunks(transport: Transport, tmp_path: Path, large: Path) -> None:
    link = Watched(transport)
    there = bring(link, tmp_path / "work", large)
    assert there.read_bytes() == large.read_bytes()
    assert (len(link.ports), link.transfers) == (1, 0)


def test_a_small_file_crosses_as_one(transport: Transport, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.write_bytes(secrets.token_bytes(LARGE_BYTES - 1))
    link = Watched(transport)
    there = bring(link, tmp_path / "work", small)
    assert there.read_bytes() == small.read_bytes()
    assert (link.ports, link.transfers) == ([], 1)


@pytest.mark.slow
def test_over_ssh_chunks_need_its_forwarding(tmp_path: Path, large: Path) -> None:
    """Of sshd, that is direct-tcpip: where it is refused, nothing else carries them."""
    config = "AllowTcpForwarding no\n"
    with (
        ssh_host(tmp_path / "host", config=config) as host,
        host.board().open() as link,
        pytest.raises(LinkRefused, match="cannot connect to its port") as refused,
    ):
        bring(link, tmp_path / "work", large)
    assert "AllowTcpForwarding" in (refused.value.hint or "")


@contextmanager
def hdc_board(folder: Path) -> Iterator[Transport]:
    with (
        serving(VirtualBoard("b", folder)) as (board,),
        HdcTcpConfig(address=board.address).open() as link,
    ):
        yield link


@contextmanager
def ssh_board(folder: Path) -> Iterator[Transport]:
    with ssh_host(folder) as host, host.board().open() as link:
        yield link


def threads() -> Counter[str]:
    """The threads of this process by name, but for those that read the file."""
    names = (thread.name for thread in threading.enumerate())
    return Counter(name for name in names if not name.startswith(OF_THE_FILE))


@pytest.mark.parametrize("board", [hdc_board, pytest.param(ssh_board, marks=pytest.mark.slow)])
def test_an_upload_opens_no_port_on_this_host(board: Board, tmp_path: Path, large: Path) -> None:
    """A port here would be open to every other user of this host, and carry bytes twice."""
    sent = 0
    added: set[str] = set()

    def look(sent_bytes: int) -> None:
        nonlocal sent
        sent += sent_bytes
        added.update(listening() - ports, threads() - before)

    with board(tmp_path / "board") as link:
        link.run(":", timeout=30)
        ports, before = listening(), threads()
        bring(link, tmp_path / "work", large, DeliveryOptions(retry_timeout=0, pace=look))
    assert sent > LARGE_BYTES
    assert added == set()
