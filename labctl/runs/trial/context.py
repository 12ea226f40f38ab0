"""What a run needs on its board, and how its jobs are left there."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import JsonValue

from labctl.board import LINK_LOSSES, BoardAgent, JobState
from labctl.board.job import DEFAULT_SAMPLE_MS
from labctl.board.meter import Meter
from labctl.config.scheduling import Scheduling
from labctl.engines import Engine, Tool
from labctl.errors import BoardRebooted, InfraError
from labctl.performance.bottleneck import Ground
from labctl.records import BoardFacts, ConditionRecord, ModelIdentity
from labctl.retry import retry_infra
from labctl.runs.plan.forecast import Foresight
from labctl.runs.record.journal import Attempt

T = TypeVar("T")


@dataclass(frozen=True)
class DeployedModel:
    """A model, and where it lies on the board."""

    identity: ModelIdentity
    remote: str


@dataclass(frozen=True)
class Bench:
    """Everything that stays the same from trial to trial."""

    board: str
    target: str
    facts: BoardFacts
    agent: BoardAgent
    epoch: int
    lease_path: str
    check_lease: Callable[[], None]  # raises LeaseLost
    run_id: str
    engine: Engine[Any]
    tool: Tool
    program: str  # its path on the board
    prompt: str | None
    models: Mapping[str, DeployedModel]
    reattach_seconds: float
    #: Told of each time that the link is gone and taken up again.
    on_link_loss: Callable[[InfraError], None]
    #: The same for all trials, and of what makes two records unlike: which build, which prompt.
    comparability: Mapping[str, JsonValue] = field(default_factory=dict)
    #: Which CPUs a job gets, and its priority.
    scheduling: Scheduling = field(default_factory=Scheduling)
    #: How often the agent samples the board, in ms; 0: never.
    sample_ms: int = DEFAULT_SAMPLE_MS
    #: The recipe's files by name: where they are on the board.
    files: Mapping[str, str] = field(default_factory=dict)
    #: Waits, so many seconds at most, until the board is in the state that the recipe asks for.
    ready: Callable[[float], tuple[ConditionRecord, ...]] = lambda _longest_s: ()
    #: What is known beforehand of the trials on this board.
    foresight: Foresight | None = None
    #: Of what the board draws.
    meter: Meter | None = None
    #: Of the source that the program was built from, where labctl built it.
    revision: str | None = None
    #: How often another controller took the run up again.
    resumed: int = 0

    def ground(self, slug: str) -> Ground | None:
        """What a variant's number is held against; None where nothing is known."""
        return self.foresight.ground(slug) if self.foresight else None

    def job_directory(self, attempt: Attempt) -> str:
        """Where an attempt's job is on the board."""
        return self.agent.job_directory(attempt.directory)


def again(bench: Bench, step: Callable[[], T]) -> T:
    """Do what can safely be done twice, also over a link that is lost meanwhile."""
    return retry_infra(
        step, on=LINK_LOSSES, timeout=bench.reattach_seconds, on_retry=bench.on_link_loss
    )


def is_begun(bench: Bench, attempt: Attempt) -> bool:
    """Whether the job of an attempt that an earlier controller began was ever on the board.

    Raises LinkError when the link stays lost.
    """
    directory = bench.job_directory(attempt)
    try:
        return again(bench, lambda: bench.agent.poll(directory)).state is not JobState.ABSENT
    except BoardRebooted:
        return True


def leave_nothing(bench: Bench, attempt: Attempt) -> None:
    """Remove what an attempt left on the board. Raises LinkError when the link stays lost."""
    again(bench, lambda: bench.agent.remove(bench.job_directory(attempt)))


def leave_nothing_else(bench: Bench, attempt: Attempt | None) -> None:
    """Remove what earlier controllers of a run left on the board, but for an open attempt.

    One that died, or lost the board, between a trial's record and :func:`leave_nothing` left it.
    Raises LinkError when the link stays lost.
    """
    open_one = attempt.directory if attempt and attempt.open else None
    again(bench, lambda: bench.agent.remove_others(f"{bench.run_id}-", but=open_one))


def leave_quiet(bench: Bench, attempt: Attempt) -> None:
    """End a job whose result nobody will fetch; without a link, its own time-out ends it."""
    directory = bench.job_directory(attempt)
    with suppress(InfraError):  # a board that restarted has no such job, but its files
        bench.agent.stop(directory)
    with suppress(InfraError):
        bench.agent.remove(directory)
