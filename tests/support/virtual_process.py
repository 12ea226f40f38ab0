"""Virtual boards in a process of their own, as a user starts them; they can be killed or frozen."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import forked

from labctl import process


@dataclass(frozen=True)
class BoardProcess:
    process: "subprocess.Popen[bytes]"
    name: str
    address: str
    directory: Path
    workdir: str
    boot_id: str

    def marked(self) -> list[int]:
        """Processes that carry this boot's mark."""
        mark = f"LABCTL_SANDBOX={self.boot_id}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found


@contextmanager
def virtual_board_process(directory: Path, *options: str) -> Iterator[BoardProcess]:
    """``labctl virtual-board --json``; stopped at the end if it still runs."""
    words = ["virtual-board", "--json", "--dir", str(directory), "--port", "0", *options]
    started = forked.start(words, cwd=directory.parent, stderr=None)
    try:
        assert started.stdout is not None
        (board,) = json.loads(started.stdout.readline())
        yield BoardProcess(
            started,
            board["name"],
            board["address"],
            Path(board["directory"]),
            board["workdir"],
            board["boot_id"],
        )
    finally:
        if started.poll() is None:
            process.stop(started)
        assert started.stdout is not None
        started.stdout.close()
