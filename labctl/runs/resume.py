"""Going on with a run whose controller, link or board died, where it stopped.

What is on disk stays as it is. A job that was under way is taken over from the board, where it ran
on or ended by itself; only what provably came to nothing is measured again.
"""

import importlib.metadata
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from labctl.board import Lease
from labctl.config.lab import Board
from labctl.config.recipe import Recipe
from labctl.errors import Blame, ConfigError, LeaseLost
from labctl.performance.rates import known_rates
from labctl.records import SCHEMA_VERSION, PlanRecord, RunRecord, TrialRecord
from labctl.runs.board.conditions import held
from labctl.runs.board.held_board import BoardSession
from labctl.runs.board.opening import open_board
from labctl.runs.inputs.prepare import Prepared, RecipeFiles, find_files
from labctl.runs.migration import leave_board, unlike_in_speed
from labctl.runs.observer import Observer
from labctl.runs.plan.forecast import foresee
from labctl.runs.plan.time_budget import RunClock
from labctl.runs.plan.trials import PlannedTrial
from labctl.runs.provenance import artifact_identities
from labctl.runs.record.directory import RunDirectory, note_in_index
from labctl.runs.record.journal import Journal
from labctl.runs.runner import Outcome, Runner
from labctl.runs.trial.context import Bench, leave_nothing_else, leave_quiet
from labctl.runs.trial.preparation import Stand, bring, differences, differences_in_kind
from labctl.transport import Transport


@dataclass(frozen=True)
class ResumeRequest:
    """Which run to go on with, in which lab; on another ``board`` than before it moves there."""

    directory: RunDirectory
    board: Board
    lab_name: str
    lab_root: Path


def last_board(directory: RunDirectory) -> str:
    """The name of the board that a run was on last. Raises ConfigError."""
    run = directory.run()
    return Journal(directory.path, run.id).board or run.board


def resume(request: ResumeRequest, connect: Callable[[], Transport], observer: Observer) -> Outcome:
    """Finish a run that did not come to its end.

    Raises ConfigError when it did, or when programs, models, prompt or board are not what they
    were; otherwise as :func:`labctl.runs.run`. The recipe is the run's own: a change of the
    file it came from is a matter of the next run.
    """
    directory = request.directory
    run, plan, end = directory.run(), directory.plan(), directory.end()
    if end and end.state == "finished":
        raise ConfigError(
            f"run {run.id} came to its end; there is nothing to go on with",
            hint=f"`labctl report {run.id}` shows it, `labctl run` makes a new one",
        )
    if (written := directory.schema_version()) < SCHEMA_VERSION:
        raise ConfigError(
            f"run {run.id} cannot be resumed: labctl {run.labctl_version} began it with records of"
            f" schema_version {written}, this one writes {SCHEMA_VERSION}",
            hint=f"`labctl report {run.id}` shows what it measured; `labctl run` makes a new one",
        )
    files = find_files(_recipe(run), request.board, request.lab_root)
    _refuse(run, [*_other_texts(plan, files)])

    def journal_now() -> Journal:  # another controller may go on with it while this one fetches
        return Journal(directory.path, run.id)

    with (
        open_board(
            files,
            request.board,
            connect,
            observer,
            lab_root=request.lab_root,
            ours=lambda lease: journal_now().holds(lease),
        ) as opened,
        directory.held(),
    ):
        prepared, session, journal = opened.prepared, opened.session, journal_now()
        changed = [*_other_models(run, prepared), *_other_board(run, request, session)]
        changed += _other_programs(run, prepared, session, request.lab_root)
        _refuse(run, changed)
        stand = bring(opened, observer, request.lab_name)
        if stand.program_sha256 != plan.program_sha256:
            _refuse(run, [f"the program {prepared.tool.name} is another one now"])
        # From here on nothing but host, link and board can stand in the way.
        trials = [PlannedTrial.of(record) for record in plan.trials]
        settled = {trial.variant.slug: trial.variant for trial in trials}
        foresight = foresee(
            prepared,
            list(settled.values()),
            run.facts,
            known_rates(request.lab_root, request.board.name, session.target),
        )
        clock = RunClock(plan.max_seconds, plan.limits, foresight.of)
        done = _done(directory)
        if request.board.name != (journal.board or run.board):
            done = leave_board(
                directory, journal, trials, done, board=request.board.name, clock=clock
            )
        journal.resumed(request.board.name)
        observer.note(f"run directory: {directory.path}")
        observer.note(f"{len(done)} of {len(trials)} trials were finished")
        undone = next((trial for trial in trials if trial.number not in done), None)

        def bench_under(lease: Lease) -> Bench:
            return stand.bench(run.id, lease, foresight, resumed=journal.resumptions)

        bench, anew, still_ours = _take_over(request, stand, bench_under, journal, undone)
        leave_nothing_else(bench, journal.attempt(undone.number) if undone else None)
        directory.reopen()
        runner = Runner(
            bench=bench,
            directory=directory,
            journal=journal,
            clock=clock,
            observer=observer,
            renew=partial(stand.renewed, lab_name=request.lab_name, leased=journal.leased),
            take_anew=anew,
            infra_retries=prepared.recipe.infra_retries,
            precision=prepared.recipe.repeats_until,
            held=partial(held, stand.conditions, again=still_ours),
        )
        try:
            return runner.run(trials, run, prepared.recipe.gates, tuple(done.values()))
        finally:
            note_in_index(directory, run, observer.note)


