"""One command on a board: run in its frame, ended with its whole tree when it must be."""

from collections.abc import Generator
from contextlib import closing, suppress
from typing import Protocol

from labctl.errors import (
    BoardError,
    CommandTimeout,
    ConfigError,
    DeviceLost,
    LabctlError,
    LinkError,
)
from labctl.transport.base import Write, brief, remote_words
from labctl.transport.sentinel import Framed, FrameReader

#: Patience for small questions of our own (stopping a command, a syntax check).
ASIDE_SECONDS = 5.0
NOT_UNDERSTOOD_HINT = "boards have a POSIX shell (mksh): leave out what only bash has"
_TAIL_BYTES = 2000
#: A longer command is not asked for its syntax: quoted, it would not fit where commands fit.
_CHECKED_BYTES = 30_000


class Shell(Protocol):
    """Runs scripts in a board's shell, each in a conversation of its own."""

    @property
    def failure(self) -> LinkError | None:
        """The reason why nothing more can be run; None while none is known."""

    def __call__(self, script: str, *, timeout: float) -> Generator[bytes, None, None]:
        """Run a script; what it prints, as it comes, both streams as one.

        Closing it ends the conversation. Raises LinkError, BoardError; CommandTimeout when it does
        not end within ``timeout`` seconds.
        """


class Tail:
    """The last bytes of an output, for messages; hands everything on."""

    def __init__(self, write: Write):
        self._write = write
        self._kept = b""

    def __call__(self, piece: bytes) -> None:
        """Take the next bytes."""
        self._kept = (self._kept + piece)[-_TAIL_BYTES:]
        self._write(piece)

    @property
    def text(self) -> str | None:
        """The kept text; None if there was none."""
        return self._kept.decode(errors="replace") or None


def execute(
    shell: Shell,
    framed: Framed,
    *,
    label: str,
    timeout: float,
    write: Write,
    write_error: Write | None = None,
) -> int:
    """Run a framed command; its exit status. ``write`` gets its output as it comes.

    When it does not end in time, or whoever waits for it gives up (Ctrl-C, ``write`` raises), the
    command is killed on the board with its whole process group. Raises LinkError, BoardError,
    ConfigError (the board's shell does not understand it), and what ``write`` raises.
    """
    tail = Tail(write)
    reader = FrameReader(framed, tail, write_error)
    try:
        # The channel is closed before anything else is asked: its backlog blocks the link.
        with closing(shell(framed.script, timeout=timeout)) as pieces:
            for piece in pieces:
                reader.feed(piece)
        reader.finish()
    except CommandTimeout as error:
        stopped = _kill(shell, framed, reader.process_id)
        raise CommandTimeout(
            f"{label}: no end within {timeout:g} s of: {brief(framed.command)}",
            hint="set a longer time-out, or find out what it waits for"
            if stopped
            else "it may still run on the board",
            details=tail.text or error.message,
        ) from error
    except (LinkError, BoardError) as error:
        raise error.during(brief(framed.command), details=tail.text) from error
    except BaseException:
        _kill(shell, framed, reader.process_id)  # nobody waits for it any more
        raise
    if reader.exit_status is None:
        raise _without_status(shell, framed, label, reader.process_id, tail.text)
    return reader.exit_status


def _kill(shell: Shell, framed: Framed, process_id: int | None) -> bool:
    """Kill a command's whole tree: its shell leads a process group. False if unsure."""
    # 0 and 1 would mean our own group and every process there is.
    if process_id is None or process_id <= 1 or shell.failure is not None:
        return False
    try:
        reply = b"".join(shell(framed.killing(process_id), timeout=ASIDE_SECONDS))
    except (LinkError, BoardError):
        return False
    return reply == b"done\n"


def _without_status(
    shell: Shell, framed: Framed, label: str, process_id: int | None, said: str | None
) -> LabctlError:
    """Explain why a command's channel ended in good order, but without a status."""
    if len(framed.command) <= _CHECKED_BYTES:
        check = "sh -n -c " + remote_words(framed.command) + " >/dev/null 2>&1 || echo wrong"
        with suppress(LinkError, BoardError):
            if b"".join(shell(check, timeout=ASIDE_SECONDS)) == b"wrong\n":
                return ConfigError(
                    f"the board's shell does not understand: {brief(framed.command)}",
                    hint=NOT_UNDERSTOOD_HINT,
                    details=said,
                )
    if framed.separate_stderr and process_id is None and said is not None:
        return BoardError(
            f"{label}: no place for the standard error of: {brief(framed.command)}",
            hint=f"the board's ${{TMPDIR:-{framed.scratch}}} must be writable and have space",
            details=said,
        )
    return DeviceLost(
        f"{label}: no exit status came for: {brief(framed.command)}",
        hint="its shell was killed, or the board restarts",
        details=said,
    )
