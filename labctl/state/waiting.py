"""A waiting job, as the order of the queue needs it."""

from dataclasses import dataclass

from labctl.state.uses import UseKind


@dataclass(frozen=True)
class Waiting:
    """The facts of a waiting job that the order needs; of a unit, those of its next job."""

    id: str
    #: Boards on which it may run, best first.
    boards: tuple[str, ...]
    priority: int
    #: Below 0: moved to the front.
    position: float
    submitter: str
    #: True if its own process waits for a board; no other process runs it.
    is_foreground: bool = False
    #: Maximum duration in s, of a unit that of all its jobs together.
    max_seconds: float = 0.0
    kind: UseKind = "run"
    #: Shared limits that it uses besides those of its board.
    uses: tuple[str, ...] = ()
    #: For people.
    name: str = ""
    #: Expected duration in s, of a unit that of all its jobs together.
    expected_seconds: float = 0.0
    #: Number of attempts that infrastructure interrupted.
    failures: int = 0
    group: str | None = None
    unit: str | None = None
    #: The board that is kept for it, after the last job of its unit.
    kept: str | None = None
    #: SHA-256 of its content, of a unit of those of all its jobs.
    contents: tuple[str, ...] = ()
    #: The board to which a job of a large group was dealt.
    home: str | None = None
