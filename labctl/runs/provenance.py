"""Provenance of a run, down to the bytes: for its record, and to recognise its inputs."""

import importlib.metadata
import platform
import re
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from labctl import process
from labctl.build import Artifact
from labctl.deploy.plan import agent_artifact
from labctl.records import ArtifactIdentity, PlanRecord, RunRecord, TrialLimit
from labctl.runs.board.held_board import HeldBoard
from labctl.runs.inputs.prepare import Prepared
from labctl.runs.planning.trials import Plan
from labctl.transport import remote_words

_HASH_SECONDS = 60.0


def run_record(
    run_id: str, held: HeldBoard, prepared: Prepared, plan: Plan, *, notes: Sequence[str]
) -> RunRecord:
    """Make the record of a run that begins now, under the board's lease."""
    recipe = prepared.recipe
    return RunRecord(
        id=run_id,
        recipe=recipe.name,
        recipe_resolved=recipe.resolved(),
        board=held.board.name,
        target=held.board.target,
        facts=held.facts,
        artifacts=artifact_identities(held, prepared),
        models=tuple(file.identity for file in prepared.models.values()),
        variants=tuple(variant.slug for variant in recipe.variants()),
        trials_planned=len(plan.trials),
        plan_notes=tuple(notes),
        labctl_version=importlib.metadata.version("labctl"),
        lab_revision=lab_revision(held.lab.root),
        host=platform.node(),
        started=datetime.now(UTC),
        epoch=held.epoch,
    )


def plan_record(
    prepared: Prepared,
    plan: Plan,
    max_seconds: float,
    limits: dict[str, TrialLimit],
    program_sha256: str | None,
) -> PlanRecord:
    """Make the record of what the run will do."""
    return PlanRecord(
        trials=tuple(trial.record() for trial in plan.trials),
        max_seconds=max_seconds,
        predicted_seconds=plan.predicted_seconds,
        limits=limits,
        prompt_sha256=prepared.prompt_sha256,
        program_sha256=program_sha256,
        files_sha256={name: item.sha256 for name, item in prepared.files.items()},
    )


def program_sha256(held: HeldBoard, prepared: Prepared) -> str | None:
    """Hash the program that is run, also where it is the board's own."""
    if prepared.program is not None:
        return prepared.program.sha256
    asked = remote_words(held.agent.path, "hash", prepared.tool.name)
    answer = held.transport.run(asked, timeout=_HASH_SECONDS).text.partition(" ")[0].strip()
    return answer if re.fullmatch("[0-9a-f]{64}", answer) else None


def artifact_identities(held: HeldBoard, prepared: Prepared) -> tuple[ArtifactIdentity, ...]:
    """List the program under test, and the agent."""
    agent = agent_artifact(held.facts.machine, held.target, held.lab.root)
    return tuple(_identity(a) for a in (prepared.artifact, agent) if a is not None)


def _identity(artifact: Artifact) -> ArtifactIdentity:
    manifest = artifact.manifest
    return ArtifactIdentity(
        product=manifest.product,
        version=manifest.version,
        target=manifest.target,
        key=manifest.key,
        commit=manifest.commit,
        toolchain=str(manifest.toolchain),
        tools={name: tool.sha256 for name, tool in manifest.tools.items()},
    )


def lab_revision(root: Path) -> str | None:
    """Return the git revision of the lab, ``-dirty`` if files differ from it; None without git."""
    if shutil.which("git") is None:
        return None
    words = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    done = process.run(words, timeout=20)
    return done.text.strip() if done.exit_status == 0 else None
