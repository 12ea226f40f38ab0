"""The controller's end of ``watchdog.sh``, which holds a build on a host and cleans up after it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from labctl.build.remote.host import PROLOGUE, SCRIPTS
from labctl.errors import HostError, LinkError, ToolMissing
from labctl.transport.ssh.link import SshLink
from labctl.transport.ssh.program import SshProgram

#: A host ends the build and cleans up after this time (s) without a message from labctl.
SILENCE_SECONDS = 120
#: Maximum time (s) of one build there, including waits for other builds.
BUILD_SECONDS = 10 * 3600.0
#: Time (s) to kill a build's processes and remove its tree.
CLEAR_SECONDS = 120.0

_LINE_BYTES = 4096


class Watchdog:
    """A build on a host, held by its watchdog."""

    def __init__(self, link: SshLink, program: SshProgram):
        self._link = link
        self._program = program
        self._buffer = b""
        self._orders = threading.Lock()

    def beat(self) -> None:
        """Send a sign of life."""
        with suppress(LinkError, HostError):  # the next wait reports it
            self._program.send(b".\n")

    def check(self) -> None:
        """Raise HostError unless the host still holds the build; otherwise the programs ended."""
        self._order("here", "here")

    def end(self, job: str) -> None:
        """End a job and all processes that it started, and wait for their end. Raises HostError."""
        self._order(f"end {job}", f"ended {job}")

    def leave(self) -> None:
        """End the whole build, remove it, and wait until that is done. Raises HostError."""
        self._program.limit(CLEAR_SECONDS)
        self._program.end_input()
        self.expect("clean")

    def _order(self, order: str, answer: str) -> None:
        with self._orders:
            self._program.limit(CLEAR_SECONDS)
            self._program.send(f"{order}\n".encode())
            self.expect(answer)

    def expect(self, answer: str, *, on_other: Callable[[str], None] | None = None) -> None:
        """Wait for an answer; other lines go to ``on_other``, or are an error. Raises HostError."""
        while (line := self._line()) != answer:
            if line is None or on_other is None:
                raise HostError(
                    f"{self._link.name} has let go of the build",
                    details=self._program.errors or line,
                )
            on_other(line)

    def _line(self) -> str | None:
        while b"\n" not in self._buffer:
            piece = self._program.read()
            if not piece:
                self._program.finish()
                return None
            self._buffer += piece
            if len(self._buffer) > _LINE_BYTES:
                raise HostError(f"{self._link.name} answers without end")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace")


@contextmanager
def kept(
    link: SshLink,
    workdir: str,
    name: str,
    *,
    silence_seconds: int,
    keep_tree: bool,
    on_busy: Callable[[], None],
) -> Iterator[Watchdog]:
    """Hold a build's folder on a host; at the end nothing runs there, and the build is removed.

    Raises HostError, ToolMissing.
    """
    where = link.name

    def judge(answer: str) -> None:
        word, _, rest = answer.partition(" ")
        if word == "busy":
            on_busy()
        elif word == "missing":
            raise ToolMissing(
                f"not installed on {where}: {rest}",
                hint="Debian, Ubuntu: apt-get install coreutils util-linux tar gzip grep",
            )
        elif word == "foreign":
            raise HostError(
                f"{where}: {workdir} belongs to another user, or is a link",
                hint="choose another workdir for it in devices.yaml",
            )
        else:
            raise HostError(f"{where} sent an unexpected answer", details=answer)

    script = PROLOGUE + (SCRIPTS / "watchdog.sh").read_text(encoding="utf-8")
    words = (workdir, name, str(silence_seconds), "1" if keep_tree else "0")
    with SshProgram(link, script, *words, timeout=BUILD_SECONDS) as program:
        watchdog = Watchdog(link, program)
        with link.pulsing(watchdog.beat):
            watchdog.expect("ready", on_other=judge)
            try:
                yield watchdog
            except BaseException:  # on Ctrl-C too; when the link is gone, it does so by itself
                with suppress(LinkError, HostError):
                    watchdog.leave()
                raise
            watchdog.leave()
