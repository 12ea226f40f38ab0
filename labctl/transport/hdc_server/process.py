"""The official ``hdc`` program of this host, run as a server.

``hdc -m -s IP:PORT`` runs a server in the foreground: it can be watched, and ends on SIGTERM. Each
``$TMPDIR`` can have one server: it locks the file ``.HDCServer.pid`` there, which has its process
id.
"""

import errno
import fcntl
import os
import platform
import resource
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from labctl import process
from labctl.errors import HostError, LinkError, ToolMissing
from labctl.files import host_writes
from labctl.hdc.server_client.server import HdcServer
from labctl.retry import wait_until

LOOPBACK = "127.0.0.1"
PID_FILE = ".HDCServer.pid"
#: A server needs 12 descriptors for each of its boards (at most 128), and some for itself.
_DESCRIPTORS = 2048

_START_SECONDS = 15.0
_QUESTION_SECONDS = 2.0
_INTERVAL_SECONDS = 0.1
#: Maximum starts of a server within a time; after that it is not restarted.
_STARTS = 4
_STARTS_SECONDS = 60.0
_LOG_TAIL_BYTES = 2000

_NO_HDC_NEEDED = "boards on TCP need no hdc on this host: write `link: tcp` and their address"


class ServerProcess:
    """An hdc server that this labctl runs."""

    def __init__(self, server: HdcServer, child: "subprocess.Popen[bytes]", log: Path):
        self.server = server
        self._child = child
        self._log = log

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    @property
    def is_running(self) -> bool:
        """True if the process runs."""
        return self._child.poll() is None

    def stop(self) -> None:
        """Stop this process only. Idempotent. Raises HostError if it does not end."""
        if self.is_running:
            process.stop(self._child)

    def last_words(self) -> str | None:
        """Return the end of its output."""
        with suppress(OSError):
            return self._log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace") or None
        return None


class Restarting:
    """Runs a server, and restarts it when it ends, up to a limit. Not thread-safe."""

    def __init__(self, start: Callable[[], ServerProcess]):
        self._start = start
        self._starts: deque[float] = deque(maxlen=_STARTS)
        self.current: ServerProcess | None = None

    def start(self) -> HdcServer:
        """Start a new server in place of the last; return it once it answers.

        Raises ToolMissing, HostError (it does not start, or has ended too often recently).
        """
        now = time.monotonic()
        if len(self._starts) == _STARTS and now - self._starts[0] < _STARTS_SECONDS:
            last = self.current
            raise HostError(
                f"the hdc server on this host has ended {_STARTS} times within"
                f" {_STARTS_SECONDS:g} s",
                hint="try `hdc -m` in a terminal",
                details=last.last_words() if last else None,
            )
        self._starts.append(now)
        self.stop()
        self.current = self._start()
        return self.current.server

    def stop(self) -> None:
        """Stop the server, if one runs."""
        if self.current is not None:
            self.current.stop()


def is_installed() -> bool:
    """Return True if a program ``hdc`` is on PATH; it may be for another machine type."""
    return shutil.which("hdc") is not None


