"""What a run was made of, down to the bytes: for its record, and to know it again."""

import importlib.metadata
import platform
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from labctl import process
from labctl.build import Artifact
from labctl.deploy.agents import agent_artifact
from labctl.records import ArtifactIdentity, PlanRecord, RunRecord, TrialLimit
from labctl.runs.board.held_board import BoardSession
from labctl.runs.inputs.prepare import Prepared
from labctl.runs.plan.trials import Plan
from labctl.runs.record.directory import new_run_id
from labctl.runs.trial.preparation import Stand


def run_record(
    prepared: Prepared,
    session: BoardSession,
    plan: Plan,
    *,
    notes: Sequence[str],
    epoch: int,
    lab_root: Path,
) -> RunRecord:
    """The record of a run that begins now."""
    recipe = prepared.recipe
    return RunRecord(
        id=new_run_id(recipe.name),
        recipe=recipe.name,
        recipe_resolved=recipe.resolved(),
        board=session.board.name,
        target=session.board.target,
        facts=session.facts,
        artifacts=artifact_identities(prepared, session, lab_root),
        models=tuple(file.identity for file in prepared.models.values()),
        variants=tuple(variant.slug for variant in recipe.variants()),
        trials_planned=len(plan.trials),
        plan_notes=tuple(notes),
        labctl_version=importlib.metadata.version("labctl"),
        lab_revision=lab_revision(lab_root),
        host=platform.node(),
        started=datetime.now(UTC),
        epoch=epoch,
    )


def plan_record(
    stand: Stand, plan: Plan, max_seconds: float, limits: dict[str, TrialLimit]
) -> PlanRecord:
    """What the run will do."""
    return PlanRecord(
        trials=tuple(trial.record() for trial in plan.trials),
        max_seconds=max_seconds,
        predicted_seconds=plan.predicted_seconds,
        limits=limits,
        prompt_sha256=stand.prepared.prompt_sha256,
        program_sha256=stand.program_sha256,
        files_sha256={name: item.sha256 for name, item in stand.prepared.files.items()},
    )


def artifact_identities(
    prepared: Prepared, session: BoardSession, lab_root: Path
) -> tuple[ArtifactIdentity, ...]:
    """The program under test, and the agent."""
    agent = agent_artifact(session.facts.machine, session.target, lab_root)
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
    """The git revision of the lab, ``-dirty`` when files differ from it; None without git."""
    if shutil.which("git") is None:
        return None
    words = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    done = process.run(words, timeout=20)
    return done.text.strip() if done.exit_status == 0 else None
