"""Jobs of a scheduler, what became of them, and who carries them out."""

from dataclasses import dataclass
from typing import Protocol

from labctl.errors import (
    Blame,
    BoardBusy,
    BoardError,
    ExitStatus,
    LabctlError,
    LeaseLost,
    LinkError,
)

#: Errors of the board's kind that say nothing against board or job.
_TAKEN = (BoardBusy, LeaseLost)


@dataclass(frozen=True)
class FarmJob:
    """One piece of work that holds one board from its begin to its end."""

    id: str
    #: For people.
    name: str
    #: Boards that are equal for it, best first.
    boards: tuple[str, ...]
    #: By forecast, or as the last one like it took.
    expected_seconds: float = 0.0
    #: The greatest comes first.
    priority: int = 0
    #: Jobs of one group run on one board, one after the other, with nothing between them.
    group: str | None = None
    #: Shared limits that it uses besides those of its board.
    uses: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobResult:
    """The end of an attempt."""

    exit_status: int
    run: str | None = None
    blame: Blame | None = None
    reason: str | None = None
    #: True if the board or the way to it broke.
    is_board_broken: bool = False
    #: True if somebody else had the board: the attempt never was.
    is_board_taken: bool = False
    #: Time that it took; a simulation goes on by it.
    seconds: float = 0.0

    @classmethod
    def of(cls, error: LabctlError, run: str | None = None, seconds: float = 0.0) -> "JobResult":
        """Return the result of an attempt that ended with an error."""
        taken = isinstance(error, _TAKEN)
        return cls(
            error.exit_status,
            run,
            error.blame,
            error.message,
            is_board_broken=isinstance(error, LinkError | BoardError) and not taken,
            is_board_taken=taken,
            seconds=seconds,
        )

    @property
    def is_final(self) -> bool:
        """True if the job is done; False: infrastructure broke it off."""
        return self.blame is not Blame.INFRA and self.exit_status != ExitStatus.INTERRUPTED

    @property
    def is_counted(self) -> bool:
        """True if the attempt counts: it was neither stopped nor kept out by somebody else."""
        return not self.is_board_taken and self.exit_status != ExitStatus.INTERRUPTED


class Executor(Protocol):
    """Carries out jobs; several at once, each in a thread of its own."""

    def run(self, job: FarmJob, board: str) -> JobResult:
        """Run a job on a board to its end, going on with what an earlier attempt left.

        A failure is a result; KeyboardInterrupt is none.
        """

    def stop(self) -> None:
        """Let all running jobs end soon, as by Ctrl-C: they can go on later."""
