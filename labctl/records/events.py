"""Typed events of a run, written while it is in progress: one line each in ``events.jsonl``.

Only readers use them. A resume needs only plan, journal and records; a run does not depend on
events.
"""

import time
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter

from labctl.records.base import FileRecord, Moment, Record, now, read_document
from labctl.records.board import Execution
from labctl.records.trial import Failure

#: Maximum length of texts; records have the full texts.
MAX_TEXT = 2000


def _text(value: Any) -> Any:
    """Truncate a text, and replace characters that UTF-8 cannot encode."""
    return value.encode("utf-8", "replace").decode()[:MAX_TEXT] if isinstance(value, str) else value


def _short(failure: Failure) -> Failure:
    """Truncate the texts of a failure in the same way."""
    texts = ("kind", "message", "hint", "details")
    return failure.model_copy(update={name: _text(getattr(failure, name)) for name in texts})


Text: TypeAlias = Annotated[str, BeforeValidator(_text)]
ShortFailure: TypeAlias = Annotated[Failure, AfterValidator(_short)]
RunState = Literal["finished", "failed", "interrupted"]


class Event(FileRecord):
    """Something that happened in a run."""

    utc: Moment = Field(default_factory=now)
    mono_ns: int = Field(
        default_factory=time.monotonic_ns,
        description="this host's monotonic clock; it starts at 0 with each boot of the host",
    )


class Contact(Event):
    """The board answered, and matches the recipe. The first event of each controller."""

    event: Literal["contact"] = "contact"
    run: Text
    recipe: Text
    board: Text
    target: Text
    execution: Execution
    resumed: int = Field(0, description="number of earlier resumes of the run")


class _Moving(Event):
    """Something of ``total`` (in any unit) that is ``done`` so far."""

    step: Text = Field(description="name of the step, for people; also its identity")
    done: float = 0
    total: float | None = None
    remaining_s: float | None = Field(None, description="at the mean rate so far; None: unknown")
    per_second: float | None = Field(None, description="that rate; None: unknown")


class Fetch(_Moving):
    """Files are prepared on this host: downloaded, hashed, quantized."""

    event: Literal["fetch"] = "fetch"


class Deploy(_Moving):
    """A file is sent to the board."""

    event: Literal["deploy"] = "deploy"


class Trial(Event):
    """A trial starts, is interrupted and retried, or ends."""

    event: Literal["trial"] = "trial"
    number: int = Field(description="position in the run, from 1")
    trials: int = Field(description="number of planned trials")
    slug: Text
    variant: Text
    state: Literal["started", "retrying", "ok", "failed", "skipped"]
    expected_s: float | None = Field(
        None, description="started: time that the last such trial took"
    )
    run_remaining_s: float | None = Field(
        None, description="started: expected time of this trial and those after it"
    )
    token_ns: float | None = Field(None, description="ok: time of a token")
    reason: Text | None = Field(None, description="retrying or skipped: the reason")
    failure: ShortFailure | None = None


class Progress(Event):
    """Progress of the running trial. ``None`` = unknown, or not reported by the board.

    ``done`` of ``total`` in ``unit`` (tokens, lines, bytes).
    """

    event: Literal["progress"] = "progress"
    number: int | None = Field(None, description="the trial; None: a probe, which has none")
    phase: Text
    elapsed_s: float | None = Field(None, description="since the trial's attempt started")
    remaining_s: float | None = None
    done: int | None = None
    total: int | None = None
    unit: Text = ""
    per_second: float | None = None
    temperature_mc: int | None = None


class Evaluation(Event):
    """An evaluation asks its first question. The first event of each of its controllers."""

    event: Literal["evaluation"] = "evaluation"
    run: Text
    recipe: Text
    planned: int = Field(description="number of generations")
    done: int = Field(0, description="number of generations that were there already")
    resumed: int = Field(0, description="number of earlier resumes of the run")


class LoadTest(Event):
    """A load test begins its first load. The first event of its controller."""

    event: Literal["load-test"] = "load-test"
    run: Text
    recipe: Text


class Load(Event):
    """Progress of one load of a load test."""

    event: Literal["load"] = "load"
    load: Text
    done: int = Field(description="number of measured requests that ended")
    total: int | None = Field(None, description="planned number; None: limited by its time")
    is_warming_up: bool = Field(
        default=False, description="only warm-up requests, which do not count, have ended so far"
    )
    elapsed_s: float
    duration_s: float | None = Field(None, description="planned time of sending")


class RunningAccuracy(Record):
    """Right answers of a variant so far, within its largest budget, by the first grader."""

    variant: Text
    correct: int
    graded: int
    low: float = Field(description="lower end of the 95% interval of the share")
    high: float


class Answers(Event):
    """Progress of an evaluation."""

    event: Literal["answers"] = "answers"
    done: int
    planned: int
    retries: int = Field(0, description="number of retried requests so far")
    remaining_s: float | None = Field(None, description="at the mean rate so far; None: unknown")
    accuracies: tuple[RunningAccuracy, ...] = ()


class Loss(Event):
    """The link to the board is lost and retried; the job on the board continues."""

    event: Literal["loss"] = "loss"
    text: Text


class Note(Event):
    """A line for people."""

    event: Literal["note"] = "note"
    text: Text


class End(Event):
    """The controller leaves the run. Without this event, it is running or died."""

    event: Literal["end"] = "end"
    state: RunState
    exit_status: int = Field(
        description="of `labctl run` without `--strict`, which judges what was written down"
    )
    failure: ShortFailure | None = None


AnyEvent: TypeAlias = (
    Contact
    | Fetch
    | Deploy
    | Trial
    | Progress
    | Evaluation
    | Answers
    | LoadTest
    | Load
    | Loss
    | Note
    | End
)


@cache
def _any_event() -> TypeAdapter[AnyEvent]:
    """Return the validator; built when the first event is read."""
    return TypeAdapter(Annotated[AnyEvent, Field(discriminator="event")])


def read_event(line: bytes, source: Path) -> AnyEvent:
    """Return the event of a line. Raises NewerRecord, and ValueError if it is not an event."""
    return _any_event().validate_python(read_document(line, source), extra="ignore")
