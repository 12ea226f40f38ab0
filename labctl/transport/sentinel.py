"""Exit statuses over a link that carries none: the command's frame and how it is read back.

The frame prints the shell's process id first (so that the whole tree can be killed from another
channel) and the status last. The status mark also proves that the output is complete. It begins
with a byte that text does not hold, so live output is never held back for looking like a mark.

Standard error can be kept apart although the link has one stream only: it goes to a file that has
lost its name before the command starts (so nothing can be left behind) and is printed at the end.
"""

import os
import re
from dataclasses import dataclass

from labctl.transport.base import Write

#: Begins each mark: ASCII's record separator.
_SEPARATOR = b"\x1e"
_ERRORS = b"err"
#: Where boards of OpenHarmony let their shell write.
SCRATCH = "/data/local/tmp"
#: The longest word of a mark, its newline included.
_WORD_BYTES = 4
_KEPT_APART = '_f="${TMPDIR:-%s}"/%s;(umask 077;:>"$_f")&&exec 8>"$_f" 9<"$_f"&&rm -f "$_f"||exit;'


@dataclass(frozen=True)
class Framed:
    """A command in its frame. The nonce is new for each, so that no output can forge a status."""

    command: str
    nonce: str
    separate_stderr: bool = False
    #: The board's folder for temporary files where its TMPDIR names none.
    scratch: str = SCRATCH

    @classmethod
    def around(
        cls, command: str, *, separate_stderr: bool = False, scratch: str = SCRATCH
    ) -> "Framed":
        """``command`` with a fresh nonce."""
        # What `secrets` gives, without the hashes and distributions that it imports.
        return cls(command, f"labctl-{os.urandom(16).hex()}", separate_stderr, scratch)

    @property
    def script(self) -> str:
        """The script that the board's shell gets."""
        # The newlines let the command end in a comment. `echo` is in every shell itself; `printf`
        # is a program to boards' shells, and would cost more than all the rest.
        start = f"echo {self.nonce}:$$;(\n{self.command}\n)</dev/null"
        mark = f"{_SEPARATOR.decode()}{self.nonce}"
        if not self.separate_stderr:
            return f'{start};echo "{mark}:$?"'
        return (
            f"{_KEPT_APART % (self.scratch, self.nonce)}{start} 2>&8 8>&- 9<&-;_s=$?;"
            f'echo "{mark}:err";cat <&9;echo "{mark}:$_s"'
        )

    def killing(self, process_id: int) -> str:
        """Return a command that kills everything in the process group of this one's shell.

        An id may have become somebody else's: it is ours while its command line holds the nonce.
        A leader that is gone or a zombie (no command line) does not matter: the kernel gives no id
        away that is still the id of a group. The command prints ``done`` when the shell is gone,
        and nothing when it lives on: it leads no group, or hangs in the kernel.
        """
        words = f'case "$(cat /proc/{process_id}/cmdline 2>/dev/null)" in'
        return (
            f'{words} *{self.nonce}*|"") kill -9 -{process_id};; esac 2>/dev/null; '
            # It ends at once as a rule, but after `kill` has returned.
            f"for pause in 0 0 0 1 1; do {words} *{self.nonce}*) sleep $pause;; "
            "*) echo done; break;; esac; done"
        )


class FrameReader:
    """Takes a framed command's output as it comes and hands on what the command itself printed.

    ``process_id`` is that of the shell on the board, ``exit_status`` the command's; each is None
    while it is not known. What a background child prints after the end is handed on as well.
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
        self._status_mark = b""

    def feed(self, piece: bytes) -> None:
        """Take the next bytes."""
        self._pending += piece
        if self._in_body or self._read_opening():
            while self._read_body():
                pass

    def finish(self) -> None:
        """Flush the kept output: it is complete."""
        self._give(len(self._pending))

    def _read_opening(self) -> bool:
        """Read the line with the process id; other output has none (a syntax error, for
        example).
        """
        match = re.match(re.escape(self._opening) + rb"(\d{1,10})\n", self._pending)
        if match:
            self.process_id = int(match[1])
            del self._pending[: match.end()]
        elif re.fullmatch(rb"\d{0,10}", self._pending.removeprefix(self._opening)) or (
            self._opening.startswith(self._pending)
        ):
            return False  # not all of it is there
        self._in_body = True
        return True

    def _read_body(self) -> bool:
        """Hand on what is surely output, take one mark; False when more bytes are needed."""
        start = self._pending.find(self._mark)
        if start < 0:
            # Only what begins at the last separator can become a mark.
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
        # The last mark counts: an earlier one was made by the command, out of its own frame.
        if self._status_mark:
            self._write(self._status_mark)
        self._status_mark = self._mark + word + b"\n"
        self.exit_status = int(word)
        return True

    def _give(self, count: int) -> None:
        if count:
            output = bytes(self._pending[:count])
            del self._pending[:count]
            self._write(output)
