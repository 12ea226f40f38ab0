"""A file that several boards read at once: what is true of it at every moment."""

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from labctl.board.upload.client import ChunkedFile

CHUNK = 100


class Behind:
    """The hash of what was read before, for which the thread that reads has to wait."""

    def __init__(self) -> None:
        self.reached, self.caught_up = threading.Event(), threading.Event()

    def result(self) -> None:
        if threading.current_thread().name.startswith("read chunks"):
            self.reached.set()
            assert self.caught_up.wait(60)


def test_who_only_compares_can_prove_the_file_while_another_reads_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytes(range(CHUNK))
    path = tmp_path / "file"
    path.write_bytes(data)
    behind = Behind()
    with (
        ChunkedFile(path, hashlib.sha256(data).hexdigest(), len(data), CHUNK) as source,
        ThreadPoolExecutor(2) as boards,
    ):

        def compare() -> None:
            source.digest(0)
            source.prove()

        monkeypatch.setattr(source, "_hashed", behind)
        reading = boards.submit(source.chunk, 0)
        assert behind.reached.wait(60)
        comparing = boards.submit(compare)
        wait([comparing], timeout=0.2)  # where it need not wait, it ends now, and wrongly
        behind.caught_up.set()
        assert reading.result().data == data
        comparing.result()
