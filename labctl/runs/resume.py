"""Continue a run whose controller, link or board died, where it stopped.

Records on disk do not change. A running job is taken over from the board, where it continued or
ended by itself; only trials that provably have no result are measured again.

A run can continue on another board, equal to the failed board. Numbers of two boards are two
samples, so variants are compared on one board only: a round of repeats that the first board did not
finish is measured again completely on the second. Each record names its board, and tables show that
a run moved.
"""

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from labctl.board.console import console_of
from labctl.board.probe_files import latest_probe
from labctl.build.plan import BuildRequest
from labctl.config.lab import Board, LabFile
from labctl.config.recipe import Recipe
from labctl.distribution import labctl_version
from labctl.errors import Blame, BoardError, ConfigError, LeaseLost
from labctl.records.board import BoardFacts, Execution
from labctl.records.run import PlanRecord, RunRecord
from labctl.records.trial import TrialRecord
from labctl.results.gates import CompareGates, leave_open
from labctl.runs.board.deploy_preview import send_observed, take_and_send
from labctl.runs.board.lab_lease import RUN, BoardUse
from labctl.runs.board.opening import ReadyBoard, WayToBoard
from labctl.runs.board.session import BoardSession, differences, differences_in_kind
from labctl.runs.context import RunContext, artifact_identities, program_sha256
from labctl.runs.inputs.guard import guard_files
from labctl.runs.inputs.prepare import Prepared, RecipeFiles, find_files
from labctl.runs.observer import Observer, RunSession
from labctl.runs.planning.forecast import make_forecast
from labctl.runs.planning.settings import variants_of
from labctl.runs.planning.time_limits import RunClock
from labctl.runs.planning.trials import PlannedTrial
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.journal import Attempt, Journal
from labctl.runs.runner import Judge, Outcome, remaining, run_trials, usual_status
from labctl.runs.search import begin_search
from labctl.runs.trial.energy import working_meter
from labctl.transport.base import Transport
from labctl.units import size

#: Maximum difference between two boards of one kind, and between two probes of one board.
TOLERANCE = 0.1


def unlike_in_speed(run: RunRecord, board: str, facts: BoardFacts, lab_root: Path) -> Iterator[str]:
    """Yield the reasons why a board's numbers cannot join a run, by the probes of both boards.

    Virtual boards have no speed to compare.
    """
    if facts.execution is not Execution.BOARD:
        return
    probes = {name: latest_probe(lab_root, name, Execution.BOARD) for name in (run.board, board)}
    for name, probe in probes.items():
        if probe is None:
            yield f"board {name} was never probed, so the speeds of both cannot be compared"
            return
    one, other = (probe for probe in probes.values() if probe is not None)
    for what, was, now in (
        ("memory", one.memory_bytes_per_second(), other.memory_bytes_per_second()),
        ("storage", one.storage_bytes_per_second(), other.storage_bytes_per_second()),
    ):
        if was is None and now is None:
            continue
        if was is None or now is None or abs(was - now) > TOLERANCE * max(was, now):
            yield f"its {what} reads {_rate_text(now)}, that of board {run.board} {_rate_text(was)}"


def _rate_text(rate: int | None) -> str:
    return "at a rate that was not measured" if rate is None else f"{size(rate)}/s"


def _try_board(ready: ReadyBoard, observer: Observer) -> dict[str, str]:
    """Send a run's files to its next board; return their paths there, by SHA-256.

    Raises ConfigError if the board cannot meet the recipe's strict conditions, and the errors of
    :func:`take_and_send`. The run is not changed before that.
    """
    held, (prepared,) = ready.held, ready.prepared
    _, paths = take_and_send(held, ready.missing, observer)
    with held.conditions(prepared.recipe.conditions, observer.note).held(held.claim.check):
        return paths


def leave_board(
    directory: RunDirectory,
    journal: Journal,
    trials: Sequence[PlannedTrial],
    done: Mapping[int, TrialRecord],
    *,
    board: str,
    clock: RunClock,
) -> dict[int, TrialRecord]:
    """Return the finished trials that stay when a run moves to a board; archive the others.

    Warm-ups are repeated, too: they warmed the other board. The time of all archived trials counts.
    """
    last = max(done, default=0)
    undone = (trial.number for trial in trials if trial.number not in done)
    # A round is complete without a repeat that was left out because it would show nothing new.
    first = next((n for n in undone if n > last or journal.attempt(n).open), None)
    moved = BoardError(f"the run moved to board {board}, and compares on one board only")
    torn = {trial.repeat for trial in trials if first is not None and trial.number >= first} | {0}
    stay: dict[int, TrialRecord] = {}
    for trial in trials:
        attempt, record = journal.attempt(trial.number), done.get(trial.number)
        if record is not None and trial.repeat not in torn:
            stay[trial.number] = record
            continue
        if attempt.open:
            journal.cut(trial.number, attempt, moved)
        if record is not None:
            clock.remember(record)
        if record is not None or attempt.open:
            directory.set_aside(trial.number, trial.slug, attempt.number)
    return stay


