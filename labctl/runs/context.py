"""The context of a run: its board, its recipe, its records. Each exists once.

The provenance of a run includes hashes, for its record and to recognise its inputs.
"""

import platform
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypeVar

from pydantic import JsonValue

from labctl.board.agent import LINK_LOSSES, BoardAgent
from labctl.board.console import ConsoleLog
from labctl.board.job import JobState
from labctl.board.meter import Meter
from labctl.build.source import run_git
from labctl.config.recipe_parts import Variant
from labctl.distribution import labctl_version
from labctl.errors import BoardRebooted, InfraError, SurvivingProcess
from labctl.folders import work_trees
from labctl.records.board import BoardFacts
from labctl.records.run import ArtifactIdentity, NightPart, PlanRecord, RunRecord
from labctl.records.trial import Failure, TrialLimit, TrialRecord
from labctl.results.gates import CompareGates
from labctl.retry import RETRY_SECONDS, retry_infra
from labctl.runs.board.conditions import BoardConditions
from labctl.runs.board.session import BoardSession
from labctl.runs.inputs.prepare import Prepared
from labctl.runs.inputs.programs import artifact_identity
from labctl.runs.observer import Observer
from labctl.runs.planning.forecast import Forecast
from labctl.runs.planning.time_limits import RunClock
from labctl.runs.planning.trials import Plan, PlannedTrial
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.journal import Attempt, Journal
from labctl.stats.energy import IdlePower
from labctl.transport.base import remote_words

#: A function, because reading it takes longer than planning a run.

T = TypeVar("T")


class MoreTrials(Protocol):
    """Decides on further trials while a run is made, as a search does."""

    def more(self, records: Mapping[int, TrialRecord], planned: int) -> Sequence[PlannedTrial]:
        """Return the trials after the ``planned`` ones, once these have run; empty: the end."""

    def reason_to_skip(self, trial: PlannedTrial) -> str | None:
        """Return why a trial does not begin now; None if it does."""

    def may_drop(self, trial: PlannedTrial) -> bool:
        """Return True if losing the board, or a parameter refused, ends the trial alone."""


@dataclass
class RunContext:
    """Everything that the trials of a run share."""

    held: BoardSession
    prepared: Prepared
    forecast: Forecast
    run: RunRecord
    directory: RunDirectory
    journal: Journal
    clock: RunClock
    observer: Observer
    #: Paths of the recipe's files on the board, by SHA-256.
    paths: Mapping[str, str]
    #: Digest of the program under test; None: the board's own program, whose digest is unknown.
    program_sha256: str | None
    #: Judges the recipe's gates against other runs.
    compare: CompareGates
    #: Meter of the board's power.
    meter: Meter | None = None
    #: Log of the board's console, read while trials run.
    console: ConsoleLog | None = None
    #: When the running trial began, by this host's monotonic clock (s); 0: none has begun.
    began: float = 0.0
    #: Measures divergences for a search; None: it has no such guard.
    guard: Prepared | None = None
    #: Power of the idle board, measured before the first trial, or the reason why it is not known.
    idle: IdlePower | str | None = None
    #: Decides on further trials; None: the plan has all.
    search: MoreTrials | None = None
    conditions: BoardConditions = field(init=False)
    #: Failed variant -> number of its failed trial.
    failed: dict[str, int] = field(default_factory=dict)
    #: The running trial, and the trials after it.
    ahead: Sequence[PlannedTrial] = ()
    #: Attempt at the last trial, while its job is on the board.
    last: Attempt | None = None
    #: Error by which the last finished trial lost the board: no other trial begins.
    lost: InfraError | None = None

    def __post_init__(self) -> None:
        wanted = self.prepared.recipe.conditions
        self.conditions = self.held.conditions(wanted, self.observer.note)

    def failure(self, error: Exception) -> Failure:
        """Return the record of an error, with what the console told since the trial began."""
        failure = Failure.of(error)
        return self.console.explain(failure, self.began) if self.console else failure

    @property
    def agent(self) -> BoardAgent:
        """The board's agent."""
        return self.held.agent

    @property
    def facts(self) -> BoardFacts:
        """The last read facts of the board."""
        return self.held.facts

    def inputs_of(self, trial: PlannedTrial) -> Prepared:
        """Return the inputs of a trial: the run's, or those of a search's guard."""
        return self.guard if trial.guard and self.guard else self.prepared

    @property
    def files(self) -> dict[str, str]:
        """Paths of the recipe's files on the board, by name."""
        return {name: self.paths[item.sha256] for name, item in self.prepared.files.items()}

    @property
    def comparability(self) -> dict[str, JsonValue]:
        """The part of the comparability key that is the same for all trials."""
        artifact = self.prepared.artifact
        return {
            **self.prepared.comparability,
            "build_spec": artifact.manifest.spec if artifact else None,
            "program_sha256": self.program_sha256,
            "kernel": self.facts.kernel,
            "os_version": self.facts.os_version,
            **self.conditions.unlike,
        }

    @property
    def reattach_seconds(self) -> float:
        """Time in s during which a lost link is reopened."""
        return self.prepared.recipe.timeouts.reattach or RETRY_SECONDS

    def model_path(self, key: str) -> str:
        """Path of a model on the board."""
        return self.paths[self.prepared.models[key].identity.sha256]

    def job_directory(self, attempt: Attempt) -> str:
        """Folder of an attempt's job on the board."""
        return self.agent.job_directory(attempt.directory)

    def retry(self, step: Callable[[], T]) -> T:
        """Do a step that may safely be repeated, also if the link is lost meanwhile."""
        return retry_infra(
            step,
            on=LINK_LOSSES,
            timeout=self.reattach_seconds,
            on_retry=self.observer.link_lost,
        )

    def take_lease(self) -> None:
        """Take the board again; this ends jobs of the earlier lease."""
        self.journal.leased(self.retry(self.held.take_lease))

    def renew(self) -> None:
        """Wait until the board answers again, and renew its lease if needed.

        It is needed after a restart, and if the lease is of an earlier controller. Raises LinkError
        (it does not answer), LeaseLost, BoardError (it is another board now, or another labctl of
        this host was faster).
        """
        if self.held.renew(self.retry) or self.held.claim.is_inherited:
            self.take_lease()

    def is_begun(self, attempt: Attempt) -> bool:
        """Return True if the job of an earlier controller's attempt ever reached the board.

        Raises LinkError if the link stays lost.
        """
        directory = self.job_directory(attempt)
        try:
            return self.retry(lambda: self.agent.poll(directory)).state is not JobState.ABSENT
        except BoardRebooted:
            return True

    def remove_job(self, attempt: Attempt) -> None:
        """Remove an attempt's files from the board. Raises LinkError if the link stays lost."""
        self.retry(lambda: self.agent.remove(self.job_directory(attempt)))

    def leave_board(self, attempt: Attempt) -> None:
        """Remove the last attempt's files from the board, and release the lease with them.

        Raises as :meth:`remove_job` does.
        """
        removal = self.agent.removal(self.job_directory(attempt))
        self.retry(lambda: self.held.claim.release(removal))

    def remove_other_jobs(self, attempt: Attempt | None) -> None:
        """Remove files of a run's earlier controllers from the board, except an open attempt's.

        A controller leaves files if it dies, or loses the board, between a trial's record and
        :meth:`remove_job` or :meth:`leave_board`. Raises LinkError if the link stays lost.
        """
        open_one = attempt.directory if attempt and attempt.open else None
        self.retry(lambda: self.agent.remove_others(f"{self.run.id}-", but=open_one))

    def stop_job(self, attempt: Attempt) -> None:
        """End a job whose result nobody will fetch; without a link, its own time-out ends it."""
        directory = self.job_directory(attempt)
        try:
            self.agent.stop(directory)
        except SurvivingProcess as error:
            self.lost = error
            self.held.survivors.put_board_aside(error)
        except InfraError:
            pass  # after a restart the job is gone, but its files remain
        with suppress(InfraError):
            self.agent.remove(directory)


