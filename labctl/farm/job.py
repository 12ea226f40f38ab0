"""Jobs for an executor, their results, and the interface that runs them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from labctl.errors import (
    Blame,
    BoardBusy,
    BoardOutOfService,
    ExitStatus,
    LabctlError,
    LeaseLost,
    ToolMissing,
    lack_of_host,
    passes_by_itself,
    speaks_against_board,
)

if TYPE_CHECKING:
    from labctl.state.job import Job


@dataclass(frozen=True)
class FarmJob:
    """One piece of work that holds one board from start to end."""

    id: str
    #: For people.
    name: str
    #: Boards that are equal for it, best first.
    boards: tuple[str, ...]
    #: By prediction, or the time of the last similar job.
    expected_seconds: float = 0.0
    #: Priority; higher numbers run first.
    priority: int = 0
    #: Jobs of one group run on one board, one after the other, with nothing between them.
    group: str | None = None
    #: Shared limits that it uses besides its board's limits.
    uses: tuple[str, ...] = ()
    #: ``USER@HOST`` for whom the board is taken; None: the user of this process, outside the queue.
    submitter: str | None = None
    #: True if its content is untrusted: it is confined, and its board is inspected after it.
    untrusted: bool = False
    #: True if a job of its group ended on the board just before: no other job may run between them.
    follows: bool = False
    #: The number of its attempt in the lab's queue; None: outside the queue.
    attempt: int | None = None

    @classmethod
    def queued(cls, job: "Job", *, follows: bool = False) -> "FarmJob":
        """Return a job of the lab's queue."""
        seconds = job.expected_seconds or 0.0
        return cls(
            job.id,
            job.name,
            job.boards,
            seconds,
            job.priority,
            submitter=job.submitter,
            untrusted=job.kind == "untrusted",
            follows=follows,
            attempt=job.attempts,
        )

    def document(self) -> dict[str, object]:
        """Return it as JSON, in the form that a plan shows."""
        return {
            "id": self.id,
            "recipe": self.name,
            "boards": list(self.boards),
            "priority": self.priority,
            "group": self.group,
            "expected_seconds": self.expected_seconds,
        }


@dataclass(frozen=True)
class JobResult:
    """The end of an attempt."""

    exit_status: int
    run: str | None = None
    blame: Blame | None = None
    reason: str | None = None
    #: True if the board or the connection to it broke.
    is_board_broken: bool = False
    #: True if somebody else had the board: nothing was attempted.
    is_board_taken: bool = False
    #: True if the board's health now forbids jobs: nothing was attempted.
    is_board_out: bool = False
    #: True if a tool or a build is missing on this host: other hosts may have it.
    is_host_lacking: bool = False
    #: True if waiting resolves it, for example if the shared store does not answer.
    is_passing: bool = False
    #: The missing program, by name or path; None: something else is missing, or it is unknown.
    lacks_program: str | None = None
    #: Its duration; a simulation advances its time by this.
    seconds: float = 0.0

    @classmethod
    def of(cls, error: LabctlError, run: str | None = None, seconds: float = 0.0) -> "JobResult":
        """Return the result of an attempt that ended with an error."""
        if lack := lack_of_host(error):
            return cls(
                ExitStatus.INFRA,
                run,
                Blame.INFRA,
                lack,
                is_host_lacking=True,
                is_passing=passes_by_itself(error),
                lacks_program=error.program if isinstance(error, ToolMissing) else None,
                seconds=seconds,
            )
        return cls(
            error.exit_status,
            run,
            error.blame,
            error.message,
            is_board_broken=speaks_against_board(error),
            is_board_taken=isinstance(error, BoardBusy | LeaseLost),
            is_board_out=isinstance(error, BoardOutOfService),
            seconds=seconds,
        )

    def document(self) -> dict[str, object]:
        """Return it as JSON."""
        return {
            "run": self.run,
            "exit_status": self.exit_status,
            "blame": self.blame,
            "reason": self.reason,
        }

    @property
    def is_final(self) -> bool:
        """True if the job is done; False: infrastructure interrupted it."""
        return self.blame is not Blame.INFRA and self.exit_status != ExitStatus.INTERRUPTED

    @property
    def is_counted(self) -> bool:
        """True if the attempt counts: it was not stopped, and the board was free and in service."""
        was_kept_out = self.is_board_taken or self.is_board_out
        return not was_kept_out and self.exit_status != ExitStatus.INTERRUPTED


class Executor(Protocol):
    """Runs jobs: several at once, each in its own thread."""

    def run(self, job: FarmJob, board: str) -> JobResult:
        """Run a job on a board to its end; continue the run of an earlier attempt.

        A failure is returned as a result; KeyboardInterrupt is raised.
        """

    def stop(self) -> None:
        """End all running jobs soon, as Ctrl-C does: they can be resumed later."""
