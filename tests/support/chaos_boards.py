"""Virtual boards in processes of their own, which lose their power and keep their files."""

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import agent_builds

from labctl.errors import ExitStatus
from labctl.retry import wait_until


@dataclass
class VirtualBoard:
    """A virtual board in a process of its own: one that is lost comes back with its files."""

    name: str
    folder: Path
    effects: Path
    port: int = 0
    workdir: str = ""
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Switch it on; return when it answers.

        The kernel lets a user watch 128 folders at once (inotify): the tests beside this one may.
        """
        assert wait_until(self._has_started, timeout=60, interval=0.5)

    def _has_started(self) -> bool:
        words = ["virtual-board", "--json", "--dir", str(self.folder), "--port", "0"]
        words += ["--name", self.name, "--target", agent_builds.HOST]
        words += ["--effects", str(self.effects)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "labctl", *words],
            cwd=self.effects.parent,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        with self.process.stdout as output:
            line = output.readline()
        if not line.startswith(b"["):
            assert self.process.wait(60) == ExitStatus.INFRA, line
            return False
        (board,) = json.loads(line)
        self.port, self.workdir = int(board["address"].rpartition(":")[2]), board["workdir"]
        return True

    def power_off(self) -> None:
        """Take its power away: all its processes are killed, its files stay."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(120) == 0
            self.process = None

    def port_now(self) -> int:
        """Return its port: while it had no power, another process may have taken the last one."""
        return self.port