def start_server(
    port: int,
    *,
    tmpdir: Path,
    log: Path,
    extra_env: Mapping[str, str],
    timeout: float = _START_SECONDS,
) -> ServerProcess:
    """Run a server on loopback; return once a server answers there, within ``timeout`` seconds.

    The caller has checked that nothing listens at the port. ``log`` gets the server's output.
    Raises ToolMissing (no hdc), HostError (not for this machine; another server uses the
    ``tmpdir``; it does not start).
    """
    _remove_stale(tmpdir / PID_FILE)
    env = {
        **os.environ,
        "OHOS_HDC_SERVER_PORT": str(port),
        "TMPDIR": str(tmpdir),
        **extra_env,
    }
    with host_writes(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        output = log.open("wb")
    with output:
        child = _run(["hdc", "-m", "-s", f"{LOOPBACK}:{port}"], env, output.fileno())
    running = ServerProcess(HdcServer(LOOPBACK, port), child, log)
    try:
        _allow_descriptors(running.pid)
        _await(running, tmpdir, timeout)
    except BaseException:
        running.stop()
        raise
    return running


def _run(argv: list[str], env: Mapping[str, str], output: int) -> "subprocess.Popen[bytes]":
    try:
        return process.start(argv, env=env, stdout=output, stderr=output)
    except HostError as error:
        path = shutil.which(argv[0])
        if path is None:
            raise ToolMissing(
                "no program hdc on this host",
                hint=f"it is part of the OpenHarmony SDK's toolchains; {_NO_HDC_NEEDED}",
                program=argv[0],
            ) from error
        # Its loader is missing, or its format is unknown: both mean a program for another machine
        # type.
        if isinstance(error, ToolMissing) or _errno(error) == errno.ENOEXEC:
            raise HostError(
                f"{path} is not for this machine ({platform.machine()})",
                hint=f"the official hdc for Linux is for x86_64; {_NO_HDC_NEEDED}",
            ) from error
        raise


def _errno(error: HostError) -> int | None:
    return error.__cause__.errno if isinstance(error.__cause__, OSError) else None


def _await(running: ServerProcess, tmpdir: Path, timeout: float) -> None:
    server = running.server

    def settled() -> bool:
        with suppress(LinkError):
            return bool(server.version(timeout=_QUESTION_SECONDS))
        return not running.is_running

    came = wait_until(settled, timeout=timeout, interval=_INTERVAL_SECONDS)
    if came and running.is_running:
        return
    with suppress(LinkError):  # another process was faster: its server serves as well
        server.version(timeout=_QUESTION_SECONDS)
        return
    holder = _holder(tmpdir / PID_FILE)
    if holder not in (None, running.pid):
        raise HostError(
            f"another hdc server (process {holder}) runs with {tmpdir}, and not at {LOOPBACK}:"
            f"{server.port}; there is one for each TMPDIR",
            hint="name its port (`server:`), end it with `hdc kill`, or use `private: true`",
            details=running.last_words(),
        )
    how = "does not answer" if running.is_running else "has ended at once"
    raise HostError(
        f"`hdc -m -s {LOOPBACK}:{server.port}` {how}",
        hint="try it in a terminal",
        details=running.last_words(),
    )


def end_server(address: str, *, timeout: float) -> None:
    """Stop the server at ``HOST:PORT``, even if labctl did not start it.

    Raises HostError, ToolMissing.
    """
    done = process.run(["hdc", "-s", address, "kill"], timeout=timeout)
    if done.exit_status != 0:
        raise HostError(f"hdc kill ended with status {done.exit_status}", details=done.tail())


def _allow_descriptors(pid: int) -> None:
    """Raise a server's limit of open files to the need of its boards, if this host allows it."""
    with suppress(ProcessLookupError):  # it has already ended: reported elsewhere
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and soft < _DESCRIPTORS:
            wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (wanted, hard))


def _remove_stale(path: Path) -> None:
    """Remove a pid file that no server locks: it would prevent a new server from starting."""
    try:
        file = path.open("r+", encoding="utf-8")
    except FileNotFoundError:
        return
    except OSError as error:
        raise HostError(
            f"cannot use {path}: {error.strerror}; another user's hdc server may have left it",
            hint="set TMPDIR to a folder of your own, or use `private: true`",
        ) from error
    with file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # a server locks it, or is about to
            return
        if _holder(path) is None:
            with suppress(FileNotFoundError):
                path.unlink()


def _holder(path: Path) -> int | None:
    """Return the hdc server named in a pid file, if it runs."""
    with suppress(OSError, ValueError):
        pid = int(path.read_text(encoding="utf-8"))
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if any(word.rpartition(b"/")[2] == b"hdc" for word in words):
            return pid
    return None
