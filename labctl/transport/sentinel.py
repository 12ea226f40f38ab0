"""Exit statuses over a link that transmits none: the frame of a command, and its reader.

The frame prints the shell's process id first (so that all processes can be killed from another
channel) and the status last. The status mark also proves that the output is complete. It begins
with a byte that text does not contain, so live text is never delayed because it looks like a mark.

Standard error can be kept separate although the link has only one stream: it goes to a file that is
unlinked before the command starts (so nothing can remain), and is printed at the end.
"""

import os
import re
import time
from collections.abc import Generator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Protocol

from labctl.errors import (
    BoardError,
    CommandTimeout,
    ConfigError,
    DeviceLost,
    LabctlError,
    LinkError,
)
from labctl.interrupts import finishing
from labctl.progress import tell_command
from labctl.transport.base import Write, brief, remote_words

#: First byte of each mark: ASCII's record separator.
_SEPARATOR = b"\x1e"
_ERRORS = b"err"
#: Folder that the shell of OpenHarmony boards may write to.
SCRATCH = "/data/local/tmp"
#: Maximum length of a word in a mark, with its newline.
_WORD_BYTES = 4
# Patterns do not contain the nonce: each would be compiled again, at a higher cost than the rest.
_ID_LINE = re.compile(rb"(\d{1,10})\n")
_PART_OF_ID = re.compile(rb"\d{0,10}")
_KEPT_APART = '_f="${TMPDIR:-%s}"/%s;(umask 077;:>"$_f")&&exec 8>"$_f" 9<"$_f"&&rm -f "$_f"||exit;'


@dataclass(frozen=True)
class Framed:
    """A command in its frame. Each has a new nonce, so output cannot forge a status."""

    command: str
    nonce: str
    separate_stderr: bool = False
    #: The board's folder for temporary files if its TMPDIR is not set.
    scratch: str = SCRATCH

    @classmethod
    def around(
        cls, command: str, *, separate_stderr: bool = False, scratch: str = SCRATCH
    ) -> "Framed":
        """Return ``command`` with a new nonce."""
        # As random as `secrets`, without the modules that it imports.
        return cls(command, f"labctl-{os.urandom(16).hex()}", separate_stderr, scratch)

    @property
    def script(self) -> str:
        """The script for the board's shell."""
        # The newlines let the command end in a comment. `echo` is built into every shell; `printf`
        # is a program on boards, and would cost more than everything else. In braces, the shell
        # reads the whole text before it runs any: a command with one `)` too many runs nothing.
        start = f"echo {self.nonce}:$$;(\n{self.command}\n)</dev/null"
        mark = f"{_SEPARATOR.decode()}{self.nonce}"
        if not self.separate_stderr:
            return f'{{ {start};echo "{mark}:$?";}}'
        return (
            f"{{ {_KEPT_APART % (self.scratch, self.nonce)}{start} 2>&8 8>&- 9<&-;_s=$?;"
            f'echo "{mark}:err";cat <&9;echo "{mark}:$_s";}}'
        )

    def killing(self, process_id: int | None) -> str:
        """Return a command that kills the whole process group of this command's shell.

        Without an id, the shell is found by the nonce in its command line. The pattern does not
        match the command line that the pattern itself stands in. Subshells have their shell's
        command line, but lead no group: for their ids `kill` does nothing.

        Another process may have reused the id: it is still the shell's if its command line has the
        nonce. If the leader is gone or a zombie (no command line), the id is safe too: the kernel
        does not reuse an id while a group has it. The command prints ``done`` if the shell is gone.
        It prints nothing if the shell still exists: the shell leads no group, or hangs in the
        kernel.
        """
        if process_id is None:
            pattern = f"{self.nonce[:-1]}[{self.nonce[-1]}]"
            found = f"$(grep -ls '{pattern}' /proc/[0-9]*/cmdline 2>/dev/null)"
            return (
                f'_f={found};[ "$_f" ]&&{{ for _p in $_f;do _p=${{_p#/proc/}};'
                "kill -9 -${_p%/*};done 2>/dev/null;"
                f'for pause in 0 0 0 1 1;do [ "{found}" ]||{{ echo done;break;}};'
                "sleep $pause;done;}"
            )
        words = f'case "$(cat /proc/{process_id}/cmdline 2>/dev/null)" in'
        return (
            f'{words} *{self.nonce}*|"") kill -9 -{process_id};; esac 2>/dev/null; '
            # It usually ends at once, but after `kill` has returned.
            f"for pause in 0 0 0 1 1; do {words} *{self.nonce}*) sleep $pause;; "
            "*) echo done; break;; esac; done"
        )


