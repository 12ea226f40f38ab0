"""The memory that a delivery takes does not grow with the file."""

import hashlib
import os
import re
import shutil
import sys
from pathlib import Path

import agent_builds
import pytest
from virtual_process import virtual_board_process

from labctl import process

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(1200),
    pytest.mark.usefixtures("private_state"),
]

MOST_BYTES = 150_000_000

CONTROLLER = """
import sys
from pathlib import Path
from labctl.board.lease import Fence
from labctl.board.store import BoardStore, StoredObject
from labctl.board.upload.client import ChunkedFile
from labctl.board.upload.resumable import DeliveryOptions
from labctl.transport.hdc import HdcTcpConfig
address, workdir, agent, file, sha256, size = sys.argv[1:]
with HdcTcpConfig(address=address).open() as transport:
    fence = Fence(transport, workdir, agent)
    store = BoardStore(transport, workdir, hash_command=(agent, "hash"), fence=fence)
    with ChunkedFile(Path(file), sha256, int(size)) as source:
        item = StoredObject(sha256, int(size))
        print(store.receive(source, item, options=DeliveryOptions()))
print(Path("/proc/self/status").read_text())
"""


@pytest.mark.parametrize(
    "size_bytes",
    [400 << 20, pytest.param(5_000_000_000, marks=pytest.mark.soak)],
    ids=["400 MiB", "5 GB"],
)
def test_a_sparse_file_takes_little_memory(tmp_path: Path, size_bytes: int) -> None:
    local = tmp_path / "sparse"
    with local.open("wb") as file:
        file.truncate(size_bytes)
    with local.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    with virtual_board_process(tmp_path / "board") as board:
        agent = Path(board.workdir) / "agent"
        agent.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(agent_builds.native_agent(), agent)
        words = [board.address, board.workdir, agent, local, sha256, size_bytes]
        done = process.run(
            [sys.executable, "-c", CONTROLLER, *map(str, words)], timeout=900, env=os.environ
        )
        assert done.exit_status == 0, done.tail()
        path, _, status = done.text.partition("\n")
        peaks = {
            "controller": _peak_bytes(status),
            "board": _peak_bytes(Path(f"/proc/{board.process.pid}/status").read_text()),
        }
        assert Path(path).stat().st_size == size_bytes
    assert max(peaks.values()) < MOST_BYTES, peaks


def _peak_bytes(status: str) -> int:
    """The most memory that a process has had (proc(5), VmHWM)."""
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) * 1024
