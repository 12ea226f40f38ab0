"""The single gateway for programs on this host. Never a shell; always a time-out.

The present folder may be a checkout of strangers. Nothing of it acts in a program: none starts
there unless the caller names it, and no relative folder is searched for programs or modules.
"""

import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from labctl import interrupts
from labctl.errors import HostError, HostTimeout, ToolMissing, lacking
from labctl.files import host_writes
from labctl.folders import present_folder, state_dir, work_trees
from labctl.progress import tell_command
from labctl.removal import remove_tree
from labctl.text_types import forget_relative

#: Lines of output kept for error messages.
TAIL_LINES = 40
#: The beginning of a program, with the name of its loader or interpreter.
_HEAD_BYTES = 4096
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
    """Return the start time of a process of this host, in clock ticks since the host's start.

    None if there is no such process, or only its exit status is left. Process id and start time
    identify a process. Fields 3 and 22 of /proc/PID/stat: proc_pid_stat(5).
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
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise HostError(f"cannot read {path}: {error.strerror}") from error


def without_password(text: str) -> str:
    """Remove tokens and passwords from the addresses in a text, so that it may be shown and kept.

    The user of https can be a token and is removed, too; other schemes need the user.
    """
    text = re.sub(r"(https?://)[^/?#\s]*@", r"\1", text, flags=re.IGNORECASE)
    return re.sub(r"(\w://[^/?#\s:@]*):[^/?#\s]*@", r"\1@", text)


def empty_folder() -> Path:
    """Return labctl's own empty folder, in which programs start. Raises HostError."""
    folder = state_dir() / "empty"
    with host_writes(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise HostError(
                f"{folder} was made by somebody else: no program can start there",
                hint="remove it, or set LABCTL_STATE to a folder of your own",
            )
        if found.st_mode & 0o077:
            folder.chmod(0o700)
        for left in folder.iterdir():  # by a program: a core file, podman's `oom`
            if left.is_dir():
                remove_tree(left)
            else:
                left.unlink(missing_ok=True)
    return folder


@contextmanager
def elsewhere() -> Iterator[None]:
    """Be in the empty folder while a library starts a program. Not for several threads."""
    here = os.open(".", os.O_PATH | os.O_DIRECTORY)  # also of a folder that was removed
    try:
        os.chdir(empty_folder())
        try:
            yield
        finally:
            os.fchdir(here)
    finally:
        os.close(here)


def _environment(words: Sequence[str], env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program; labctl's own Python imports nothing from here.

    labctl itself may have been imported from here: its folder stays.
    """
    found = dict(env)
    forget_relative(found)
    here = present_folder()
    if words[0] == sys.executable and "PYTHONPATH" in found and here is not None:
        trees = [tree.resolve() for tree in work_trees(here)]
        own = Path(__file__).resolve().parents[1]
        kept = []
        for one in found.pop("PYTHONPATH").split(os.pathsep):
            path = Path(one).resolve()
            if path == own or not (path == here or any(map(path.is_relative_to, trees))):
                kept.append(one)
        if kept:
            found["PYTHONPATH"] = os.pathsep.join(kept)
    return found


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

    It starts in ``cwd``, by default in the empty folder: a relative ``Path`` among the words means
    the present folder, and is made absolute.
    ``keep_open`` are file descriptors that it and its children inherit: a lock held by one of them
    stays held until the last of them has ended, also when labctl is killed before.

    Raises ToolMissing when it, its loader or its interpreter is not there,
    HostError when it cannot be started.
    """
    words = [
        str(word.absolute()) if cwd is None and isinstance(word, Path) else os.fspath(word)
        for word in argv
    ]
    tell_command(lambda: shlex.join(without_password(word) for word in words))
    folder = empty_folder() if cwd is None else cwd
    try:
        return subprocess.Popen(
            words,
            cwd=folder,
            env=_environment(words, os.environ if env is None else env),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            pass_fds=tuple(keep_open),
        )
    except (FileNotFoundError, PermissionError) as error:
        if not folder.is_dir():
            raise HostError(f"cannot start {words[0]}: no directory {folder}") from error
        # A folder on PATH that this user may not enter gives "permission denied", too.
        searched = "/" not in words[0] and error.filename == words[0]
        if isinstance(error, PermissionError) and not searched:
            raise HostError(f"cannot start {words[0]}: {error.strerror}") from error
        if isinstance(error, FileNotFoundError) and (lack := _lack_of(words[0], folder)):
            raise lack from error
        raise ToolMissing(
            f"program not found on this host: {words[0]}",
            hint="`labctl doctor` lists what is missing and how to get it",
            program=words[0],
        ) from error
    except OSError as error:
        raise HostError(f"cannot start {words[0]}: {error.strerror}") from error


def _lack_of(program: str, folder: Path) -> ToolMissing | None:
    """Return the error for a program that is there, but not its loader or interpreter."""
    found = shutil.which(str(folder / program) if "/" in program else program)
    if found is None:
        return None
    head = b""
    with suppress(OSError), Path(found).open("rb") as file:  # one may execute what one cannot read
        head = file.read(_HEAD_BYTES)
    script = re.match(rb"#![ \t]*([^ \t\n]+)", head)
    name = script or re.search(rb"(?<![!-~])(/[!-~]{1,200}/(?:ld|linker)[!-~]{1,100})\0", head)
    if name is None:
        return None
    kind = "interpreter" if script else "loader"
    text = name[1].decode(errors="replace")
    message = f"cannot start {program}: its {kind} {text} is not there"
    known = lacking(message)
    return ToolMissing(message, hint=known.hint if known else None, program=program)


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
    keep_open: Sequence[int] = (),
) -> Completed:
    """Run a program to its end and return its output, whatever its exit status.

    ``keep_open`` as in :func:`start`. Raises ToolMissing, HostTimeout (its process group is
    killed), HostError.
    """
    began = time.monotonic_ns()
    stdin = subprocess.DEVNULL if input_bytes is None else subprocess.PIPE
    process = start(argv, cwd=cwd, env=env, stdin=stdin, keep_open=keep_open)
    try:
        with interrupts.waiting():
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
        with _ended_after(process, timeout) as (output, expired):
            for raw in iter(partial(_next_line, output), b""):
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
    with _ended_after(process, timeout) as (output, expired):
        while piece := _next_piece(output):
            tail = (tail + piece)[-PIECE_BYTES:]
            write(piece)
    if expired.is_set():
        raise _timed_out(argv, timeout, tail)
    return process.returncode


def _next_line(stream: IO[bytes]) -> bytes:
    with interrupts.waiting():
        return stream.readline(PIECE_BYTES)


def _next_piece(stream: IO[bytes]) -> bytes:
    with interrupts.waiting():
        return os.read(stream.fileno(), PIECE_BYTES)


@contextmanager
def _ended_after(
    process: "subprocess.Popen[bytes]", timeout: float
) -> Iterator[tuple[IO[bytes], threading.Event]]:
    """While its output is read: a program is stopped after ``timeout`` s, and on any error.

    The event is set when the time was over. After the block the program has ended.
    """
    expired, output = threading.Event(), process.stdout
    assert output is not None  # start() gives it a pipe

    def expire() -> None:
        expired.set()
        stop(process, grace=0.5)

    timer = threading.Timer(timeout, expire)
    timer.start()
    try:
        yield output, expired
        with interrupts.waiting():
            process.wait()
    except BaseException:
        stop(process, grace=0.5)
        raise
    finally:
        timer.cancel()
        timer.join()
        output.close()


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