class FrameReader:
    """Reads a framed command's output as it arrives and passes on the command's own output.

    ``process_id`` is the shell's id on the board, ``exit_status`` the command's; each is None while
    unknown. Output of a background child after the end is also passed on.

    Output that does not begin with the process id may be an error message of the shell itself: its
    first part is held until there is a status.
    """

    def __init__(self, framed: Framed, write: Write, write_error: Write | None = None):
        self.process_id: int | None = None
        self.exit_status: int | None = None
        self._opening = framed.nonce.encode() + b":"
        self._mark = _SEPARATOR + self._opening
        self._write = write
        self._write_error = write_error
        self._pending = bytearray()
        self._in_body = False
        #: Output instead of the process id; None once it was passed on.
        self._held: bytes | None = None
        self._status_mark = b""

    def feed(self, piece: bytes) -> None:
        """Handle the next bytes."""
        self._pending += piece
        if self._in_body or self._read_opening():
            while self._read_body():
                pass

    def finish(self) -> None:
        """Pass on the held output: it is complete."""
        self._give(len(self._pending))
        if self.exit_status is not None:
            self._release()

    @property
    def held(self) -> bytes:
        """Return the shell's own message that replaced the frame, if it was not passed on."""
        return self._held or b""

    def _release(self) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            self._write(held)

    def _read_opening(self) -> bool:
        """Read the line with the process id; other output (after a syntax error) has none."""
        has_begun = self._pending.startswith(self._opening)
        if has_begun and (match := _ID_LINE.match(self._pending, len(self._opening))):
            self.process_id = int(match[1])
            del self._pending[: match.end()]
        elif self._opening.startswith(self._pending) or (
            has_begun and _PART_OF_ID.fullmatch(self._pending, len(self._opening))
        ):
            return False  # the line is incomplete
        else:
            self._held = b""
        self._in_body = True
        return True

    def _read_body(self) -> bool:
        """Pass on the certain output, and read one mark; return False if more bytes are needed."""
        start = self._pending.find(self._mark)
        if start < 0:
            # A mark can only begin at the last separator.
            start = self._pending.rfind(_SEPARATOR)
            may_become = start >= 0 and self._mark.startswith(self._pending[start:])
            self._give(start if may_become else len(self._pending))
            return False
        self._give(start)
        word, newline, _ = self._pending[len(self._mark) :][:_WORD_BYTES].partition(b"\n")
        if not newline and len(word) < _WORD_BYTES:
            return False
        if not newline or not self._understood(bytes(word)):
            self._give(1)
            return True
        del self._pending[: len(self._mark) + len(word) + 1]
        return True

    def _understood(self, word: bytes) -> bool:
        if word == _ERRORS and self._write_error is not None:
            self._write, self._write_error = self._write_error, None
            return True
        if not word.isdigit():
            return False
        # The last mark counts: the command itself may have printed earlier ones, outside of its
        # frame.
        if self._status_mark:
            self._write(self._status_mark)
        self._status_mark = self._mark + word + b"\n"
        self.exit_status = int(word)
        return True

    def _give(self, count: int) -> None:
        if count:
            output = bytes(self._pending[:count])
            del self._pending[:count]
            if self._held is None:
                self._write(output)
                return
            self._held += output
            if len(self._held) > _TAIL_BYTES:
                self._release()


#: Time-out (s) for labctl's own short commands (stopping a command, a syntax check).
ASIDE_SECONDS = 5.0
_MAY_RUN = "it may still run on the board"
NOT_UNDERSTOOD_HINT = "boards have a POSIX shell (mksh): do not use features of bash"
_TAIL_BYTES = 2000
#: The syntax of longer commands is not checked: after quoting, they do not fit the link.
_CHECKED_BYTES = 30_000


class Shell(Protocol):
    """Runs scripts in a board's shell, each over a separate channel."""

    @property
    def failure(self) -> LinkError | None:
        """The reason why nothing more can be run; None if no reason is known."""

    def __call__(self, script: str, *, timeout: float) -> Generator[bytes, None, None]:
        """Run a script; yield its output as it arrives, both streams as one.

        Without output, it yields an empty piece at least twice a second, so that the caller can
        check for signals. Closing the generator ends the conversation. Raises LinkError,
        BoardError; CommandTimeout if the script does not end within ``timeout`` seconds.
        """


