"""Interface of a night to the world: builds, runs, boards and the time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from labctl.records.night import NightRow
from labctl.records.run import NightPart

GOOD, HEAD = "good", NightPart.HEAD


@dataclass(frozen=True)
class Built:
    """One side of a build.

    ``key`` is that of its artifact; ``program`` a digest of its deployed files, equal where each
    byte is. ``source`` is for people; ``side`` is ``good``, ``head`` or a commit, once the night
    knows it.
    """

    key: str
    version: str
    source: str
    program: str = ""
    side: str = ""


@dataclass(frozen=True)
class Measured:
    """The result of one run: a time for each variant, less is faster."""

    run: str
    values: Mapping[str, float]
    seconds: float
    execution: str


@dataclass(frozen=True)
class Trouble:
    """The reason not to use a board now; ``passes``: nobody has to decide anything first."""

    reason: str
    passes: bool = False


class Executor(Protocol):
    """Builds and measures. What fails raises the errors of :mod:`labctl.errors`, with blame.

    ServiceAway says that all boards are the same in this: the night waits. Other errors of
    infrastructure count against the board.
    """

    def now(self, board: str | None = None) -> float:
        """Return the time in seconds since 1970; a simulation has one for each board."""

    def wait(self, board: str | None, seconds: float, why: str) -> None:
        """Let time pass, of one board or of all; ``why`` is for people.

        Raises KeyboardInterrupt as soon as the night is to end.
        """

    def each(self, work: Callable[[str], None], boards: Sequence[str]) -> None:
        """Do the work of all boards, in parallel where possible."""

    def build(self, name: str, side: str) -> Built:
        """Build a side of a build: ``good``, ``head`` or a commit."""

    def measure(
        self,
        row: NightRow,
        board: str,
        built: Built,
        *,
        began: Callable[[str], None],
        queued: Mapping[str, Built],
    ) -> Measured:
        """Run the recipe of a row, as the first job of ``queued``; ``began`` gets the run's id.

        Those are the next runs of its pair, which are all put into the queue at once.
        """

    def job(self, known: str | None) -> str:
        """Return the job of a run: ``known``, or a new one."""

    def has_begun(self, job: str) -> bool:
        """Return True if a job runs or has ended: it takes no further time to wait for it."""

    def withdraw(self, jobs: Sequence[str]) -> None:
        """Take jobs out of the queue."""

    def trouble(self, board: str) -> Trouble | None:
        """Return the reason not to use a board now; None: there is none."""

    def suspicion(self, board: str) -> str | None:
        """Return the reasons in a board's history not to trust it; None: it is trusted."""

    def suspect(self, board: str, reason: str) -> None:
        """Note that a board's verdicts cannot be trusted."""

    def commits(self, name: str, sides: Mapping[str, Built]) -> Sequence[str]:
        """Return the commits between the last good one and head, without both, oldest first."""
