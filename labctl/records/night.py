"""Records of a night: its plan, its steps and its findings."""

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field

from labctl.errors import Blame
from labctl.records.base import FileRecord, Moment, Record
from labctl.records.trial import Failure


class Stage(StrEnum):
    """Part of a night that a measurement belongs to."""

    SCREEN = "screen"
    CONFIRM = "confirm"
    #: The last good once more, on a board on which head fails.
    CHECK = "check"
    BISECT = "bisect"
    #: The comparison that names a commit.
    PROVE = "prove"


class NightVerdict(StrEnum):
    """Verdict on one variant of a row."""

    GOOD = "good"
    SLOWER = "slower"
    FAILS = "fails"
    DOES_NOT_BUILD = "does not build"
    SUSPECTED = "suspected"
    NOT_MONITORED = "not monitored"
    NOT_MEASURED = "not measured"


class NightRow(Record):
    """A recipe on a board with one pair of builds. Shares: 0.05 is 5 %."""

    name: str = Field(description="unique in the night: BUILD/RECIPE@BOARD")
    build: str
    recipe: str = Field(description="as the plan names it")
    board: str
    equals: tuple[str, ...] = Field((), description="boards that can replace it, in their order")
    variants: tuple[str, ...]
    seconds: float = Field(description="expected duration of one run of the recipe")
    noise: float | None = Field(None, description="of one run's value, of its logarithm")
    value: float = Field(1.0, description="rows of more value are measured first")
    find: float = Field(0.05, description="slowdown that the row must find")
    practical: float = 0.02
    same_within: float = 0.03
    screen: int = Field(description="pairs of the screening")
    look: int = Field(description="pairs of each look of the confirmation")
    mde: float | None = Field(None, description="smallest slowdown that it can find in its time")
    unmonitored: str | None = Field(None, description="reason why it is not measured")

    @property
    def is_too_noisy(self) -> bool:
        """True if no number of pairs can find the required slowdown."""
        return self.unmonitored is not None and not self.screen


class NightRecord(FileRecord):
    """``night.json``: the plan of a night as it was resolved."""

    id: str
    plan: str
    started: Moment
    deadline: float = Field(description="seconds since 1970")
    bisect: bool
    rows: tuple[NightRow, ...]
    plan_sha256: str = Field("", description="of the plan's file")
    recipes: dict[str, str] = Field(
        default_factory=dict, description="text of each recipe, by its name in the rows"
    )

    @property
    def has_recipes(self) -> bool:
        """True if it has the recipes of its rows; older nights have none."""
        return all(row.recipe in self.recipes for row in self.rows)


class NightEntry(FileRecord):
    """A line of ``night.jsonl``: each step is recorded before it is acted on.

    ``built``, ``unbuilt``: a side of a build exists, or cannot; a side is ``good``, ``head`` or a
    commit. ``queued``: a run gets a job, which is put into the queue next. ``running``: the board
    has answered, and a run of a row begins, with its id. ``measured``, ``failed``: its end; after
    ``failed`` both runs of its pair begin again. ``moved``: the row goes to another board.
    ``confirming``: the screening is over, and ``count`` variants continue. ``gave-up``: the row or
    the bisection cannot continue.
    """

    event: Literal[
        "built",
        "unbuilt",
        "queued",
        "running",
        "measured",
        "failed",
        "moved",
        "confirming",
        "gave-up",
    ]
    at: float = Field(description="seconds since 1970")
    build: str | None = None
    side: str | None = None
    key: str | None = Field(None, description="of the artifact: equal where the program is")
    version: str | None = Field(None, description="label by which recipes name the artifact")
    source: str | None = Field(
        None, description="revision, for people; of a build that failed too, if it is known"
    )
    row: str | None = None
    board: str | None = None
    stage: Stage | None = None
    pair: int | None = None
    job: str | None = Field(None, description="of the queue, on a board of another host")
    run: str | None = None
    values: dict[str, float] | None = Field(None, description="time by variant: less is faster")
    seconds: float | None = None
    count: int | None = None
    execution: str | None = None
    failure: Failure | None = None
    reason: str | None = None


class NightFinding(Record):
    """Verdict on one variant of a row, with its evidence."""

    row: str
    variant: str
    board: str
    verdict: NightVerdict
    reason: str
    blame: Blame | None = None
    ratio: float | None = Field(None, description="time of head over that of the last good")
    low: float | None = None
    high: float | None = None
    level: float | None = None
    pairs: int = 0
    mde: float | None = None
    execution: str | None = None
    runs: tuple[str, ...] = ()
    left: dict[str, str] = Field(
        default_factory=dict, description="boards that the row left tonight -> why, in their order"
    )
    details: str | None = Field(
        None, description="first lines of the compiler's errors, or the end of the program's output"
    )
    seconds: float = Field(
        0.0,
        description="duration of its runs, also on boards that it left; of a run of several"
        " variants its share",
    )


class CommitSearch(Record):
    """Search for the commit of a confirmed slowdown. ``first`` is None where it is a range."""

    build: str
    row: str
    first: str | None
    candidates: tuple[str, ...]
    reason: str
    pairs: int


class NightResult(FileRecord):
    """``result.json``: the findings of a night."""

    id: str
    plan: str
    started: Moment
    finished: datetime
    exit_status: int
    findings: tuple[NightFinding, ...]
    searches: tuple[CommitSearch, ...] = ()
    builds: dict[str, dict[str, str]] = Field(
        default_factory=dict, description="revision of each side, by build"
    )