_HASH_SECONDS = 60.0


def run_record(
    run_id: str,
    held: BoardSession,
    prepared: Prepared,
    plan: Plan,
    *,
    notes: Sequence[str],
    untrusted: bool = False,
    job: str | None = None,
    night: NightPart | None = None,
    variants: Sequence[Variant] = (),
) -> RunRecord:
    """Return the record of a run that begins now, under the board's lease.

    ``variants``: the run's variants, by default the recipe's.
    """
    recipe = prepared.recipe
    return RunRecord(
        id=run_id,
        recipe=recipe.name,
        recipe_resolved=recipe.resolved(),
        settings=recipe.settings,
        board=held.board.name,
        target=held.board.target,
        transport=held.board.transport.kind,
        facts=held.facts,
        artifacts=artifact_identities(held, prepared),
        models=tuple(file.identity for file in prepared.models.values()),
        variants=tuple(variant.slug for variant in variants or recipe.variants()),
        trials_planned=len(plan.trials),
        plan_notes=tuple(notes),
        labctl_version=labctl_version(),
        lab_revision=lab_revision(held.lab.root),
        host=platform.node(),
        started=datetime.now(UTC),
        epoch=held.claim.epoch,
        untrusted_board=held.board.untrusted,
        untrusted_recipe=untrusted,
        job=job,
        night=night,
    )


def plan_record(
    prepared: Prepared,
    plan: Plan,
    max_seconds: float,
    limits: dict[str, TrialLimit],
    program_sha256: str | None,
) -> PlanRecord:
    """Return the record of the run's plan."""
    return PlanRecord(
        trials=tuple(trial.record() for trial in plan.trials),
        max_seconds=max_seconds,
        predicted_seconds=plan.predicted_seconds,
        limits=limits,
        prompt_sha256=prepared.prompt_sha256,
        program_sha256=program_sha256,
        files_sha256={name: item.sha256 for name, item in prepared.files.items()},
    )


def program_sha256(held: BoardSession, prepared: Prepared) -> str | None:
    """Hash the program to run, also if it is the board's own program."""
    if prepared.program is not None:
        return prepared.program.sha256
    asked = remote_words(held.agent.path, "hash", prepared.tool.name)
    answer = held.transport.run(asked, timeout=_HASH_SECONDS).text.partition(" ")[0].strip()
    return answer if re.fullmatch("[0-9a-f]{64}", answer) else None


def artifact_identities(held: BoardSession, prepared: Prepared) -> tuple[ArtifactIdentity, ...]:
    """List the program under test, and the agent."""
    found = (prepared.artifact, held.agent_artifact)
    return tuple(artifact_identity(artifact) for artifact in found if artifact is not None)


def lab_revision(root: Path) -> str | None:
    """Return the git revision of the lab, ``-dirty`` if files differ from it; None without git."""
    if shutil.which("git") is None or not work_trees(root.resolve()):
        return None  # no repository: git would take some ms to find out
    words = ("-C", str(root.absolute()), "describe", "--always", "--dirty", "--abbrev=40")
    done = run_git(*words, timeout=20)
    return done.text.strip() if done.exit_status == 0 else None
