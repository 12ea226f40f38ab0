"""The folders of one build on a host, and programs there."""

import hashlib
import itertools
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from posixpath import join

from labctl.build.remote.host import PROLOGUE, SCRIPTS, refused, run_script
from labctl.build.remote.watchdog import Watchdog
from labctl.build.workspace import Folders, Program, Workspace, too_large
from labctl.errors import (
    CommandTimeout,
    HostError,
    HostTimeout,
    IntegrityError,
    ToolMissing,
    printable,
)
from labctl.files import host_writes, publish, scratch
from labctl.process import TAIL_LINES, Completed
from labctl.transport.ssh.link import SshLink
from labctl.transport.ssh.program import PIECE_BYTES, SshProgram

FILE_SECONDS = 60.0
FETCH_SECONDS = 1800.0
#: Maximum output of a build, and maximum size of a built file.
LOG_BYTES = 1 << 28
BUILT_BYTES = 4 << 30
#: A longer line is split.
LINE_BYTES = 1 << 14

_NOT_THERE = 44
_READ = f'[ -e "$1" ] || exit {_NOT_THERE}; cat <"$1"'
_WRITE = 'mkdir -p "${1%/*}" && cat >"$1.part" && mv -f "$1.part" "$1"'
_CLEAR = 'rm -rf "$1" && mkdir "$1"'
_EXISTS = f'[ -e "$1" ] || exit {_NOT_THERE}'
_FETCH = 'sha256sum <"$1" && cat <"$1"'


class RemoteWorkspace(Workspace):
    """A build's folders on a host, held by its watchdog."""

    def __init__(
        self, link: SshLink, watchdog: Watchdog, folder: str, folders: Folders, log_bytes: int
    ):
        self.folders = folders
        self._log_bytes = log_bytes
        self._link = link
        self._watchdog = watchdog
        self._folder = folder
        self._jobs = map(str, itertools.count(1))
        self._job_script = PROLOGUE + (SCRIPTS / "job.sh").read_text(encoding="utf-8")

    def run(self, program: Program) -> Completed:
        """Run it there, in its own session."""
        began = time.monotonic_ns()
        job = next(self._jobs)
        variables = [f"{name}={value}" for name, value in program.env.items()]
        words = program.words
        given = (self._folder, job, program.cwd or self.folders.tree, str(len(variables)))
        output = _Output(self._link.name, program.log, program.on_line, self._log_bytes)
        with SshProgram(
            self._link, self._job_script, *given, *variables, *words, timeout=program.timeout
        ) as running:
            try:
                while piece := running.read():
                    output.take(piece)
                status = running.finish()
            except CommandTimeout as error:
                self._watchdog.end(job)
                raise HostTimeout(
                    f"{words[0]} on {self._link.name} did not end within "
                    f"{program.timeout:g} s and was stopped",
                    details=output.tail or None,
                ) from error
        output.end()
        if status != 0:
            self._watchdog.check()
        if status == 127 and f"labctl: no program {words[0]}" in running.errors:
            raise ToolMissing(f"not installed on {self._link.name}: {words[0]}")
        if status == 125 and running.errors:
            raise HostError(f"{self._link.name} cannot start {words[0]}", details=running.errors)
        return Completed(
            tuple(words), status, output.tail.encode(), b"", time.monotonic_ns() - began
        )

    def read(self, name: str) -> str | None:
        """Return the text of a file there."""
        answer = run_script(self._link, _READ, self._path(name), timeout=FILE_SECONDS)
        if answer.exit_status == _NOT_THERE:
            return None
        if answer.exit_status != 0:
            raise refused(self._link, f"read {name}", answer)
        try:
            return answer.output.decode()
        except UnicodeDecodeError as error:
            raise HostError(f"{name} on {self._link.name} is no text") from error

    def write(self, name: str, text: str) -> None:
        """Write a file there."""
        self._do(_WRITE, name, "write", text.encode())

    def clear(self) -> None:
        """Empty the tree there."""
        self._do(_CLEAR, self.folders.tree, "empty")

    def exists(self, path: str) -> bool:
        """Return True if it exists there."""
        answer = run_script(self._link, _EXISTS, self._path(path), timeout=FILE_SECONDS)
        if answer.exit_status not in (0, _NOT_THERE):
            raise refused(self._link, f"look for {path}", answer)
        return answer.exit_status == 0

    def fetch(self, path: str, to: Path, *, most: int | None = None) -> None:
        """Copy the file to this host; both sides compute its hash."""
        with scratch(to.parent, "fetch-") as folder:
            part = folder / to.name
            with host_writes(part), part.open("wb") as file:
                copy = _Copy(self._link.name, path, file.write, most)
                answer = run_script(
                    self._link, _FETCH, self._path(path), timeout=FETCH_SECONDS, take=copy.take
                )
            if answer.exit_status != 0:
                raise refused(self._link, f"read {path}", answer)
            copy.check()
            publish(part, to)

    def _path(self, name: str) -> str:
        return join(self.folders.tree, name)

    def _do(self, script: str, name: str, verb: str, content: bytes = b"") -> None:
        path = self._path(name)
        blocks = (content,) if content else ()
        answer = run_script(self._link, script, path, timeout=FILE_SECONDS, input_blocks=blocks)
        if answer.exit_status != 0:
            raise refused(self._link, f"{verb} {path}", answer)


