"""Every failure labctl knows, and who is to blame for it.

    LabctlError
    ├── ConfigError                 what the user wrote or asked for           exit 2
    ├── InfraError                  host, link or board broke; says nothing    exit 3
    │   │                           about the program under test
    │   ├── HostError               this machine: disk full, network gone
    │   │   ├── ServiceAway         database, store or repository: it may answer soon
    │   │   ├── ToolMissing
    │   │   └── HostTimeout
    │   ├── LinkError               the way to the board
    │   │   ├── LinkRefused         nothing listens at the address
    │   │   ├── NotAuthorised       the board refuses this host's key
    │   │   │   └── AccessDenied    somebody refused it on the board's screen
    │   │   ├── DeviceLost          the link broke in mid-operation
    │   │   ├── CommandTimeout      no answer within the step's time-out
    │   │   └── ProtocolError       the peer does not speak as documented
    │   ├── BoardError              the board itself
    │   │   ├── BoardBusy           somebody else uses it
    │   │   ├── BoardNoSpace
    │   │   ├── BoardPermission
    │   │   ├── SurvivingProcess    of an earlier job, which cannot be ended
    │   │   ├── BoardRebooted
    │   │   ├── BoardOutOfService   its health forbids work
    │   │   ├── BoardNotReady   it did not become what the recipe asks for
    │   │   └── LeaseLost
    │   └── IntegrityError          bytes arrived, but not the bytes that were sent
    └── JobError                    the thing under test failed: a result      exit 1
        ├── CompileError
        ├── RemoteExit              a remote command ended with non-zero status
        ├── ProgramFailed           crash, signal, out of memory, non-zero exit
        ├── ProgramTimeout
        └── OutputNotUnderstood

A missed gate is no error but a verdict on a finished run; its exit status is a job's.
Anything else that escapes is a bug in labctl and is shown as one.

A full disk and a refused access are recognised by one table of the texts that operating systems and
programs have for them. The texts are ``strerror``'s, the same in musl, bionic and glibc; zig has
its own.
"""

import errno
import re
from enum import StrEnum
from typing import ClassVar, Self


class Blame(StrEnum):
    """Party that has to act on a failure."""

    CONFIG = "config"
    INFRA = "infra"
    JOB = "job"


def printable(text: str) -> str:
    """Escape control sequences in a text from a board or a program."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\t\n" else f"\\x{ord(c):02x}" for c in text)


def printable_line(text: str) -> str:
    """Return the text on one line, safe for a terminal."""
    return printable(text).replace("\n", "\\x0a")


class ExitStatus:
    """Exit statuses of the ``labctl`` program."""

    OK = 0
    JOB = 1
    CONFIG = 2
    INFRA = 3
    INTERRUPTED = 130
    #: Own failures of ``labctl shell``, which passes the remote status on, as ssh does.
    SHELL_FAILURE = 255

    @classmethod
    def of(cls, blame: Blame) -> int:
        """Return the exit status of a failure."""
        return {Blame.CONFIG: cls.CONFIG, Blame.INFRA: cls.INFRA, Blame.JOB: cls.JOB}[blame]


class LabctlError(Exception):
    """A failure with blame.

    Args:
        message: one sentence: what happened, where.
        hint: what the user can do about it; without one, the usual hint of its kind.
        details: longer evidence (received bytes, the tail of a log), shown below the message.
    """

    blame: ClassVar[Blame]
    exit_status: ClassVar[int]
    #: Hint for most errors of the kind, used if the raise gives no hint.
    usual_hint: ClassVar[str | None] = None
    #: The user's file that is wrong, and the first wrong line in it; None if no file is wrong.
    file: str | None = None
    line: int | None = None
    #: True if a host is at fault (this host, or a host on the way to the board), not the board or
    #: the job.
    is_of_host: bool = False
    #: Revision of the source that does not build; None if unknown.
    source: str | None = None
    #: The interrupted run, which `labctl resume` continues; None if no run had begun.
    run: str | None = None

    def __init__(self, message: str, *, hint: str | None = None, details: str | None = None):
        self.message = printable(message)
        hint = self.usual_hint if hint is None else hint
        self.hint = None if hint is None else printable(hint)
        super().__init__(self.message)
        self.details = details

    def at(self, file: str | None, line: int | None = None) -> Self:
        """Set the user's file that is wrong, and the line; return this error."""
        self.file, self.line = file, line
        return self

    def of_host(self) -> Self:
        """Say that a host is at fault, this one or one on the way; return this error."""
        self.is_of_host = True
        return self

    def again(self) -> Self:
        """Copy the error: each thread that raises it needs its own."""
        copy = type(self)(self.message, hint=self.hint, details=self.details)
        copy.is_of_host = self.is_of_host
        return copy.at(self.file, self.line)

    def during(self, what: str, *, details: str | None = None) -> Self:
        """Add the step that failed to the message: ``what`` was being done."""
        error = type(self)(
            f"{self.message} (during: {what})", hint=self.hint, details=details or self.details
        )
        error.is_of_host = self.is_of_host
        return error

    @property
    def kind(self) -> str:
        """The class name; stable, kept in records."""
        return type(self).__name__

    def document(self) -> dict[str, object]:
        """Return kind, blame and message as JSON."""
        return {"kind": self.kind, "blame": self.blame, "message": self.message}