class Tail:
    """Keeps the last bytes of an output for messages; passes on everything."""

    def __init__(self, write: Write):
        self._write = write
        self._kept = b""

    def __call__(self, piece: bytes) -> None:
        """Handle the next bytes."""
        self._kept = (self._kept + piece)[-_TAIL_BYTES:]
        self._write(piece)

    @property
    def text(self) -> str | None:
        """The kept text; None if it is empty."""
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
    """Run a framed command; return its exit status. ``write`` gets its output as it arrives.

    If it does not end in time, or its caller stops it (Ctrl-C, ``write`` raises), the command is
    killed on the board with its whole process group. Further signals do not interrupt this; it
    takes at most 3 x ``ASIDE_SECONDS``. A command that cannot be killed is logged. Raises
    LinkError, BoardError, ConfigError (the board's shell cannot parse it), and the errors of
    ``write``.
    """
    tell_command(lambda: f"[{label}] {framed.command}")
    tail = Tail(write)
    reader = FrameReader(framed, tail, write_error)
    with finishing() as signals:
        signals.hold()
        # With the id, killing the command is sure: signals wait for it, but not forever.
        id_due = time.monotonic() + ASIDE_SECONDS
        try:
            # Close the channel before sending anything else: its backlog blocks the link.
            with closing(shell(framed.script, timeout=timeout)) as pieces:
                for piece in pieces:
                    try:
                        if reader.process_id is not None or time.monotonic() > id_due:
                            signals.release()
                        reader.feed(piece)
                    finally:
                        signals.hold()
            reader.finish()
        except CommandTimeout as error:
            stopped = _kill(shell, framed, reader.process_id)
            late = CommandTimeout(
                f"{label}: no end within {timeout:g} s of: {brief(framed.command)}",
                hint="set a longer time-out, or check what it waits for" if stopped else _MAY_RUN,
                details=tail.text or error.message,
            )
            raise _blaming(shell, late) from error
        except (LinkError, BoardError) as error:
            raise error.during(brief(framed.command), details=tail.text) from error
        except BaseException:  # the caller no longer waits for the command
            if not _kill(shell, framed, reader.process_id):
                import logging  # slow to import and seldom needed

                logging.getLogger("labctl.transport").warning(
                    "%s: %s: %s", label, _MAY_RUN, brief(framed.command)
                )
            raise
    if reader.exit_status is None:
        printed = tail.text or reader.held.decode(errors="replace") or None
        raise _without_status(shell, framed, label, reader.process_id, printed)
    return reader.exit_status


def _kill(shell: Shell, framed: Framed, process_id: int | None) -> bool:
    """Kill all processes of a command: its shell leads a process group. Return False if unsure."""
    # 0 and 1 would mean the shell's own group and every process.
    if process_id in (0, 1) or shell.failure is not None:
        return False
    try:
        reply = b"".join(shell(framed.killing(process_id), timeout=ASIDE_SECONDS))
    except (LinkError, BoardError):
        return False
    return reply == b"done\n"


def _diagnosis(answer: str) -> str | None:
    """Return a shell's error message without its name and path: ``unmatched 'if'``."""
    match = re.search(r"(?i)(?:syntax error: |: )([^:\n]+)$", answer.strip())
    return match[1].strip() if match else None


def _without_status(
    shell: Shell, framed: Framed, label: str, process_id: int | None, error_output: str | None
) -> LabctlError:
    """Return the error for a command whose channel ended normally, but without a status."""
    if len(framed.command) <= _CHECKED_BYTES:
        words = f"sh -n -c {remote_words(framed.command)}"
        check = f'_w=$({words} 2>&1 >/dev/null) || echo "wrong:$_w"'
        with suppress(LinkError, BoardError):
            answer = b"".join(shell(check, timeout=ASIDE_SECONDS)).decode(errors="replace")
            if answer.startswith("wrong:"):
                return ConfigError(
                    f"the board's shell does not understand: {brief(framed.command)}",
                    hint=NOT_UNDERSTOOD_HINT,
                    details=_diagnosis(answer),
                )
    if framed.separate_stderr and process_id is None and error_output is not None:
        return BoardError(
            f"{label}: no place for the standard error of: {brief(framed.command)}",
            hint=f"the board's ${{TMPDIR:-{framed.scratch}}} must be writable and have space",
            details=error_output,
        )
    lost = DeviceLost(
        f"{label}: no exit status came for: {brief(framed.command)}",
        hint="its shell was killed, or the board restarts",
        details=error_output,
    )
    return _blaming(shell, lost)


def _blaming(shell: Shell, error: LinkError) -> LinkError:
    """Attribute the error to the host if the host made the last request to the shell fail."""
    failure = shell.failure
    return error.of_host() if failure is not None and failure.is_of_host else error
