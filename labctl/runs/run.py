"""The main job: a recipe and a board become a run directory."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from labctl.config.lab import Board
from labctl.config.recipe import Recipe
from labctl.performance.rates import known_rates
from labctl.runs.board.conditions import held
from labctl.runs.board.opening import open_board
from labctl.runs.inputs.prepare import find_files
from labctl.runs.observer import Observer
from labctl.runs.plan.forecast import foresee, plan_trials
from labctl.runs.plan.memory_fit import settled_variants
from labctl.runs.plan.time_budget import RunClock
from labctl.runs.plan.timeouts import planned_limits
from labctl.runs.provenance import plan_record, run_record
from labctl.runs.record.directory import RunDirectory, note_in_index
from labctl.runs.record.journal import Journal
from labctl.runs.runner import Outcome, Runner
from labctl.runs.trial.preparation import bring
from labctl.transport import Transport


@dataclass(frozen=True)
class RunRequest:
    """What to run, where, for which lab."""

    recipe: Recipe
    board: Board
    lab_name: str
    lab_root: Path

    @property
    def max_seconds(self) -> float:
        """The longest that the run may take: by the recipe, or by the board where that is less."""
        return min(self.recipe.max_time, self.board.limits.max_time or self.recipe.max_time)


def conduct(
    request: RunRequest,
    connect: Callable[[], Transport],
    observer: Observer,
    begun: Callable[[RunDirectory], None] | None = None,
) -> Outcome:
    """Look at the board, fetch, plan, deploy, run, record. ``begun`` is told the run's directory.

    Raises ConfigError before anything is run, InfraError when host, link or board broke (finished
    trials stay on disk), JobError when a model cannot be quantised. Programs that fail on the board
    are in the outcome.
    """
    recipe, board = request.recipe, request.board
    files = find_files(recipe, board, request.lab_root)
    with open_board(files, board, connect, observer, lab_root=request.lab_root) as opened:
        prepared, session, offer = opened.prepared, opened.session, opened.offer
        # Planned before gigabytes are sent: what does not fit is refused at once.
        variants, notes = settled_variants(prepared, session.facts)
        max_seconds = request.max_seconds
        foresight = foresee(
            prepared,
            variants,
            session.facts,
            known_rates(request.lab_root, board.name, session.target),
        )
        plan_made = plan_trials(recipe, variants, foresight, max_seconds)
        limits = planned_limits(recipe, plan_made.trials, foresight, max_seconds)
        notes += [*plan_made.notes, *offer.warnings]
        for note in notes:
            observer.note(f"note: {note}")
        stand = bring(opened, observer, request.lab_name)
        lease = session.take_lease(request.lab_name)
        run = run_record(
            prepared,
            session,
            plan_made,
            notes=notes,
            epoch=lease.epoch,
            lab_root=request.lab_root,
        )
        directory = RunDirectory.create(
            request.lab_root / "runs", run, plan_record(stand, plan_made, max_seconds, limits)
        )
        opened.met.ending.enter_context(directory.held())
        observer.note(f"run directory: {directory.path}")
        if begun:
            begun(directory)
        journal = Journal(directory.path, run.id)
        journal.leased(lease)
        runner = Runner(
            bench=stand.bench(run.id, lease, foresight),
            directory=directory,
            journal=journal,
            clock=RunClock(max_seconds, limits, foresight.of),
            observer=observer,
            renew=partial(stand.renewed, lab_name=request.lab_name, leased=journal.leased),
            infra_retries=recipe.infra_retries,
            precision=recipe.repeats_until,
            held=partial(held, stand.conditions),
        )
        try:
            return runner.run(plan_made.trials, run, recipe.gates)
        finally:
            note_in_index(directory, run, observer.note)
