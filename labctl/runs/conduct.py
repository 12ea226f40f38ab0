"""The main job: a recipe and a board become a run directory."""

import importlib.metadata
import platform
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from labctl import process
from labctl.build import Artifact
from labctl.config.lab import Board
from labctl.config.recipe import Recipe
from labctl.config.variants import Variant
from labctl.deploy import DeployOptions, Stopwatch, deploy, refuse
from labctl.errors import HostError
from labctl.records import ArtifactIdentity, RunRecord
from labctl.runs.deploying import make_offer, program_object, sending
from labctl.runs.directory import RunDirectory, index_of, new_run_id
from labctl.runs.execute import Bench, DeployedModel
from labctl.runs.fit import memory_of, settled_variants
from labctl.runs.observer import Observer
from labctl.runs.plan import TOKENS, Amount, Plan, make_plan
from labctl.runs.predict import predictions, trial_predictor
from labctl.runs.prepare import Prepared, prepare
from labctl.runs.runner import Outcome, Runner
from labctl.runs.session import BoardSession, agent_artifact, bring_agent, meet_board
from labctl.transport import Transport

#: How long a lost link is taken up again before the run ends; the job on the board goes on.
REATTACH_SECONDS = 60.0


@dataclass(frozen=True)
class RunRequest:
    """What to run, where, for which lab."""

    recipe: Recipe
    board: Board
    lab_name: str
    lab_root: Path


def conduct(request: RunRequest, transport: Transport, observer: Observer) -> Outcome:
    """Prepare, plan, deploy, run, record.

    Raises ConfigError before anything is run, InfraError when host, link or board broke (finished
    trials stay on disk), JobError when a model cannot be quantised. Programs that fail on the board
    are in the outcome.
    """
    recipe, board = request.recipe, request.board
    prepared = prepare(recipe, board, request.lab_root, observer.step)
    with meet_board(board, transport, lab_root=request.lab_root) as met:
        offer = make_offer(met, [prepared])
        refuse(offer.problems, board.name)
        session = bring_agent(met, request.lab_root, sending(observer))
        # Planned before gigabytes are sent: what does not fit is refused at once.
        variants, notes = settled_variants(prepared, session.facts)
        max_seconds = min(recipe.max_time, board.limits.max_time or recipe.max_time)
        plan_made = _plan(prepared, variants, session, max_seconds)
        notes += [*plan_made.notes, *offer.warnings]
        for note in notes:
            observer.note(f"note: {note}")
        watch = Stopwatch()
        paths = deploy(
            session.store,
            offer.plan,
            DeployOptions(progress=sending(observer), pace=watch, on_loss=observer.link_lost),
        )
        watch.note(met.rate_file)
        models = {
            key: DeployedModel(file.identity, paths[file.identity.sha256])
            for key, file in prepared.models.items()
        }
        lease = session.take_lease(request.lab_name)
        run = _run_record(request, prepared, session, plan_made, notes, epoch=lease.epoch)
        directory = RunDirectory.create(request.lab_root / "runs", run)
        observer.note(f"run directory: {directory.path}")
        runner = Runner(
            bench=Bench(
                board=board.name,
                target=board.target,
                facts=session.facts,
                agent=session.agent,
                epoch=lease.epoch,
                lease_path=session.leases.path,
                check_lease=partial(session.leases.check, lease),
                run_id=run.id,
                engine=prepared.engine,
                tool=prepared.tool,
                program=paths[program_object(prepared).sha256],
                prompt=prepared.prompt,
                models=models,
                reattach_seconds=recipe.timeouts.reattach or REATTACH_SECONDS,
                on_link_loss=observer.link_lost,
                files={name: paths[item.sha256] for name, item in prepared.files.items()},
                conditions=prepared.conditions,
            ),
            directory=directory,
            max_seconds=max_seconds,
            trial_seconds=recipe.timeouts.trial,
            observer=observer,
        )
        try:
            return runner.run(plan_made, run, recipe.gates)
        finally:
            _index(directory, run, observer)


def _plan(
    prepared: Prepared, variants: list[Variant], session: BoardSession, max_seconds: float
) -> Plan:
    recipe = prepared.recipe
    predicted = predictions(
        {variant.slug: memory_of(prepared, variant) for variant in variants},
        session.facts,
        session.target.expectations,
        prepared.prompt,
    )
    wanted = Amount(
        recipe.repeats,
        recipe.warm_up,
        {
            variant.slug: int(variant.parameters[TOKENS])
            for variant in variants
            if TOKENS in variant.parameters
        },
    )
    return make_plan(
        variants,
        wanted,
        interleaved=recipe.order == "interleaved",
        max_seconds=max_seconds,
        min_tokens=recipe.min_tokens,
        predict=trial_predictor(predicted if prepared.engine.is_generation else {}),
    )


def _run_record(
    request: RunRequest,
    prepared: Prepared,
    session: BoardSession,
    plan_made: Plan,
    notes: list[str],
    *,
    epoch: int,
) -> RunRecord:
    agent = agent_artifact(session.facts.machine, session.target, request.lab_root)
    return RunRecord(
        id=new_run_id(request.recipe.name),
        recipe=request.recipe.name,
        recipe_resolved=request.recipe.resolved(),
        board=request.board.name,
        target=request.board.target,
        facts=session.facts,
        artifacts=(_identity(prepared.artifact), _identity(agent)),
        models=tuple(file.identity for file in prepared.models.values()),
        trials_planned=len(plan_made.trials),
        plan_notes=tuple(notes),
        labctl_version=importlib.metadata.version("labctl"),
        lab_revision=lab_revision(request.lab_root),
        host=platform.node(),
        started=datetime.now(UTC),
        epoch=epoch,
    )


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


def _index(directory: RunDirectory, run: RunRecord, observer: Observer) -> None:
    """The index is made again from the directories: a failure here must not cost the run."""
    try:
        index_of(directory.path.parent).add(run, directory.trials())
    except HostError as error:
        observer.note(f"note: {error.message}")
