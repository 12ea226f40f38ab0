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
    #: The last good source once more, on a board where head fails.
    CHECK = "check"
    BISECT = "bisect"
    #: The comparison that identifies a commit.
    PROVE = "prove"
    #: A run of head whose own gates alone are judged.
    GATE = "gate"
    #: Both sides are the same program: differences are chance.
    SAME = "same"


class NightVerdict(StrEnum):
    """Verdict on one variant of a row."""

    GOOD = "good"
    SLOWER = "slower"
    FAILS = "fails"
    DOES_NOT_BUILD = "does not build"
    SUSPECTED = "suspected"
    #: The board's speed drifts, or changes in a rhythm.
    NOT_JUDGED = "not judged"
    NOT_MONITORED = "not monitored"
    NOT_MEASURED = "not measured"
    SAME = "same program"


class AcceptedChange(Record):
    """An accepted slowdown: head is judged against it while the last good is the same."""

    ratio: float = Field(description="time of head over that of the last good")
    source: str = Field(description="of head when it was accepted")
    good: str = Field(description="source of the last good when it was accepted")


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
    noise_degrees: float | None = Field(None, description="degrees of freedom of the noise")
    scatter_error: float = Field(
        0.01 / 30, description="probability with which chance alone shows a sound board as looping"
    )
    is_too_noisy: bool = Field(
        default=False,
        description="no useful number of pairs finds the slowdown; it is only watched",
    )
    gated: bool = Field(
        default=False,
        description="an evaluation or a load test: only its gates are judged, on a run of head",
    )
    required: bool = Field(default=True, description="the last good moves only if this row is good")
    accepted: dict[str, AcceptedChange] = Field(default_factory=dict, description="by variant")
    value: float = Field(1.0, description="rows of more value are measured first")
    find: float = Field(0.05, description="slowdown that the row must find")
    practical: float = 0.02
    same_within: float = 0.03
    screen: int = Field(description="pairs of the screening")
    look: int = Field(description="pairs of each look of the confirmation")
    mde: float | None = Field(None, description="smallest slowdown that it can find in its time")
    unmonitored: str | None = Field(None, description="reason why it is not measured")


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


class NightEntry(FileRecord):
    """A line of ``night.jsonl``: each step is recorded before it is acted on.

    ``built``, ``unbuilt``: a side of a build exists, or cannot be built; a side is ``good``,
    ``head`` or a commit. ``queued``: a run gets a job, which enters the queue next. ``running``:
    the board has answered, and a run of a row begins, with its id. ``measured``, ``failed``: the
    run ended; after ``failed`` both runs of its pair are repeated. ``moved``: the row moves to
    another board. ``confirming``: the screening is over, and ``count`` variants continue.
    ``gave-up``: the row or the bisection cannot continue. ``searched``: the search for a build's
    commit ended.
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
        "searched",
    ]
    at: float = Field(description="seconds since 1970")
    build: str | None = None
    side: str | None = None
    key: str | None = Field(None, description="of the artifact")
    program: str | None = Field(None, description="digest of the deployed files")
    version: str | None = Field(None, description="label by which recipes name the artifact")
    source: str | None = Field(
        None, description="revision, for people; of a build that failed too, if it is known"
    )
    row: str | None = None
    board: str | None = None
    stage: Stage | None = None
    pair: int | None = None
    turn: int | None = Field(None, description="which run of its pair it was: 1 or 2")
    job: str | None = Field(None, description="of the queue, on a board of another host")
    run: str | None = None
    values: dict[str, float] | None = Field(None, description="time by variant: less is faster")
    seconds: float | None = None
    count: int | None = None
    execution: str | None = None
    failure: Failure | None = None
    reason: str | None = None
    search: "CommitSearch | None" = None


class NightFinding(Record):
    """Verdict on one variant of a row, with its evidence."""

    row: str
    build: str = Field("", description="with its target, as in the night's builds")
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
    accepted: float | None = Field(None, description="accepted time of head over the last good")
    since: str | None = Field(None, description="first of the nights that show the same slowdown")
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
    """Search for the commit of a confirmed slowdown.

    ``named``: ``first`` is the first slow commit. ``range``: the first slow commit is one of the
    candidates. ``none``: head is not slower any more. ``unknown``: nothing could be searched.
    ``complete`` is False if the time ran out, or the board failed.
    """

    build: str
    row: str
    variant: str = Field(description="whose slowdown it is")
    outcome: Literal["named", "range", "none", "unknown"]
    first: str | None
    candidates: tuple[str, ...]
    reason: str
    pairs: int
    complete: bool = Field(default=True)
    night: str | None = Field(None, description="earlier night that searched; None: this one")
    ratio: float | None = Field(
        None, description="time of head over that of the last good in the night that searched"
    )


class SamePrograms(Record):
    """Pairs of equal programs of the last nights: their differences are chance.

    ``ratio``: time of one side over time of the other, geometric mean, with its 99 % interval.
    ``beyond``: pairs that differ by the slowdown to find, or more.
    """

    nights: int
    pairs: int
    beyond: int
    ratio: float
    low: float
    high: float


class NightResult(FileRecord):
    """``result.json``: the findings of a night."""

    id: str
    plan: str
    started: Moment
    finished: datetime
    exit_status: int
    findings: tuple[NightFinding, ...]
    searches: tuple[CommitSearch, ...] = ()
    headlines: tuple[str, ...] = Field(
        (), description="what has no verdict for long, and what keeps the last good where it is"
    )
    accepted: tuple[str, ...] = Field((), description="slowdowns that people accepted, in words")
    same_programs: SamePrograms | None = None
    builds: dict[str, dict[str, str]] = Field(
        default_factory=dict, description="revision of each side, by build"
    )
