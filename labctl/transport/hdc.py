"""A board over hdc: real exit statuses, proven transfers, a new link when one died."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path

from labctl.errors import (
    BoardError,
    CommandTimeout,
    ConfigError,
    DeviceLost,
    LabctlError,
    LinkError,
)
from labctl.hdc import HostLink, receive_file, send_file, shell
from labctl.transport.base import (
    CommandResult,
    Progress,
    Transport,
    brief,
    check_command,
    remote_words,
)
from labctl.transport.digests import BoardHash, Digest, find_board_hash
from labctl.transport.local_files import appearing, open_source
from labctl.transport.paths import check_remote_path
from labctl.transport.sentinel import Framed

#: hdc's command line takes 61,439 bytes; the same bound here keeps every link equal.
MAX_COMMAND_BYTES = 60_000
#: A command that prints more is stopped: output is held in memory. Larger things are pulled.
MAX_OUTPUT_BYTES = 64 << 20
#: Patience for small questions of our own (stopping a command, syntax check, liveness).
_ASIDE_SECONDS = 5.0


class HdcTransport(Transport):
    """A board over hdc, straight to its hdcd or through an hdc server.

    ``open_link`` is called by the first operation, and again after the link was lost; the operation
    under way when it is lost raises. ``board_hash`` is how files are hashed on the board; it is
    found there at first need, and the agent's own can be set.
    """

    def __init__(self, label: str, open_link: Callable[[], HostLink]):
        self.label = label
        self.board_hash: BoardHash | None = None
        self._open_link = open_link
        self._link: HostLink | None = None
        self._opening = threading.Lock()
        self._refusal: LinkError | None = None
        self._refused = 0.0  # when, on the monotonic clock (s)

    def run(self, command: str, *, timeout: float) -> CommandResult:
        """Run a shell command; see :class:`Transport`. On a time-out its whole tree is killed."""
        framed = Framed.around(command)
        if len(check_command(framed.script)) > MAX_COMMAND_BYTES:
            raise ConfigError(
                f"a command of {len(command)} characters is too long for hdc",
                hint="push it as a script and run that",
            )
        link = self._connected()
        began = time.monotonic_ns()
        output = bytearray()
        try:
            # The channel is closed before anything else is asked: its backlog blocks the link.
            with closing(shell(link, framed.script, timeout=timeout)) as pieces:
                _collect(pieces, output, command)
        except CommandTimeout as error:
            stopped = self._kill(link, framed, bytes(output))
            raise CommandTimeout(
                f"{self.label}: no end within {timeout:g} s of: {brief(command)}",
                hint=None if stopped else "it may still run on the board",
                details=_tail(framed.printed(bytes(output))) or error.message,
            ) from error
        except LinkError:
            raise
        except BaseException:
            self._kill(link, framed, bytes(output))  # nobody waits for it any more
            raise
        duration = time.monotonic_ns() - began
        result = framed.result(bytes(output))
        if result is None:
            raise self._without_status(link, framed, bytes(output))
        return CommandResult(command, *result, duration)

    def push(
        self, local: Path, remote: str, *, timeout: float, progress: Progress | None = None
    ) -> None:
        """Send a file and prove it by its hash on the board, or by reading it back."""
        check_remote_path(remote)
        board_hash = self._board_hash(timeout)
        link = self._connected()
        digest = Digest(board_hash.algorithm)

        def sent(chunk: memoryview) -> None:
            digest.update(chunk)
            if progress:
                progress(digest.size_bytes)

        with open_source(local) as source:
            send_file(link, source, remote, timeout=timeout, on_chunk=sent)
        self._digest_on_board(board_hash, remote, digest, timeout).require(
            digest, f"{local} pushed to {remote}"
        )

    def pull(self, remote: str, local: Path, *, timeout: float) -> None:
        """Receive a file; ``local`` appears only once its hash on the board agrees."""
        check_remote_path(remote)
        board_hash = self._board_hash(timeout)
        link = self._connected()
        digest = Digest(board_hash.algorithm)
        with appearing(local) as file:

            def write(chunk: bytes | memoryview) -> None:
                digest.update(chunk)
                file.write(chunk)

            receive_file(link, remote, timeout=timeout, write=write)
            self._digest_on_board(board_hash, remote, digest, timeout).require(
                digest, f"{remote} pulled to {local}"
            )

    def forward(self, remote_port: int) -> AbstractContextManager[int]:
        """Not carried over hdc yet. Raises ConfigError."""
        raise ConfigError(
            f"{self.label}: ports of the board (here {remote_port}) cannot be forwarded over hdc",
            hint="run the client on the board, or reach the port over the board's network",
        )

    def is_alive(self) -> bool:
        """True when the board runs a command now."""
        try:
            return self.run(":", timeout=_ASIDE_SECONDS).exit_status == 0
        except (LinkError, BoardError):
            return False

    def close(self) -> None:
        """End the link, if there is one."""
        with self._opening:
            link, self._link = self._link, None
        if link is not None:
            link.close()

    def _connected(self) -> HostLink:
        asked = time.monotonic()
        with self._opening:
            if self._link is not None and self._link.failure is not None:
                self._link.close()
                self._link = None
            if self._link is None:
                # Whoever waited for another's attempt has its answer: not a time-out for each.
                if self._refusal is not None and self._refused >= asked:
                    raise self._refusal.again()
                self._link = self._open()
            return self._link

    def _open(self) -> HostLink:
        try:
            return self._open_link()
        except LinkError as error:
            self._refusal, self._refused = error, time.monotonic()
            raise

    def _kill(self, link: HostLink, framed: Framed, output: bytes) -> bool:
        """Kill a command's whole tree: its shell leads a process group. False if unsure."""
        pid = framed.process_id(output)
        # 0 and 1 would mean our own group and every process there is.
        if pid is None or pid <= 1 or link.failure is not None:
            return False
        try:
            reply = b"".join(
                shell(link, f"kill -9 -{pid} 2>/dev/null; echo done", timeout=_ASIDE_SECONDS)
            )
        except (LinkError, BoardError):
            return False
        return reply == b"done\n"

    def _without_status(self, link: HostLink, framed: Framed, output: bytes) -> LabctlError:
        """Why a command's channel ended in good order, but without a status."""
        said = _tail(framed.printed(output))
        check = "sh -n -c " + remote_words(framed.command) + " >/dev/null 2>&1 || echo wrong"
        with suppress(LinkError, BoardError):
            if b"".join(shell(link, check, timeout=_ASIDE_SECONDS)) == b"wrong\n":
                return ConfigError(
                    f"the board's shell does not understand: {brief(framed.command)}", details=said
                )
        return DeviceLost(
            f"{self.label}: no exit status came for: {brief(framed.command)}",
            hint="its shell was killed, or the board restarts",
            details=said,
        )

    def _board_hash(self, timeout: float) -> BoardHash:
        if self.board_hash is None:
            self.board_hash = find_board_hash(self, timeout)
        return self.board_hash

    def _digest_on_board(
        self, board_hash: BoardHash, remote: str, expected: Digest, timeout: float
    ) -> Digest:
        if board_hash.command is not None:
            return board_hash.ask(self, remote, expected.size_bytes, timeout)
        # No program on the board can hash: the bytes come back and are compared here.
        again = Digest(board_hash.algorithm)
        receive_file(self._connected(), remote, timeout=timeout, write=again.update)
        return again


def _collect(pieces: Iterator[bytes], output: bytearray, command: str) -> None:
    for piece in pieces:
        output += piece
        if len(output) > MAX_OUTPUT_BYTES:
            raise ConfigError(
                f"the command printed more than {MAX_OUTPUT_BYTES} bytes: {brief(command)}",
                hint="let it write a file, and pull that",
            )


def _tail(output: bytes) -> str | None:
    return output[-2000:].decode(errors="replace") or None
