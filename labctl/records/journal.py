"""Plan and journal of a run: enough to resume it after any interruption."""

from datetime import UTC, datetime
from typing import Literal

from pydantic import Field, JsonValue

from labctl.records.base import FileRecord, Record
from labctl.records.trial import Failure, TrialLimit


class PlannedRecord(Record):
    """One trial of the plan."""

    number: int = Field(description="position in the run, from 1")
    variant: str
    model: str = Field(description="its key in the recipe")
    repeat: int = Field(description="from 1; 0 = a warm-up")
    parameters: dict[str, bool | int | float | str] = Field(
        description="the variant's engine parameters, with everything decided"
    )
    tokens: int | None = Field(None, description="to generate; None where it is no parameter")
    warm_up_pass: bool = Field(description="whether the program may make its own warm-up pass")
    optional: bool = Field(
        default=False, description="left out when the result is known well enough by then"
    )


class PlanRecord(FileRecord):
    """``plan.json``: written before the first trial starts."""

    trials: tuple[PlannedRecord, ...] = Field(description="in the order in which they run")
    max_seconds: float = Field(description="all that the run may take")
    predicted_seconds: float | None = None
    limits: dict[str, TrialLimit] = Field(
        default_factory=dict,
        description="variant -> how long each of its trials may run, until one was measured",
    )
    prompt_sha256: str | None = Field(None, description="of the prompt's UTF-8 bytes")
    program_sha256: str | None = Field(
        None, description="of the program under test; None: the board does not report it"
    )
    files_sha256: dict[str, str] = Field(
        default_factory=dict, description="the recipe's files by name -> SHA-256"
    )


class JournalEntry(FileRecord):
    """A line of ``journal.jsonl``: each step is written down before it is taken.

    ``lease``: the board was taken. ``resumed``: another controller takes the run up, on ``board``.
    ``started``: a job is about to be started in ``directory`` on the board. ``cut``: that attempt
    will never be a result, and ``failure`` says why.
    """

    event: Literal["lease", "resumed", "started", "cut"]
    utc: datetime = Field(default_factory=lambda: datetime.now(UTC))
    number: int | None = Field(None, description="the trial")
    attempt: int | None = Field(None, description="from 1: how often the trial was begun")
    directory: str | None = None
    board: str | None = None
    boot_id: str | None = None
    failure: Failure | None = None
    lease: dict[str, JsonValue] | None = Field(None, description="as it lies on the board")
