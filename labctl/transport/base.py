"""The contract of every transport: commands and bytes to and from a board.

A result exists only for an operation that provably finished. Any other outcome (link lost,
time-out, no sentinel) raises an error: no default status, no partial success. If a board refuses an
operation, the message of its kernel selects the error. A path that is not safe on every link is
refused before it is sent.
"""

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from labctl.errors import (
    BoardError,
    BoardNoSpace,
    BoardPermission,
    ConfigError,
    LinkError,
    RemoteExit,
    tells_full_disk,
    tells_refusal,
)
from labctl.progress import BytesDone

if TYPE_CHECKING:
    from labctl.hdc.host.handshake import Consent
    from labctl.transport.file_transfer import BoardHash, FileTransfer
    from labctl.transport.hdc import HdcTransport
    from labctl.transport.linked import Stream

from labctl.text_types import split_endpoint

#: Takes output as it arrives.
Write = Callable[[bytes], object]

#: Ways to restart a board: normally, into its boot loader, or power off.
Reboot = Literal["", "bootloader", "recovery", "flashd", "shutdown"]

#: Time-out for the reply of a board that may be gone.
ALIVE_SECONDS = 5.0
_BRIEF = 100


@dataclass(frozen=True)
class Copied:
    """Result of a copy. Every file is verified, unless ``not_proven`` has the reason why not.

    ``skipped`` and ``unreadable`` are paths inside a directory that were left out: neither
    directories nor files, and files of /proc or /sys that could not be read to the end.
    """

    files: int
    size_bytes: int
    skipped: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    not_proven: str | None = None


@dataclass(frozen=True)
class CommandResult:
    """A remote command that finished.

    ``output`` is standard output and standard error as one stream of bytes, as sent by the board.
    If the streams were requested separately, it is only standard output, and ``stderr`` is set.
    """

    command: str
    exit_status: int
    output: bytes
    duration_ns: int
    stderr: bytes | None = None

    @property
    def text(self) -> str:
        """The output as text; undecodable bytes are replaced."""
        return self.output.decode(errors="replace")

    def check(self) -> Self:
        """Return this result. Raises RemoteExit if the status is not zero."""
        if self.exit_status != 0:
            printed = self.output + (self.stderr or b"")
            raise RemoteExit(
                f"the board answered status {self.exit_status} to: {brief(self.command)}",
                details=printed.decode(errors="replace")[-2000:] or None,
            )
        return self


def brief(command: str) -> str:
    """Shorten a command to one line for messages."""
    line = " ".join(command.split())
    return line if len(line) <= _BRIEF else f"{line[: _BRIEF - 3]}..."


def remote_words(*words: str) -> str:
    """Quote words for the board's POSIX shell; other text must not enter a remote command.

    Raises ConfigError for a NUL byte, which shells cannot handle.
    """
    for word in words:
        if "\0" in word:
            raise ConfigError(f"a NUL byte cannot be part of a command: {word!r}")
    return shlex.join(words)


def check_command(command: str) -> bytes:
    """Return the bytes of a shell command. Raises ConfigError for text that no shell accepts."""
    if "\0" in command:
        raise ConfigError("a command cannot hold a NUL byte")
    try:
        return command.encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        raise ConfigError(f"a command is not text: {command!r}") from error


@dataclass(frozen=True)
class OpenOptions:
    """Options of a link; each kind of transport uses the options that it knows.

    ``timeout`` (s) limits each opening. ``key_file`` replaces the lab's. ``consent`` sets the wait
    for a user who allows this host on the board.
    """

    timeout: float = 10.0
    key_file: Path | None = None
    consent: "Consent | None" = None


@dataclass(frozen=True, kw_only=True)
class TransferOptions:
    """Options of a copy to or from a board.

    ``timeout`` (s) limits each wait for progress, not the whole copy. ``progress`` gets the number
    of bytes copied so far. ``compress`` applies if the board is known to compress well.
    """

    timeout: float
    progress: BytesDone | None = None
    compress: bool = False


def _anything() -> None:
    """Permit every operation."""


