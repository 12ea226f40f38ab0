"""Servers on this host, for :mod:`labctl.engines.server_lifecycle`.

A server always ends with the process that started it: a shell beside it waits for the end of a pipe
that this process holds open, then kills the server's process group.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from labctl import process
from labctl.engines.base import RawOutput
from labctl.errors import HostError, ToolMissing
from labctl.records.trial import JobStatus

_LOOPBACK = "127.0.0.1"
#: A background command does not get the shell's standard input, but its other descriptors.
_WITH_THIS_PROCESS = """\
exec 3<&0 </dev/null
{ trap '' HUP INT TERM; cat <&3 >/dev/null 2>&1; kill -s KILL 0; } &
exec 3<&-
exec "$@"
"""


@dataclass(frozen=True)
class ThisHost:
    """Starts servers here; keeps their output in ``folder``."""

    folder: Path

    def free_port(self) -> int:
        """Return a free port. Raises HostError."""
        try:
            with socket.socket() as free:
                free.bind((_LOOPBACK, 0))
                port: int = free.getsockname()[1]
                return port
        except OSError as error:
            raise HostError(f"this host has no free port: {error.strerror}") from error

    def start(self, argv: Sequence[str], port: int) -> "HostServer":
        """Start a server. Raises ToolMissing, HostError."""
        stdout, stderr = self.folder / "stdout", self.folder / "stderr"
        if shutil.which(argv[0]) is None:  # the shell would report it only in a log
            raise ToolMissing(f"program not found on this host: {argv[0]}", program=argv[0])
        words = ["sh", "-c", _WITH_THIS_PROCESS, "sh", *argv]
        watched, alive = os.pipe()
        try:
            with stdout.open("wb") as out, stderr.open("wb") as err:
                program = process.start(
                    words, stdin=watched, stdout=out.fileno(), stderr=err.fileno()
                )
        except OSError as error:
            os.close(alive)
            raise HostError(f"cannot write {error.filename}: {error.strerror}") from error
        except BaseException:
            os.close(alive)
            raise
        finally:
            os.close(watched)
        return HostServer(program, port, stdout, stderr, alive)


@dataclass
class HostServer:
    """A server that was started on this host."""

    program: "subprocess.Popen[bytes]"
    port: int
    stdout: Path
    stderr: Path
    #: Descriptor that tells the server's shell that this process lives.
    alive: int | None = None
    began_ns: int = field(default_factory=time.monotonic_ns)
    _end: JobStatus | None = None

    @property
    def address(self) -> str:
        """Its address on the loopback."""
        return f"http://{_LOOPBACK}:{self.port}"

    def end(self) -> JobStatus | None:
        """Return how it ended; None while it runs. Raises HostError."""
        status = self.program.poll()
        if status is not None and self._end is None:
            self._end = self._ended(status)
        return self._end

    def output(self) -> RawOutput:
        """Return its output so far. Raises HostError."""
        try:
            return RawOutput(self.stdout.read_bytes(), self.stderr.read_bytes(), b"")
        except OSError as error:
            raise HostError(f"cannot read {error.filename}: {error.strerror}") from error

    def stop(self) -> None:
        """End it and its children, by SIGTERM and then by SIGKILL. Raises HostError."""
        try:
            process.stop(self.program)
        finally:
            if self.alive is not None:
                os.close(self.alive)
                self.alive = None

    def _ended(self, status: int) -> JobStatus:
        ended_ns, killed = time.monotonic_ns(), status < 0
        return JobStatus(
            outcome="signaled" if killed else "exited",
            exit_status=None if killed else status,
            signal=signal.Signals(-status).value if killed else None,
            start_mono_ns=self.began_ns,
            end_mono_ns=ended_ns,
            wall_ns=ended_ns - self.began_ns,
            stdout_bytes=self.stdout.stat().st_size,
            stderr_bytes=self.stderr.stat().st_size,
            boot_id=process.boot_id(),
            epoch=0,
        )