class ConfigError(LabctlError):
    """The user's files, arguments or models are wrong; nothing was tried."""

    blame = Blame.CONFIG
    exit_status = ExitStatus.CONFIG


class InfraError(LabctlError):
    """Host, link or board failed; never counts as a result of the program under test."""

    blame = Blame.INFRA
    exit_status = ExitStatus.INFRA


class HostError(InfraError):
    """This machine or its network cannot do its part."""


class ServiceAway(HostError):
    """A database, a store or a repository does not answer now; it may do so soon.

    No board is to blame, and another one would help nobody.
    """


class ToolMissing(HostError):
    """A program that labctl needs is not installed on this host.

    ``program`` is its name or path: who waits for it can look for just that.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        details: str | None = None,
        program: str | None = None,
    ):
        super().__init__(message, hint=hint, details=details)
        self.program = program

    def again(self) -> Self:
        """Copy the error: each thread that raises it needs its own."""
        copy = super().again()
        copy.program = self.program
        return copy

    def during(self, what: str, *, details: str | None = None) -> Self:
        """Add the step that failed to the message: ``what`` was being done."""
        error = super().during(what, details=details)
        error.program = self.program
        return error


class HostTimeout(HostError):
    """A step on this host did not finish in time."""


class LinkError(InfraError):
    """The way to the board."""


class LinkRefused(LinkError):
    """Nothing answers at the board's address."""

    usual_hint = "is the board on, and reachable from here?"


class NotAuthorised(LinkError):
    """The board does not accept this host's key."""

    usual_hint = "allow this host in the dialog on the board's screen, then try again"


class AccessDenied(NotAuthorised):
    """Somebody denied this host's key on the board's screen. Another request asks again there."""

    usual_hint = "try again, and press Allow in the dialog on the board's screen"


class DeviceLost(LinkError):
    """The link broke while something was under way; its outcome is unknown."""

    usual_hint = "check power and cable; the command may or may not have finished"


class CommandTimeout(LinkError):
    """A step on the board gave no answer within its time-out."""

    usual_hint = "the board may be frozen or overloaded, or the step needs more time"


class ProtocolError(LinkError):
    """The peer sent what the protocol does not allow."""

    usual_hint = "is it an hdc of 3.1 or 3.2 there? If so: please report this with its version"


class BoardError(InfraError):
    """The board itself cannot continue."""

    usual_hint = "look at the board: `labctl hdc shell`"


class BoardBusy(BoardError):
    """Somebody else uses the board."""

    usual_hint = "wait for its end"


class BoardNoSpace(BoardError):
    """The board's storage is full."""

    usual_hint = "free some space on the board"