class Transport(ABC):
    """A live link to one board. Methods may be called from several threads at once."""

    #: Name of this link in messages: ``hdc tcp 127.0.0.1:15555``.
    label: str
    _board_hash: "BoardHash | None" = None
    _permit: Callable[[], None] = staticmethod(_anything)

    @contextmanager
    def only_while(self, permit: Callable[[], None]) -> Iterator[None]:
        """Call ``permit`` before each operation of the context; it raises to forbid one."""
        before, self._permit = self._permit, permit
        try:
            yield
        finally:
            self._permit = before

    def use_hash(self, board_hash: "BoardHash | None") -> None:
        """Hash the board's files with ``board_hash`` from now on; None: find a hash at next use."""
        self._board_hash = board_hash

    def files_hash(self, timeout: float) -> "BoardHash":
        """Return the method to hash the board's files; search for it at first use.

        ``timeout`` (s) limits the search. Raises LinkError, BoardError.
        """
        if self._board_hash is None:
            from labctl.transport.file_transfer import find_board_hash  # slow to import

            self._board_hash = find_board_hash(self, timeout)
        return self._board_hash

    @abstractmethod
    def run(self, command: str, *, timeout: float, separate_stderr: bool = False) -> CommandResult:
        """Run a shell command with stdin closed; return when it *provably* finished.

        ``command`` is shell text of any length: build it with :func:`remote_words`. With
        ``separate_stderr``, the result has both streams separately. Raises LinkError, ConfigError
        (text that no shell accepts), BoardError (no room for standard error or a long command).
        """

    @abstractmethod
    def stream(self, command: str, *, timeout: float, write: Write) -> int:
        """Run as :meth:`run`; pass both streams as one to ``write`` on arrival; return the status.

        The output is not kept in memory. If ``write`` raises, or on Ctrl-C, the command and all its
        processes are killed before the error is raised.
        """

    def push(self, local: Path, remote: str, options: TransferOptions) -> None:
        """Copy a local file to the absolute path ``remote`` and verify its hash there.

        The parent directory must exist. Not atomic: callers push to a temporary name, like
        :func:`labctl.transport.copy.send`. Raises LinkError, IntegrityError, BoardNoSpace,
        BoardPermission, ConfigError (unsafe path).
        """
        self.file_transfer(options).push(local, remote)

    def pull(self, remote: str, local: Path, options: TransferOptions) -> None:
        """Copy a file from the board; ``local`` appears only after its hash is verified."""
        self.file_transfer(options).pull(remote, local)

    @abstractmethod
    def file_transfer(self, options: TransferOptions) -> "FileTransfer":
        """Return the transfer of this link; :meth:`push` and :meth:`pull` verify what it copied."""

    @abstractmethod
    def connect(self, port: int, *, timeout: float) -> AbstractContextManager["Stream"]:
        """Connect to a TCP port on the board's loopback, within the context.

        ``timeout`` (s) limits the start, and then each wait. Raises LinkRefused (nothing listens
        there), another LinkError.
        """

    def over_hdc(self, purpose: str) -> "HdcTransport":
        """Return the functions of hdc. Raises ConfigError with ``purpose`` if the link has none."""
        raise ConfigError(f"{self.label} cannot {purpose}", hint="boards over hdc can")

    def request_reboot(self, how: Reboot = "", *, timeout: float) -> None:
        """Request a restart, and close the link: the board will end it anyway.

        :func:`labctl.transport.readiness.reboot` also waits for it. Raises ConfigError (not
        possible over this link), LinkError.
        """
        del timeout
        raise ConfigError(
            f"{self.label} cannot be restarted {how}".rstrip(),
            hint="boards over hdc and phones over adb can",
        )

    @property
    def name(self) -> str | None:
        """The board's own name; None if the link does not report it. Raises LinkError."""
        return None

    def is_alive(self) -> bool:
        """Return True if the board runs a command now."""
        try:
            return self.run(":", timeout=ALIVE_SECONDS).exit_status == 0
        except (LinkError, BoardError):
            return False

    @abstractmethod
    def close(self) -> None:
        """Release the link. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def board_error(text: str, what: str) -> BoardError:
    """Return the error for a step ``what`` that the board refused with ``text``."""
    details = text.strip()[-2000:] or None
    message = f"{what}: {_last_line(text) or 'no reason given'}"
    if tells_full_disk(text):
        return BoardNoSpace(message, details=details)
    if tells_refusal(text):
        hint = "choose another workdir for the board in devices.yaml, one its shell user may write"
        return BoardPermission(message, hint=hint, details=details)
    return BoardError(message, details=details)


def file_error(text: str) -> BoardError:
    """Return the error for a copying program that printed ``text``."""
    last = _last_line(text)
    if tells_full_disk(text):
        return BoardNoSpace(f"the board's storage is full: {last}")
    if tells_refusal(text):
        return BoardPermission(f"the board refuses access: {last}")
    return BoardError(f"the board answers: {last.lower()}")


def require(result: CommandResult, what: str) -> CommandResult:
    """Return ``result`` if its status is 0. Raises BoardNoSpace, BoardPermission, BoardError."""
    if result.exit_status != 0:
        raise board_error(result.text, what)
    return result


def last_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object in the last line of a program's output; None if there is none."""
    from labctl.config.printed import read_json  # slow: imports pydantic

    try:
        answer = read_json(_last_line(text))
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""


_MAX_BYTES = 4096


def check_remote_path(path: str) -> str:
    """Return ``path``. Raises ConfigError if it is not safe on every link.

    Refused besides relative paths: ``%`` (hdcd passes paths to printf: ``%s`` crashes it), control
    characters, double quotes and backslashes (``file recv`` cannot quote them), ``..`` and empty
    parts (after a trailing slash, hdcd chooses the name).
    """
    parts = path.split("/")
    if not path.startswith("/") or len(parts) < 2:
        reason = "it is not absolute"
    elif any(character in '%"\\' for character in path):
        reason = 'it holds one of % " \\, which hdc does not carry safely'
    elif any(ord(character) < 0x20 or ord(character) == 0x7F for character in path):
        reason = "it holds a control character"
    elif any(part in ("", ".", "..") for part in parts[1:]):
        reason = "it holds an empty part, `.` or `..`"
    elif not _fits(path):
        reason = f"it is longer than {_MAX_BYTES} bytes, or is not text"
    else:
        return path
    raise ConfigError(
        f"unsafe path on the board: {path!r}: {reason}",
        hint="use a plain absolute path below the board's workdir",
    )


def _fits(path: str) -> bool:
    try:
        return len(path.encode(errors="surrogateescape")) <= _MAX_BYTES
    except UnicodeEncodeError:  # half of a surrogate pair encodes no byte
        return False


def rules(*, required: tuple[str, ...] = ("kind",)) -> dict[str, Any]:
    """Return pydantic's rules for such a dataclass: a frozen mapping without unknown keys.

    Fields that select a model have defaults in code; documents must contain them.
    """

    def require(schema: dict[str, Any]) -> None:
        schema["required"] = [*required, *schema.get("required", ())]
        for name in required:
            schema["properties"][name].pop("default", None)

    return {"extra": "forbid", "json_schema_extra": require}


def address_of(text: str, what: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``, the address of ``what``. Raises ConfigError."""
    try:
        return split_endpoint(text)
    except ValueError as error:
        raise ConfigError(
            f"not an address of {what}: {text!r}: {error}", hint="write HOST:PORT"
        ) from None
