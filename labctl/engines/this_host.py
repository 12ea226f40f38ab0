"""Servers on this host, for :mod:`labctl.engines.server_lifecycle`."""

import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from labctl import process
from labctl.engines.base import RawOutput
from labctl.errors import HostError
from labctl.records import JobStatus

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class ThisHost:
    """Starts servers here; what they print is kept in ``folder``."""

    folder: Path

    def free_port(self) -> int:
        """Return a port on which nobody listens now. Raises HostError."""
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
        try:
            with stdout.open("wb") as out, stderr.open("wb") as err:
                program = process.start(argv, stdout=out.fileno(), stderr=err.fileno())
        except OSError as error:
            raise HostError(f"cannot write {error.filename}: {error.strerror}") from error
        return HostServer(program, port, stdout, stderr)


@dataclass
class HostServer:
    """A server that was started on this host."""

    program: "subprocess.Popen[bytes]"
    port: int
    stdout: Path
    stderr: Path
    began_ns: int = field(default_factory=time.monotonic_ns)
    _end: JobStatus | None = None

    @property
    def address(self) -> str:
        """Its address on the loopback."""
        return f"http://{_LOOPBACK}:{self.port}"

    def end(self) -> JobStatus | None:
        """Return its end; None while it runs."""
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
        process.stop(self.program)

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
            boot_id=_BOOT_ID.read_text().strip(),
            epoch=0,
        )
