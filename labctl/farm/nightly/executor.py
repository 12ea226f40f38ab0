"""Interface of a night to builds, runs, boards and the time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from labctl.records.night import NightRow
from labctl.records.run import NightPart

GOOD, HEAD = "good", NightPart.HEAD


@dataclass(frozen=True)
class Built:
    """One side of a build.

    ``key`` is the key of its artifact; ``program`` a digest of its deployed files, equal if all
    bytes are equal. ``source`` is for people; ``side`` is ``good``, ``head`` or a commit, when the
    night knows it.
    """

    key: str
    version: str
    source: str
    program: str = ""
    side: str = ""


@dataclass(frozen=True)
class Measured:
    """The result of one run: a time for each variant; lower is faster."""

    run: str
    values: Mapping[str, float]
    seconds: float
    execution: str


@dataclass(frozen=True)
class Trouble:
    """The reason not to use a board now; ``passes``: it can end without a decision by people."""

    reason: str
    passes: bool = False


class Executor(Protocol):
    """Builds and measures. Failures raise the errors of :mod:`labctl.errors`, with blame.

    ServiceAway affects all boards alike: the night waits. Other errors of infrastructure count
    against the board.
    """

    def now(self, board: str | None = None) -> float:
        """Return the time in seconds since 1970; a simulation has a clock for each board."""

    def wait(self, board: str | None, seconds: float, why: str) -> None:
        """Let time pass for one board or for all; ``why`` is for people.

        Raises KeyboardInterrupt as soon as the night must end.
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

        ``queued`` has the next runs of its pair, which are all added to the queue at once.
        """

    def job(self, known: str | None) -> str:
        """Return the job of a run: ``known``, or a new job."""

    def has_begun(self, job: str) -> bool:
        """Return True if a job runs or has ended: it needs no further time in the plan."""

    def withdraw(self, jobs: Sequence[str]) -> None:
        """Remove jobs from the queue."""

    def trouble(self, board: str) -> Trouble | None:
        """Return the reason not to use a board now; None without such a reason."""

    def suspicion(self, board: str) -> str | None:
        """Return the reasons in a board's history not to trust it; None: it is trusted."""

    def suspect(self, board: str, reason: str) -> None:
        """Mark a board whose verdicts cannot be trusted."""

    def commits(self, name: str, sides: Mapping[str, Built]) -> Sequence[str]:
        """Return the commits after the last good one and before head, oldest first."""
