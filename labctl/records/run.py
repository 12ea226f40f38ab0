"""One run: everything needed to identify its measurement, programs, models and board.

The plan and the journal are enough to resume it after any interruption.
"""

from collections import Counter
from collections.abc import Container
from typing import ClassVar, Literal

from pydantic import Field, JsonValue

from labctl.records.base import FileRecord, Moment, NumberedRecord, Record, now
from labctl.records.board import BoardFacts
from labctl.records.trial import Failure, ModelIdentity, TrialLimit


class ArtifactIdentity(Record):
    """The binaries that ran."""

    product: str
    version: str
    target: str
    key: str
    commit: str | None = None
    toolchain: str
    tools: dict[str, str] = Field(description="tool name -> SHA-256")


class NightPart(Record):
    """Role of a run in a night of ``labctl nightly``."""

    #: The side under test.
    HEAD: ClassVar[str] = "head"

    id: str = Field(description="of the night")
    side: str = Field(description="what it measured: head, good (the last good), or a commit")


class RunRecord(NumberedRecord, FileRecord):
    """``run.json``: written before the first trial starts."""

    id: str
    recipe: str
    recipe_resolved: dict[str, JsonValue]
    settings: tuple[str, ...] = Field(
        (), description="changes to the recipe as written, on the command line: `--set tokens=8`"
    )
    board: str
    target: str
    transport: str | None = Field(
        None, description="kind of its transport: hdc, adb, ssh; None: an imported measurement"
    )
    facts: BoardFacts
    artifacts: tuple[ArtifactIdentity, ...]
    models: tuple[ModelIdentity, ...]
    variants: tuple[str, ...] = Field(
        (), description="in the recipe's order, whatever the trials' is: ratios are to the first"
    )
    trials_planned: int
    plan_notes: tuple[str, ...] = Field(
        (), description="changes to keep max_time, and other warnings before the run"
    )
    labctl_version: str
    lab_revision: str | None = Field(None, description="git revision of the lab, -dirty if so")
    host: str
    started: Moment
    epoch: int
    untrusted_board: bool = Field(
        default=False,
        description="True if the board takes untrusted recipes: the run is never a baseline",
    )
    untrusted_recipe: bool = Field(
        default=False, description="True if nobody vouches for this recipe: it was confined"
    )
    job: str | None = Field(None, description="id of the run's job in the queue")
    night: NightPart | None = Field(
        None,
        exclude_if=lambda night: night is None,
        description="the night that it was measured in; None: in none",
    )

    @property
    def program(self) -> ArtifactIdentity | None:
        """The program under test, which is not the agent; None for a program without artifact."""
        return next((one for one in self.artifacts if one.product != "agent"), None)

    @property
    def is_search(self) -> bool:
        """True if it searches for settings: the first variant is the default."""
        return self.recipe_resolved.get("tune") is not None


class GateRecord(Record):
    """Judgement of one gate of the recipe. ``passed`` None = it could not or must not be judged."""

    variant: str
    metric: str
    limit: str = Field(description="the recipe's words: `>= 2.0`, `against last-good`")
    value: float | None = Field(description="in the metric's own unit")
    estimate: str | None = Field(None, description="statistic of the good trials: geometric mean")
    passed: bool | None
    detail: str
    verdict: str | None = Field(
        None, description="of a comparison: same, slower, faster, suspected, can't tell, unlike"
    )
    reference: tuple[str, ...] = Field((), description="ids of the runs that it compared with")
    ratio: float | None = Field(None, description="value over that of the reference")
    ratio_low: float | None = Field(None, description="end of the interval that decides")
    ratio_high: float | None = None

    @property
    def sentence(self) -> str:
        """The gate and how its variant did, for people."""
        return f"{self.variant} {self.metric} {self.limit}: {self.detail}"