class BoardPermission(BoardError):
    """The board refuses access to a path."""

    usual_hint = "use a path that the board's shell user may write, below /data/local/tmp"


class SurvivingProcess(BoardError):
    """A process that an earlier job left on the board cannot be ended."""

    usual_hint = "restart the board: `labctl hdc shell reboot`"


class BoardRebooted(BoardError):
    """The board restarted while a job was on it."""


class BoardOutOfService(BoardError):
    """The health of the board forbids work on it."""

    usual_hint = "`labctl boards history BOARD` shows what happened"


class BoardNotReady(BoardError):
    """The board did not become as a recipe's conditions ask for."""


class LeaseLost(BoardError):
    """Another controller has taken the board."""


def speaks_against_board(error: BaseException) -> bool:
    """Return True if the board or its link is at fault; False if only its use is refused."""
    if not isinstance(error, LinkError | BoardError) or error.is_of_host:
        return False
    return not isinstance(error, BoardBusy | BoardOutOfService | LeaseLost)


def lack_of_host(error: LabctlError) -> str | None:
    """Return what is missing here (a tool, a build, the shared store), with its remedy, or None.

    A job in the queue is not at fault for that. A person who runs a recipe gets a ConfigError for a
    missing build.
    """
    is_of_host = error.is_of_host and isinstance(error, ConfigError | HostError)
    if is_of_host or isinstance(error, ToolMissing):
        return f"{error.message}; to mend it: {error.hint}" if error.hint else error.message
    return None


def passes_by_itself(error: LabctlError) -> bool:
    """Return True for an error of this host that ends by itself, such as a store without answer.

    A missing tool or build does not: somebody has to install it.
    """
    return isinstance(error, HostError) and not isinstance(error, ToolMissing)


class IntegrityError(InfraError):
    """A transfer ended, but its hash or size is not that of the source."""

    usual_hint = "try again; if it happens again, suspect the board's storage or cable"


class JobError(LabctlError):
    """The thing under test failed; this is a result."""

    blame = Blame.JOB
    exit_status = ExitStatus.JOB


class CompileError(JobError):
    """The source asked for does not build."""


class RemoteExit(JobError):
    """A remote command ended with a status other than zero."""


class ProgramFailed(JobError):
    """The program crashed, was killed or ended with a status other than zero."""


class ProgramTimeout(JobError):
    """The program ran longer than it was allowed to."""


class OutputNotUnderstood(JobError):
    """The program ended well, but its output is not what the engine knows."""


FULL_NUMBERS = frozenset({errno.ENOSPC, errno.EDQUOT})
REFUSED_NUMBERS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
#: Patterns are compiled at their first use: each command loads this module.
_FULL = r"(?i)no space left on device|NoSpaceLeft|quota exceeded"
_REFUSED = r"(?i)permission denied|operation not permitted|read-only file system"


def tells_full_disk(text: str) -> bool:
    """Return True if a program's output says that a disk or a quota is full."""
    return bool(re.search(_FULL, text))


def tells_refusal(text: str) -> bool:
    """Return True if a program's output says that it had no permission."""
    return bool(re.search(_REFUSED, text))


#: Words for a program that is there, and that a board or this host still cannot start.
_LACKING = r"(?s)its (loader|library|interpreter) (.{1,400}) is not there"


def lacking(message: str) -> ConfigError | None:
    """Return the error if a message says that a program's loader or interpreter is missing."""
    found = re.search(_LACKING, message)
    if found is None:
        return None
    kind, name = found.groups()
    if name.endswith(("\r", r"\r")):
        hint = r"the script has line ends of Windows: remove them (`sed -i 's/\r$//' FILE`)"
    elif kind == "interpreter":
        hint = f"change the script's first line: it names {name}, which is not there"
    else:
        hint = (
            f"it is linked dynamically, for a system that has {name}: link it statically"
            " (`-static`), or build it for the board's target with `labctl build`"
        )
    return ConfigError(message, hint=hint)
