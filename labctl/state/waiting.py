"""A waiting job: the facts that the order of the queue needs."""

from dataclasses import dataclass

from labctl.state.uses import UseKind


@dataclass(frozen=True)
class Waiting:
    """A waiting job's facts that the order needs; for a unit, facts of its next job."""

    id: str
    #: Boards on which it may run, best first.
    boards: tuple[str, ...]
    priority: int
    #: Below 0: moved to the front.
    position: float
    submitter: str
    #: True if its own process waits for a board; no other process may run it.
    is_foreground: bool = False
    #: Maximum duration in s; for a unit, the sum over all its jobs.
    max_seconds: float = 0.0
    kind: UseKind = "run"
    #: Shared limits that it uses in addition to its board's limits.
    uses: tuple[str, ...] = ()
    #: For people.
    name: str = ""
    #: Expected duration in s; for a unit, the sum over all its jobs.
    expected_seconds: float = 0.0
    #: Number of attempts that infrastructure interrupted.
    failures: int = 0
    group: str | None = None
    unit: str | None = None
    #: The board that is kept for it after the last job of its unit.
    kept: str | None = None
    #: SHA-256 of its content; for a unit, of each job's content.
    contents: tuple[str, ...] = ()
    #: The board to which a job of a large group was dealt.
    home: str | None = None
