"""One run: everything needed to say what was measured, with what, on which board."""

from datetime import datetime
from typing import Literal

from pydantic import AwareDatetime, Field, JsonValue

from labctl.records.base import FileRecord, Record
from labctl.records.board import BoardFacts
from labctl.records.model import ModelIdentity
from labctl.records.trial import Failure


class ArtifactIdentity(Record):
    """The binaries that ran."""

    product: str
    version: str
    target: str
    key: str
    commit: str | None = None
    toolchain: str
    tools: dict[str, str] = Field(description="tool name -> SHA-256")


class RunRecord(FileRecord):
    """``run.json``: written before the first trial starts."""

    id: str
    recipe: str
    recipe_resolved: dict[str, JsonValue]
    board: str
    target: str
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
    started: datetime
    epoch: int


class GateRecord(Record):
    """One gate of the recipe, judged. ``passed`` None = it could not or must not be judged."""

    variant: str
    metric: str
    limit: str = Field(description="the recipe's words: `>= 2.0`, `<= 20s`")
    value: float | None = Field(description="in the metric's own unit")
    passed: bool | None
    detail: str


class RunEnd(FileRecord):
    """``end.json``: how a run ended; missing = it is under way, or its controller died."""

    state: Literal["finished", "failed", "interrupted"]
    failure: Failure | None = Field(None, description="reason why the run ended early")
    gates: tuple[GateRecord, ...] = ()
    resumed: int = Field(0, description="number of resumes of the run")
    finished: AwareDatetime