class _Output:
    """Output of a build program: made safe for terminals, logged and reported line by line."""

    def __init__(self, host: str, log: Path, on_line: Callable[[str], None], log_bytes: int):
        self._host = host
        self._log = log
        self._on_line = on_line
        self._rest = b""
        self._room = log_bytes
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)

    @property
    def tail(self) -> str:
        """Last lines of the output."""
        return "\n".join(self._tail)

    def take(self, piece: bytes) -> None:
        """Add a piece. Raises HostError if the output is too long, or the log cannot be written."""
        self._room -= len(piece)
        if self._room < 0:
            raise HostError(f"{self._host} prints without end")
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > LINE_BYTES:
            lines.append(self._rest)
            self._rest = b""
        self._note(lines)

    def end(self) -> None:
        """End the output: report the last line."""
        if self._rest:
            self._note([self._rest])
            self._rest = b""

    def _note(self, raw: list[bytes]) -> None:
        lines = [printable(line.decode(errors="replace")) for line in raw]
        with host_writes(self._log), self._log.open("a", encoding="utf-8") as log:
            log.writelines(f"{line}\n" for line in lines)
        for line in lines:
            self._tail.append(line)
            self._on_line(line)


class _Copy:
    """A file during its transfer to this host: first its hash as one line, then its bytes."""

    def __init__(self, host: str, name: str, write: Callable[[bytes], object], most: int | None):
        self._host = host
        self._most = most
        self._name = name
        self._write = write
        self._head: bytes | None = b""
        self._claimed = ""
        self._digest = hashlib.sha256()
        self._size = 0

    def take(self, piece: bytes) -> None:
        """Add a piece. Raises HostError."""
        if self._head is not None:
            head, mark, piece = (self._head + piece).partition(b"\n")
            if not mark:
                self._head = head
                if len(head) > PIECE_BYTES:
                    raise HostError(f"{self._host} gives no hash of {self._name}")
                return
            self._head = None
            self._claimed = head.decode(errors="replace").partition(" ")[0]
        self._size += len(piece)
        if self._most is not None and self._size > self._most:
            raise too_large(self._name, self._most)
        if self._size > BUILT_BYTES:
            raise HostError(f"{self._host} sends {self._name} without end")
        self._digest.update(piece)
        self._write(piece)

    def check(self) -> None:
        """Raise IntegrityError unless the received bytes have the host's hash."""
        if self._claimed != self._digest.hexdigest():
            raise IntegrityError(
                f"{self._name} of {self._host} arrived damaged",
                hint="build again; if it stays so, check memory and disk of that host",
            )
