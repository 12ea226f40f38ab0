"""``labctl run``: run a recipe on a board into a run directory."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

from labctl.board.console import console_of
from labctl.build.plan import BuildRequest
from labctl.config.lab import Board, LabFile
from labctl.config.recipe import Recipe
from labctl.records.board import BoardFacts
from labctl.records.run import NightPart
from labctl.results.gates import CompareGates, leave_open
from labctl.runs.board.deploy_preview import take_and_send
from labctl.runs.board.lab_lease import RUN, BoardUse
from labctl.runs.board.opening import WayToBoard
from labctl.runs.board.session import BoardSession
from labctl.runs.context import RunContext, plan_record, program_sha256, run_record
from labctl.runs.inputs.guard import guard_files
from labctl.runs.inputs.prepare import find_files
from labctl.runs.inputs.programs import known_agent_notes
from labctl.runs.observer import Observer, RunSession
from labctl.runs.planning.forecast import make_forecast, plan_trials
from labctl.runs.planning.settings import plan_search, refuse_search, trial_of
from labctl.runs.planning.time_limits import RunClock, longest_seconds, planned_limits
from labctl.runs.planning.trials import Plan
from labctl.runs.record.directory import RunDirectory, new_run_id
from labctl.runs.record.journal import Journal
from labctl.runs.runner import Judge, Outcome, run_trials, usual_status
from labctl.runs.search import begin_search
from labctl.runs.trial.energy import working_meter
from labctl.transport.base import Transport


@dataclass(frozen=True)
class RunRequest:
    """A request for a run: recipe, board, lab.

    ``build`` builds the agent once the board's machine is known; None: nothing is built.
    ``compare`` judges the gates against other runs. ``untrusted``: the recipe is untrusted.
    ``check_board`` may refuse the board after each look; ``before_use`` gets the board under the
    run's lease, before files of the recipe are sent, and may refuse it too. ``use`` has the user
    and the job for which the board is taken; a run of another kind is a part of that job, not its
    result. Others may use the board in ``aside``, while models are fetched. ``night``: the night of
    the run.
    """

    recipe: Recipe
    board: Board
    lab: LabFile
    build: Callable[[BuildRequest], object] | None = None
    compare: CompareGates = leave_open
    untrusted: bool = False
    check_board: Callable[[BoardFacts], None] = lambda _facts: None
    before_use: Callable[[BoardSession], None] = lambda _held: None
    use: BoardUse = RUN
    aside: Callable[[], AbstractContextManager[None]] = nullcontext
    night: NightPart | None = None

    def use_of(self, run: str) -> BoardUse:
        """Return the use of the board by a run with this id."""
        return replace(
            self.use,
            purpose=f"run {self.recipe.name}",
            max_seconds=self.max_seconds,
            kind="untrusted" if self.untrusted else self.use.kind,
            run=run,
        )

    @property
    def max_seconds(self) -> float:
        """Maximum time of the run: the recipe's or the board's, whichever is less."""
        return longest_seconds(self.recipe, [self.board])


def run_recipe(
    request: RunRequest,
    connect: Callable[[Board], Transport],
    observer: Observer,
    judge: Judge = usual_status,
) -> Outcome:
    """Run a recipe on its board.

    The run's last event has the exit status that ``judge`` gives it. Raises the errors of
    :func:`run_recorded`.
    """
    with RunSession(observer) as session:
        outcome = run_recorded(request, partial(connect, request.board), observer, session)
        session.finished(judge(outcome))
        return outcome


def run_recorded(
    request: RunRequest,
    connect: Callable[[], Transport],
    observer: Observer,
    session: RunSession,
) -> Outcome:
    """Look at the board, fetch, plan, deploy, run; record from the board's answer on.

    Raises ConfigError before anything runs, InfraError if host, link or board failed (finished
    trials stay on disk), JobError if a model cannot be quantized. Programs that fail on the board
    are in the outcome.
    """
    recipe, board, lab = request.recipe, request.board, request.lab
    max_seconds = request.max_seconds
    files = find_files(recipe, board, lab.root, untrusted=request.untrusted)
    if recipe.tune is not None:
        refuse_search(files, board)
    guards = guard_files(files)
    directory = RunDirectory(lab.root / "runs" / new_run_id(recipe.name))

    use, check = request.use_of(directory.path.name), request.check_board
    with WayToBoard(
        board,
        [files, *guards],
        connect,
        observer,
        lab,
        use,
        check,
        build=request.build,
        aside=request.aside,
    ) as way:
        held = way.look()
        directory.begin()
        session.contact(directory, recipe.name, board, held.facts.execution)
        ready = way.prepare(held)
        held, (prepared, *guard) = ready.held, ready.prepared
        # Planned before gigabytes are sent: a plan that does not fit is refused at once.
        tuning = None
        if recipe.tune is not None:
            forecast, tuning = plan_search(prepared, held.facts, held.rates, max_seconds, *guard)
            plan = Plan((), None, ())
            possible = [trial_of(0, one, 0, forecast.roles) for one in forecast.variants]
        else:
            forecast = make_forecast(prepared, held.facts, held.rates)
            plan = plan_trials(recipe, forecast, max_seconds)
            possible = list(plan.trials)
        limits = planned_limits(recipe, possible, forecast, max_seconds)
        notes = [
            *prepared.notes,
            *known_agent_notes(held.agent_artifact.path, lab.root),
            *forecast.notes,
            *plan.notes,
            *forecast.warnings,
        ]
        for note in (note for note in notes if note not in ready.warned):
            observer.note(f"note: {note}")
        lease, paths = take_and_send(held, ready.missing, observer, request.before_use)
        notes += held.survivors.named
        program, meter = program_sha256(held, prepared), working_meter(board, observer)
        run = run_record(
            directory.path.name,
            held,
            prepared,
            plan,
            notes=notes,
            untrusted=request.untrusted,
            job=request.use.job if request.use.kind == "run" else None,
            night=request.night,
            variants=forecast.variants if tuning else (),
        )
        planned = plan_record(prepared, plan, max_seconds, limits, program)
        if tuning is not None:
            directory.write_tuning(tuning)
        directory.start(run, planned, recipe.as_written)
        journal = Journal(directory.path, run.id)
        journal.leased(lease)
        context = RunContext(
            held=held,
            prepared=prepared,
            forecast=forecast,
            run=run,
            directory=directory,
            journal=journal,
            clock=RunClock(max_seconds, limits, forecast.of),
            observer=observer,
            paths=paths,
            program_sha256=program,
            compare=request.compare,
            meter=meter,
            guard=next(iter(guard), None),
            console=console_of(board, directory.path, observer.note),
        )
        if tuning is not None:
            begin_search(context, tuning)
        return run_trials(context, plan.trials)
