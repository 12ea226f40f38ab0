"""The single gateway for programs on this host. Never a shell; always a time-out."""

import os
import re
import shlex
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from labctl.errors import HostError, HostTimeout, ToolMissing
from labctl.progress import tell_command

#: Lines of output kept for error messages.
TAIL_LINES = 40
#: The largest piece of output taken at once.
PIECE_BYTES = 65_536
#: Grace between SIGTERM and SIGKILL of a process group.
TERMINATE_SECONDS = 5.0


@dataclass(frozen=True)
class Completed:
    """A finished program: its whole output and how long it took."""

    argv: tuple[str, ...]
    exit_status: int  # negative: killed by that signal
    stdout: bytes
    stderr: bytes
    duration_ns: int

    @property
    def text(self) -> str:
        """Standard output as text; undecodable bytes are replaced."""
        return self.stdout.decode(errors="replace")

    def tail(self, lines: int = TAIL_LINES) -> str:
        """Return the last lines of both streams, for error messages."""
        both = (self.stdout + self.stderr).decode(errors="replace").splitlines()
        return "\n".join(both[-lines:])


def start_time(pid: int) -> int | None:
    """Return when a process of this host started, in clock ticks since the host did.

    None if there is none, or only its exit status is left. Its id and this time identify it. Fields
    3 and 22 of /proc/PID/stat: proc_pid_stat(5).
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def boot_id() -> str:
    """Return the kernel's id of this host's boot: each start has another one.

    A board's shell tells it by :data:`labctl.virtual.marks.BOOT_ID`. Raises HostError.
    """
    path = Path("/proc/sys/kernel/random/boot_id")
    try:
        return path.read_text().strip()
    except OSError as error:
        raise HostError(f"cannot read {path}: {error.strerror}") from error


def without_password(text: str) -> str:
    """Remove tokens and passwords from the addresses in a text, so that it may be shown and kept.

    The user of https may be a token; other schemes need theirs.
    """
    text = re.sub(r"(https?://)[^/?#\s]*@", r"\1", text, flags=re.IGNORECASE)
    return re.sub(r"(\w://[^/?#\s:@]*):[^/?#\s]*@", r"\1@", text)


def start(
    argv: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int | None = subprocess.DEVNULL,
    stdout: int | None = subprocess.PIPE,
    stderr: int | None = subprocess.PIPE,
    keep_open: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a program as the leader of its own session. The caller ends it with :func:`stop`.

    ``keep_open`` are file descriptors that it and its children inherit: a lock held by one of them
    stays held until the last of them has ended, also when labctl is killed before.

    Raises ToolMissing when it is not installed, HostError when it cannot be started.
    """
    words = [os.fspath(word) for word in argv]
    tell_command(lambda: shlex.join(without_password(word) for word in words))
    try:
        return subprocess.Popen(
            words,
            cwd=cwd,
            env=None if env is None else dict(env),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            pass_fds=tuple(keep_open),
        )
    except (FileNotFoundError, PermissionError) as error:
        if cwd is not None and not cwd.is_dir():
            raise HostError(f"cannot start {words[0]}: no directory {cwd}") from error
        # A folder on PATH that this user may not enter gives "permission denied", too.
        searched = "/" not in words[0] and error.filename == words[0]
        if isinstance(error, PermissionError) and not searched:
            raise HostError(f"cannot start {words[0]}: {error.strerror}") from error
        raise ToolMissing(
            f"program not found on this host: {words[0]}",
            hint="`labctl doctor` lists what is missing and how to get it",
            program=words[0],
        ) from error
    except OSError as error:
        raise HostError(f"cannot start {words[0]}: {error.strerror}") from error