def _recipe(run: RunRecord) -> Recipe:
    """The run's recipe, with the version of the programs that it had."""
    try:
        recipe = Recipe.model_validate(run.recipe_resolved)
    except ValidationError as error:
        raise ConfigError(
            f"run {run.id} has a recipe that this labctl does not read",
            hint=f"go on with the labctl that began it: {run.labctl_version}",
        ) from error
    *tested, _agent = run.artifacts
    version = tested[0].version if tested else recipe.engine.version
    return recipe.model_copy(
        update={"engine": recipe.engine.model_copy(update={"version": version})}
    )


def _refuse(run: RunRecord, changed: Sequence[str]) -> None:
    if changed:
        raise ConfigError(
            f"run {run.id} cannot go on: {changed[0]}",
            hint="`labctl run` makes a new one; numbers of both do not belong together",
            details="\n".join(changed[1:]) or None,
        )


def _other_texts(plan: PlanRecord, files: RecipeFiles) -> Iterator[str]:
    if files.prompt_sha256 != plan.prompt_sha256:
        yield "the text of its prompt_file changed"
    for name, item in files.files.items():
        if plan.files_sha256.get(name) != item.sha256:
            yield f"its file {name} ({item.local}) changed"
    program = files.program
    # Of what labctl built, more is known.
    if files.artifact is None and program and program.sha256 != plan.program_sha256:
        yield f"its program {program.name} changed"


def _other_board(run: RunRecord, request: ResumeRequest, session: BoardSession) -> Iterator[str]:
    """Why a board is not the run's own, nor equal to that."""
    board = request.board.name
    if board == run.board:
        yield from differences(run.facts, session.facts)
        return
    for told in (
        *differences_in_kind(run.facts, session.facts),
        *unlike_in_speed(run, board, session.facts, request.lab_root),
    ):
        yield f"board {board} is not equal to {run.board}: {told}"


def _other_models(run: RunRecord, prepared: Prepared) -> Iterator[str]:
    for model in run.models:
        now = prepared.models[model.key].identity
        if now.sha256 != model.sha256:
            yield f"model {model.key} was {model.sha256[:12]}, now it is {now.sha256[:12]}"


def _other_programs(
    run: RunRecord, prepared: Prepared, session: BoardSession, lab_root: Path
) -> Iterator[str]:
    programs = artifact_identities(prepared, session, lab_root)
    for was, now in zip(run.artifacts, programs, strict=True):
        if was.key != now.key or any(now.tools.get(t) != sha for t, sha in was.tools.items()):
            yield f"{was.product} {was.version} was built again, and differs"
    version = importlib.metadata.version("labctl")
    if version != run.labctl_version:
        yield f"labctl {run.labctl_version} began it, this is {version}"


def _done(directory: RunDirectory) -> dict[int, TrialRecord]:
    """The trials that are results, by number; what others left is put aside.

    A record whose trial host, link or board cut is none, nor is one that a mistake in the lab's
    files cut. Unless its attempt is open it will be the next attempt's.
    """
    done = {}
    for record in directory.trials():
        if record.failure is None or record.failure.blame is Blame.JOB:
            done[record.number] = record
        else:
            directory.set_aside(record.number, record.slug, record.attempt)
    return done


def _take_over(
    request: ResumeRequest,
    stand: Stand,
    bench_under: Callable[[Lease], Bench],
    journal: Journal,
    undone: PlannedTrial | None,
) -> tuple[Bench, Callable[[Bench], Bench] | None, bool]:
    """A bench to go on with, what makes the one after the trial that is under way of it, and
    whether nobody else had the board meanwhile.

    A new lease ends jobs of the one before. So a job that may be on the board is waited for under
    the lease that it was started with, if that is on the board still; the controller that took it
    is dead, because its lock on this host is ours now.
    """
    session = stand.session

    def taken() -> Lease:
        lease = session.take_lease(request.lab_name)
        journal.leased(lease)
        return lease

    held = session.leases.read()
    still_ours = journal.holds(held)
    attempt = journal.attempt(undone.number) if undone else None
    if undone is None or attempt is None or not attempt.open:
        return bench_under(taken()), None, still_ours
    if held is not None and still_ours and held.host == platform.node():
        session.keep_lease(held)
        return bench_under(held), lambda bench: stand.under(taken(), bench), True
    lost = LeaseLost("the board had another controller before the run went on")
    journal.cut(undone.number, attempt, lost)
    request.directory.set_aside(undone.number, undone.slug, attempt.number)
    bench = bench_under(taken())
    leave_quiet(bench, attempt)
    return bench, None, False