class RunEnd(FileRecord):
    """``end.json``: the end of a run; missing = the run is in progress, or its controller died."""

    state: Literal["finished", "failed", "interrupted"]
    failure: Failure | None = Field(None, description="reason for an early end of the run")
    gates: tuple[GateRecord, ...] = ()
    resumed: int = Field(0, description="number of resumes of the run")
    finished: Moment
    out_of_time: bool = Field(
        default=False,
        description="the longest time of an evaluation ended it: accuracies count only what every"
        " variant answered, and a resume continues",
    )


class Annotations(FileRecord):
    """``annotations.json``: tags and note that people give a run at any time after its start."""

    tags: tuple[str, ...] = Field((), description="in the order in which they were given")
    note: str | None = None


class Origin(FileRecord):
    """``origin.json``: the source file of an imported run; runs of this lab do not have it."""

    kind: str = Field(description="format of the file: `bundle`, `llama-bench`")
    file: str = Field(description="base name of the file")
    sha256: str = Field(description="of the file")
    run: str | None = Field(None, description="id in the lab that measured it, if the file has one")
    signed_by: str | None = Field(
        None, description="signer of the file, verified at the import; None: no known signer"
    )
    left_out: tuple[str, ...] = Field((), description="facts that its maker left out")
    imported: Moment


class PlannedRecord(Record):
    """One trial of the plan."""

    number: int = Field(description="position in the run, from 1")
    variant: str
    model: str = Field(description="its key in the recipe")
    repeat: int = Field(description="from 1; 0 = a warm-up")
    parameters: dict[str, bool | int | float | str] = Field(
        description="the variant's engine parameters, defaults resolved"
    )
    tokens: int | None = Field(
        None, description="tokens to generate; None where it is no parameter"
    )
    warm_up_pass: bool = Field(description="True if the program may make its own warm-up pass")
    optional: bool = Field(
        default=False, description="True if it is left out once the result is precise enough"
    )
    guard: bool = Field(
        default=False, description="True if it measures a setting's KL divergence, not its speed"
    )


class PlanRecord(FileRecord):
    """``plan.json``: written before the first trial starts."""

    trials: tuple[PlannedRecord, ...] = Field(description="in the order in which they run")
    max_seconds: float = Field(description="longest time of the run")
    predicted_seconds: float | None = None
    limits: dict[str, TrialLimit] = Field(
        default_factory=dict,
        description="variant -> time limit of each of its trials, until one was measured",
    )
    prompt_sha256: str | None = Field(None, description="of the prompt's UTF-8 bytes")
    program_sha256: str | None = Field(
        None, description="of the program under test; None: the board does not report it"
    )
    files_sha256: dict[str, str] = Field(
        default_factory=dict, description="the recipe's files by name -> SHA-256"
    )

    def due(self, done: Container[int] = ()) -> Counter[str]:
        """Return the number of trials of each variant, without warm-ups.

        Optional trials count only if their number is in ``done``.
        """
        return Counter(
            one.variant
            for one in self.trials
            if one.repeat > 0 and (not one.optional or one.number in done)
        )


class JournalEntry(FileRecord):
    """A line of ``journal.jsonl``: each step is recorded before it is taken.

    ``lease``: the board was taken. ``resumed``: another controller continues the run, on ``board``.
    ``started``: a job is about to be started in ``directory`` on the board. ``cut``: this attempt
    was interrupted and never gets a result; ``failure`` has the reason.
    """

    event: Literal["lease", "resumed", "started", "cut"]
    utc: Moment = Field(default_factory=now)
    number: int | None = Field(None, description="the trial")
    attempt: int | None = Field(None, description="number of the attempt, from 1")
    directory: str | None = None
    board: str | None = None
    boot_id: str | None = None
    failure: Failure | None = None
    lease: dict[str, JsonValue] | None = Field(None, description="the lease as stored on the board")
    user: str | None = Field(None, description="user who took the lease, on this lab's host")
    home: str | None = Field(None, description="that user's home folder")
    lab: str | None = Field(None, description="folder of the lab, when the lease was taken")
    max_time_again: bool | None = Field(
        None, description="`resumed`: an evaluation whose `max_time` was over has all of it again"
    )