@dataclass(frozen=True)
class ResumeRequest:
    """The run to resume, and its lab; with a new ``board`` the run moves there."""

    directory: RunDirectory
    board: Board
    lab: LabFile
    #: Builds the agent once the board's machine is known; None: nothing is built.
    build: Callable[[BuildRequest], object] | None = None
    #: Judges the gates against other runs.
    compare: CompareGates = leave_open
    #: The user and the job for which the board is taken.
    use: BoardUse = RUN


def resume(
    request: ResumeRequest,
    connect: Callable[[], Transport],
    observer: Observer,
    judge: Judge = usual_status,
) -> Outcome:
    """Resume an unfinished run. Raises as :func:`resume_recorded` does.

    The run's last event has the exit status that ``judge`` gives it.
    """
    with RunSession(observer) as session:
        outcome = resume_recorded(request, connect, observer, session)
        session.finished(judge(outcome))
        return outcome


def resume_recorded(
    request: ResumeRequest,
    connect: Callable[[], Transport],
    observer: Observer,
    session: RunSession,
) -> Outcome:
    """Resume an unfinished run; its events continue from the board's answer.

    Raises ConfigError if it is finished, or if programs, models, prompt or board have changed;
    otherwise as :func:`labctl.runs.run.run_recipe`. Uses the run's own recipe: changes of the
    recipe file affect only the next run.
    """
    directory, board, lab = request.directory, request.board, request.lab
    run, plan = directory.run(), directory.plan()
    directory.refuse_if_finished()
    if run.untrusted_recipe:
        raise ConfigError(
            f"run {run.id} is of an untrusted recipe, whose files may be others now",
            hint="run the recipe again: labctl run RECIPE --untrusted",
        )
    files = find_files(_recipe(run), board, lab.root)
    _refuse(run, [*_other_texts(plan, files)])

    with WayToBoard(
        board,
        [files, *guard_files(files)],
        connect,
        observer,
        lab,
        replace(
            request.use,
            purpose=f"run {run.recipe} (resumed)",
            max_seconds=plan.max_seconds,
            kind="resume",
            run=run.id,
        ),
        ours=Journal(directory.path, run.id).lease,
        build=request.build,
    ) as way:
        held = way.look()
        session.begin(directory)
        journal = Journal(directory.path, run.id)  # until then another controller may have it
        again = journal.resumptions + 1
        session.contact(directory, run.recipe, board, held.facts.execution, resumed=again)
        ready = way.prepare(held)
        held, (prepared, *guard) = ready.held, ready.prepared
        changed = [*_other_models(run, prepared), *_other_board(run, held)]
        changed += _other_programs(run, held, prepared)
        _refuse(run, changed)
        program = program_sha256(held, prepared)
        if program != plan.program_sha256:
            _refuse(run, [f"the program {prepared.tool.name} is another one now"])
        # From here on only host, link and board can prevent the run.
        trials = [PlannedTrial.of(record) for record in plan.trials]
        tuning = directory.tuning()
        planned = {trial.variant.slug: trial.variant for trial in trials}
        variants = variants_of(tuning) if tuning else list(planned.values())
        forecast = make_forecast(prepared, run.facts, held.rates, variants)
        clock = RunClock(plan.max_seconds, plan.limits, forecast.of)
        moves = board.name != (journal.board or run.board)
        # This comes first: a board that refuses the run must not change it.
        sent = _try_board(ready, observer) if moves else None
        done = _done(directory)
        if moves:
            done = leave_board(directory, journal, trials, done, board=board.name, clock=clock)
        journal.resumed(board.name)
        observer.note(f"{len(done)} of {len(trials)} trials were finished")
        undone = next(iter(remaining(journal, trials, done)), None)
        lost, still_ours = _take_over(held, journal, directory, undone)
        context = RunContext(
            held=held,
            prepared=prepared,
            forecast=forecast,
            run=run,
            directory=directory,
            journal=journal,
            clock=clock,
            observer=observer,
            paths=send_observed(held, ready.missing, observer) if sent is None else sent,
            program_sha256=program,
            compare=request.compare,
            meter=working_meter(board, observer),
            guard=next(iter(guard), None),
            console=console_of(board, directory.path, observer.note),
        )
        if tuning is not None:
            begin_search(context, tuning)
        if lost is not None:
            context.stop_job(lost)
        context.remove_other_jobs(journal.attempt(undone.number) if undone else None)
        directory.reopen()
        return run_trials(context, trials, tuple(done.values()), still_ours=still_ours)