def stop(process: subprocess.Popen[bytes], *, grace: float = TERMINATE_SECONDS) -> int:
    """End a started program and everything in its session's process group; its exit status."""
    try:
        for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, TERMINATE_SECONDS)):
            _signal_group(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                return process.wait(timeout=seconds)
    finally:
        _signal_group(process.pid, signal.SIGKILL)  # children that outlived their leader
    raise HostError(f"process {process.pid} does not end, even on SIGKILL")


def _signal_group(leader: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    timeout: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    input_bytes: bytes | None = None,
) -> Completed:
    """Run a program to its end and return its output, whatever its exit status.

    Raises ToolMissing, HostTimeout (its process group is killed), HostError.
    """
    began = time.monotonic_ns()
    process = start(
        argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL if input_bytes is None else subprocess.PIPE
    )
    try:
        stdout, stderr = process.communicate(input_bytes, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        stop(process, grace=0.5)
        raise _timed_out(argv, timeout, (error.stdout or b"") + (error.stderr or b"")) from error
    except BaseException:
        stop(process, grace=0.5)
        raise
    finally:
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                pipe.close()
    return Completed(
        tuple(os.fspath(word) for word in argv),
        process.returncode,
        stdout,
        stderr,
        time.monotonic_ns() - began,
    )


def run_streaming(
    argv: Sequence[str | os.PathLike[str]],
    *,
    timeout: float,
    on_line: Callable[[str], None],
    log: Path | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    keep_open: Sequence[int] = (),
) -> Completed:
    """Run a long program; both streams merged go line by line to ``on_line`` and into ``log``.

    A line that is longer than PIECE_BYTES comes in pieces. ``stdout`` of the result holds the last
    lines only (the log holds all). ``keep_open`` as in :func:`start`. Raises ToolMissing,
    HostTimeout, HostError (the log cannot be written, ...).
    """
    began = time.monotonic_ns()
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    with _appending(log) as note:
        process = start(argv, cwd=cwd, env=env, stderr=subprocess.STDOUT, keep_open=keep_open)
        with _ended_after(process, timeout) as expired:
            assert process.stdout is not None
            read = partial(process.stdout.readline, PIECE_BYTES)
            for raw in iter(read, b""):
                line = raw.decode(errors="replace").rstrip("\n")
                tail.append(line)
                note(raw)
                on_line(line)
    text = "\n".join(tail)
    if expired.is_set():
        raise _timed_out(argv, timeout, text.encode())
    return Completed(
        tuple(os.fspath(word) for word in argv),
        process.returncode,
        text.encode(),
        b"",
        time.monotonic_ns() - began,
    )


def run_live(
    argv: Sequence[str | os.PathLike[str]],
    *,
    timeout: float,
    write: Callable[[bytes], object],
    cwd: Path | None = None,
) -> int:
    """Run a program; both streams merged go to ``write`` as they come, as bytes; its exit status.

    When ``write`` raises, or Ctrl-C comes, the program's process group is killed.
    Raises ToolMissing, HostTimeout, HostError.
    """
    process = start(argv, cwd=cwd, stderr=subprocess.STDOUT)
    tail = b""
    with _ended_after(process, timeout) as expired:
        assert process.stdout is not None
        while piece := os.read(process.stdout.fileno(), PIECE_BYTES):
            tail = (tail + piece)[-PIECE_BYTES:]
            write(piece)
    if expired.is_set():
        raise _timed_out(argv, timeout, tail)
    return process.returncode


@contextmanager
def _ended_after(process: "subprocess.Popen[bytes]", timeout: float) -> Iterator[threading.Event]:
    """While its output is read: a program is stopped after ``timeout`` s, and on any error.

    The event is set when the time was over. After the block the program has ended.
    """
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        stop(process, grace=0.5)

    timer = threading.Timer(timeout, expire)
    timer.start()
    try:
        yield expired
        process.wait()
    except BaseException:
        stop(process, grace=0.5)
        raise
    finally:
        timer.cancel()
        timer.join()
        assert process.stdout is not None
        process.stdout.close()


@contextmanager
def _appending(log: Path | None) -> Iterator[Callable[[bytes], object]]:
    """Yield a function that appends to the log, if any. Raises HostError, also in the caller's
    block.
    """
    if log is None:
        yield lambda _raw: None
        return

    def refused(error: OSError) -> HostError:
        return HostError(
            f"cannot write {log}: {error.strerror or error}", hint="free some space on this host"
        )

    def write(raw: bytes) -> None:
        try:
            file.write(raw)
            file.flush()
        except OSError as error:
            raise refused(error) from error

    try:
        file = log.open("ab")
    except OSError as error:
        raise refused(error) from error
    try:
        yield write
    finally:
        with suppress(OSError):  # only what `write` has refused already can be left
            file.close()


def _timed_out(
    argv: Sequence[str | os.PathLike[str]], timeout: float, output: bytes
) -> HostTimeout:
    return HostTimeout(
        f"{Path(argv[0]).name} did not end within {timeout:g} s and was stopped",
        details=output.decode(errors="replace")[-2000:] or None,
    )
