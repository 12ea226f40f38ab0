"""This host as a board that does not say it is virtual, with a load, a memory and sensors made up.

A virtual board tells that it is one, and then nothing of its host counts as the board's. This is
measured like any board: what the kernel says of CPUs, memory and its boot lies in files that are
mounted over its own, in a mount namespace.
"""

import asyncio
import json
import os
import platform
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from virtual_process import BoardProcess

from labctl import process
from labctl.hdc.daemon.board import Board
from labctl.hdc.daemon.daemon import Daemon
from labctl.virtual.fake_sensors import Fakes
from labctl.virtual.marks import FAKES

TARGET = f"host-{platform.machine()}"
_TOTAL_KB, _AVAILABLE_KB = 2_000_000, 1_500_000
_TICKS = os.sysconf("SC_CLK_TCK")
_NO_MOUNT = 77
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_MOUNT = f"""\
mount --bind "$0/stat" /proc/stat && mount --bind "$0/meminfo" /proc/meminfo || exit {_NO_MOUNT}
mount --bind "$0/boot_id" {_BOOT_ID} || exit {_NO_MOUNT}
exec "$@"
"""


class BareBoard:
    """A board that is asked over hdc like any, and what happens to it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._workdir = folder / "workdir"
        #: Of one CPU, what a hypervisor takes.
        self.stolen = 0.0
        self._kernel = folder / "kernel"
        self._kernel.mkdir(parents=True)
        self._workdir.mkdir()
        self._boot_id = str(uuid.uuid4())
        (self._kernel / "boot_id").write_text(f"{self._boot_id}\n")
        self._fakes = Fakes(folder)
        self._fakes.show_sensors()
        self._stat = Path("/proc/stat").read_text().partition("\n")[2]
        self._steal_ticks = 5000.0
        self._time = time.monotonic()
        self._over = threading.Event()
        self._tick()
        self.leave_memory(_AVAILABLE_KB)

    def throttle(self) -> None:
        """Get hot and slow, now."""
        asyncio.run(self._fakes.throttle(95, 816_000, 1_560_000_000, 0))

    def leave_memory(self, kilobytes: int) -> None:
        """Let so much be available."""
        text = f"MemTotal:  {_TOTAL_KB} kB\nMemAvailable: {kilobytes:10} kB\n"
        _overwrite(self._kernel / "meminfo", text)

    @contextmanager
    def served(self) -> Iterator[BoardProcess]:
        """Answer, and let time pass; the test is skipped where nothing may be mounted."""
        if shutil.which("unshare") is None:
            pytest.skip("no unshare program: the kernel's files cannot be replaced")
        alone = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "-r", "--mount"]
        words = [*alone, "sh", "-c", _MOUNT, self._kernel]
        words += [sys.executable, __file__, self.folder, self._fakes.folder]
        started = process.start(words, stderr=None, env=os.environ)
        assert started.stdout is not None
        clock = threading.Thread(target=self._pass_time)
        clock.start()
        try:
            line = started.stdout.readline()
            if not line and started.wait(20) in (1, _NO_MOUNT):  # 1: of unshare itself
                pytest.skip("the kernel's files cannot be replaced: nothing may be mounted")
            yield BoardProcess(
                process=started,
                name="bare",
                address=f"127.0.0.1:{json.loads(line)}",
                directory=self.folder,
                workdir=str(self._workdir),
                boot_id=self._boot_id,
            )
        finally:
            self._over.set()
            clock.join()
            if started.poll() is None:
                process.stop(started)
            started.stdout.close()

    def _pass_time(self) -> None:
        while not self._over.wait(0.05):
            self._tick()

    def _tick(self) -> None:
        """An idle machine, but for what is stolen from it."""
        now = time.monotonic()
        self._steal_ticks += (now - self._time) * _TICKS * self.stolen
        self._time = now
        fields = [1000, 0, 1000, round(now * _TICKS), 0, 0, 0, round(self._steal_ticks), 0, 0]
        line = "cpu  " + " ".join(f"{field:12}" for field in fields) + "\n"
        _overwrite(self._kernel / "stat", line + self._stat)


def _overwrite(path: Path, text: str) -> None:
    """In place: the file is mounted, and open."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(descriptor, text.encode(), 0)
    finally:
        os.close(descriptor)


def main(folder: Path, fakes: Path) -> None:
    """Serve until this process is ended."""

    async def serve() -> None:
        environment = {"PATH": os.defpath, "HOME": str(folder), FAKES: str(fakes)}
        daemon = Daemon(Board(name="bare", directory=folder, environment=environment))
        print(json.dumps(await daemon.start()), flush=True)  # noqa: T201 - for the one who waits
        await asyncio.Event().wait()

    asyncio.run(serve())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