def _recipe(run: RunRecord) -> Recipe:
    """Return the run's recipe, with the version of its programs."""
    try:
        recipe = Recipe.model_validate(run.recipe_resolved)
    except ValidationError as error:
        raise ConfigError(
            f"run {run.id} has a recipe that this labctl does not read",
            hint=f"resume it with the labctl that started it: {run.labctl_version}",
        ) from error
    *tested, _agent = run.artifacts
    version = tested[0].version if tested else recipe.engine.version
    return recipe.model_copy(
        update={"engine": recipe.engine.model_copy(update={"version": version})}
    )


def _refuse(run: RunRecord, changed: Sequence[str]) -> None:
    if changed:
        raise ConfigError(
            f"run {run.id} cannot be resumed: {changed[0]}",
            hint="start a new run: `labctl run`; do not combine the results of both",
            details="\n".join(changed[1:]) or None,
        )


def _other_texts(plan: PlanRecord, files: RecipeFiles) -> Iterator[str]:
    if files.prompt_sha256 != plan.prompt_sha256:
        yield "the text of its prompt_file changed"
    for name, item in files.files.items():
        if plan.files_sha256.get(name) != item.sha256:
            yield f"its file {name} ({item.local}) changed"
    program = files.program
    # More is known about programs that labctl built.
    if files.artifact is None and program and program.sha256 != plan.program_sha256:
        yield f"its program {program.name} changed"


def _other_board(run: RunRecord, held: BoardSession) -> Iterator[str]:
    """Yield why a board is neither the run's own nor equal to it."""
    board = held.board.name
    if board == run.board:
        yield from differences(run.facts, held.facts)
        return
    for why in (
        *differences_in_kind(run.facts, held.facts),
        *unlike_in_speed(run, board, held.facts, held.lab.root),
    ):
        yield f"board {board} is not equal to {run.board}: {why}"


def _other_models(run: RunRecord, prepared: Prepared) -> Iterator[str]:
    for model in run.models:
        now = prepared.models[model.key].identity
        if now.sha256 != model.sha256:
            yield f"model {model.key} was {model.sha256[:12]}, now it is {now.sha256[:12]}"


def _other_programs(run: RunRecord, held: BoardSession, prepared: Prepared) -> Iterator[str]:
    programs = artifact_identities(held, prepared)
    for was, now in zip(run.artifacts, programs, strict=True):
        if was.key != now.key or any(now.tools.get(t) != sha for t, sha in was.tools.items()):
            yield f"{was.product} {was.version} was built again, and differs"
    version = labctl_version()
    if version != run.labctl_version:
        yield f"labctl {run.labctl_version} began it, this is {version}"


def _done(directory: RunDirectory) -> dict[int, TrialRecord]:
    """Return the finished trials, by number; archive the records of other trials.

    A trial interrupted by the host, the link, the board or a configuration error does not count as
    finished. Unless its attempt is open, the next attempt writes its record.
    """
    done = {}
    for record in directory.trials():
        if record.failure is None or record.failure.blame is Blame.JOB:
            done[record.number] = record
        else:
            directory.set_aside(record.number, record.slug, record.attempt)
    return done


def _take_over(
    held: BoardSession, journal: Journal, directory: RunDirectory, undone: PlannedTrial | None
) -> tuple[Attempt | None, bool]:
    """Take the board to resume a run.

    Returns the attempt that is lost by this, if any, and True if nobody else had the board
    meanwhile. A new lease ends jobs of the lease before. So a job that may be on the board is
    waited for under its own lease, if the board still has that lease. The controller that took the
    lease is dead, because we now have its lock on this host.
    """
    before = held.claim.on_board
    still_ours, lost = journal.holds(before), None
    if undone is not None and (attempt := journal.attempt(undone.number)).open:
        if before is not None and still_ours and before.host == platform.node():
            held.claim.keep(before)
            return None, True
        reason = LeaseLost("another controller used the board before the run continued")
        journal.cut(undone.number, attempt, reason)
        directory.set_aside(undone.number, undone.slug, attempt.number)
        still_ours, lost = False, attempt
    journal.leased(held.take_lease())
    return lost, still_ours
