"""Run or resume an evaluation, from its recipe to ``end.json``."""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from labctl.config.lab import Board, LabFile
from labctl.distribution import labctl_version
from labctl.errors import Blame, ConfigError, ExitStatus
from labctl.evaluation.accuracy import AccuracyTable
from labctl.evaluation.contact import contact, differences, start_servers
from labctl.evaluation.datasets.kept import keep_questions
from labctl.evaluation.datasets.load import load_dataset
from labctl.evaluation.directory import EvaluationDirectory
from labctl.evaluation.ending import State, finish, unanswered
from labctl.evaluation.graders import make_grader
from labctl.evaluation.graders.pool import GraderPool
from labctl.evaluation.limits import limits_of
from labctl.evaluation.plan import make_plan
from labctl.evaluation.question import Dataset
from labctl.evaluation.recipe import EvaluationRecipe
from labctl.evaluation.servers.started import StartedEndpoint
from labctl.evaluation.session import Session, spent_seconds
from labctl.evaluation.work import Work
from labctl.gguf.adapter import adapted
from labctl.models.quantizer import find_quantizer
from labctl.models.resolve import resolve
from labctl.records.evaluation import (
    DatasetRecord,
    EndpointRecord,
    EvaluationEnd,
    EvaluationRecord,
    SamplingRecord,
)
from labctl.records.events import Evaluation
from labctl.records.trial import Failure, ModelIdentity
from labctl.runs.board.lab_lease import SERVE, BoardUse
from labctl.runs.context import lab_revision
from labctl.runs.observer import Observer, RunSession
from labctl.runs.record.directory import RunDirectory, new_run_id
from labctl.runs.record.journal import Journal
from labctl.runs.record.repository import note_in_index
from labctl.transport.base import Transport


@dataclass(frozen=True)
class EvaluationRequest:
    """An evaluation in a lab; ``connect`` opens the link to a board on which a server runs.

    ``use``: user and job for which boards are taken.
    """

    recipe: EvaluationRecipe
    lab: LabFile
    connect: Callable[[Board], Transport]
    use: BoardUse = SERVE


@dataclass(frozen=True)
class EvaluationOutcome:
    """A finished evaluation."""

    directory: EvaluationDirectory
    record: EvaluationRecord
    end: EvaluationEnd
    table: AccuracyTable

    @property
    def exit_status(self) -> int:
        """0 if every question asked has an answer, and no gate is missed."""
        return status_of(self.end)


def status_of(end: EvaluationEnd) -> int:
    """Return the exit status of an evaluation that finished, or ended without an answer."""
    if end.failure is not None:
        return ExitStatus.of(end.failure.blame)
    missed = any(gate.passed is False for gate in end.gates)
    bad = missed or end.failed or not end.accuracies
    return ExitStatus.JOB if bad else ExitStatus.OK


def prepare(
    recipe: EvaluationRecipe, lab: LabFile, observer: Observer
) -> tuple[Dataset, dict[str, ModelIdentity]]:
    """Read the questions; find the graders and the models' files, if any."""
    for name in recipe.graders:
        make_grader(name)  # report a missing library before anything is asked
    dataset = load_dataset(recipe.dataset, lab.root, observer.step)
    identities = {}
    for key in recipe.evaluated_models():
        declared = recipe.models[key].declared
        if declared is not None:
            identities[key] = ModelIdentity(
                key=key,
                file="",
                sha256=declared.sha256 or "",
                size_bytes=None,
                name=declared.name,
            )
            continue
        target = f"host-{platform.machine()}"
        found = resolve(
            recipe.models,
            [key],
            root=lab.root,
            find_quantizer=partial(find_quantizer, target, lab.root),
            progress=observer.step,
        )
        identities[key] = found[key].identity
    return dataset, identities


def run_evaluation(request: EvaluationRequest, observer: Observer) -> EvaluationOutcome:
    """Run an evaluation: ask all questions, grade the answers and judge the gates.

    Raises ConfigError for an impossible request, HostError if servers are out of reach, and the
    errors of starting a server. Answers so far are kept; :func:`resume_evaluation` continues.
    """
    recipe, lab = request.recipe, request.lab
    dataset, identities = prepare(recipe, lab, observer)
    limits = limits_of(recipe, lab.root / "runs", identities)
    run = RunDirectory(lab.root / "runs" / new_run_id(recipe.name))
    directory = EvaluationDirectory(run)
    with RunSession(observer) as session, ExitStack() as servers:
        run.begin()
        session.begin(run)
        notes = (*dataset.notes, *limits.notes)
        for note in notes:
            observer.note(f"note: {note}")
        started = start_servers(
            recipe,
            lab,
            run.path / "servers",
            observer=observer,
            connect=request.connect,
            use=request.use,
            stack=servers,
        )
        contacts = contact(recipe, started)
        for note in contacts.notes:
            observer.note(f"note: {note}")
        record = EvaluationRecord(
            id=run.path.name,
            recipe=recipe.name,
            recipe_resolved=recipe.resolved(),
            settings=recipe.settings,
            dataset=_dataset_record(dataset),
            models=tuple(_with_adapters(identities, contacts.records)),
            prompts=tuple(p.record(name, dataset.examples) for name, p in recipe.prompts.items()),
            endpoints=contacts.records,
            sampling=SamplingRecord(**recipe.sampling.model_dump()),
            budgets=limits.all_tokens,
            model_budgets=limits.by_model,
            budget_seconds=limits.seconds,
            token_seconds=limits.token_seconds,
            token_seconds_from=limits.run,
            graders=recipe.graders,
            variants=tuple(f"{m}/{p}" for m in recipe.evaluated_models() for p in recipe.prompts),
            planned=0,
            plan_notes=(*notes, *contacts.notes),
            labctl_version=labctl_version(),
            lab_revision=lab_revision(lab.root),
            host=platform.node(),
            job=request.use.job,
            started=datetime.now(UTC),
        )
        record = record.model_copy(update={"planned": make_plan(recipe, record).planned})
        keep_questions(run.path, dataset)
        directory.start(record, recipe.as_written)
        outcome = _ask(
            recipe, directory, record, dataset, started=started, observer=observer, resumed=0
        )
        session.finished(outcome.exit_status)
        return outcome


def resume_evaluation(
    run: RunDirectory,
    lab: LabFile,
    connect: Callable[[Board], Transport],
    observer: Observer,
    use: BoardUse | None = None,
) -> EvaluationOutcome:
    """Resume an evaluation: answered questions are not asked again.

    The recipe is the run's own. ``use``: that of the job that resumes it. Raises ConfigError if
    questions, models or servers changed, and the errors of :func:`run_evaluation`.
    """
    directory = EvaluationDirectory(run)
    record = directory.record()
    recipe = EvaluationRecipe.of_run(record)
    dataset, identities = prepare(recipe, lab, observer)
    _refuse(record, _other_inputs(record, dataset, identities))
    with RunSession(observer) as session, ExitStack() as servers:
        session.begin(run)
        directory.mend()
        started = start_servers(
            recipe,
            lab,
            run.path / "servers",
            observer=observer,
            connect=connect,
            use=use or BoardUse("resume", kind="resume", run=record.id),
            stack=servers,
        )
        contacts = contact(recipe, started)
        for note in contacts.notes:
            observer.note(f"note: {note}")
        _refuse(record, differences(record.endpoints, contacts.records))
        journal = Journal(run.path, record.id)
        end = directory.end()
        journal.resumed(max_time_again=end is not None and end.out_of_time)
        directory.reopen()
        outcome = _ask(
            recipe,
            directory,
            record,
            dataset,
            started=started,
            observer=observer,
            resumed=journal.resumptions,
            spent_s=spent_seconds(directory.generations(), journal.sessions(record.started)),
        )
        session.finished(outcome.exit_status)
        return outcome


def _ask(
    recipe: EvaluationRecipe,
    directory: EvaluationDirectory,
    record: EvaluationRecord,
    dataset: Dataset,
    *,
    started: dict[str, StartedEndpoint],
    observer: Observer,
    resumed: int,
    spent_s: float = 0.0,
) -> EvaluationOutcome:
    """Ask the missing questions, then grade and judge; record the run's end in every case."""
    plan = make_plan(recipe, record)
    with GraderPool() as pool:
        work = Work(recipe, directory, plan, dataset, pool)
        session = Session(work, observer, spent_s=spent_s)
        observer.tell(
            Evaluation(
                run=record.id,
                recipe=record.recipe,
                planned=record.planned,
                done=session.answered,
                resumed=resumed,
            )
        )
        state: State = "failed"
        failure = None
        try:
            session.run(started)
            failure = unanswered(directory, plan)
            state = "failed" if failure else "finished"
        except KeyboardInterrupt:
            state = "interrupted"
            raise
        except Exception as error:  # even a bug: the run's end must be recorded
            failure = Failure.of(error)
            raise
        finally:
            end, table = finish(
                work,
                state,
                failure=failure,
                notes=tuple(session.notes),
                out_of_time=session.out_of_time,
                resumed=resumed,
            )
            note_in_index(directory.run, observer.note)
            if state != "finished" and (failure is None or failure.blame is not Blame.JOB):
                observer.tell_way(_way(record.id, failure))
    return EvaluationOutcome(directory, record, end, table)


def _way(run: str, failure: Failure | None) -> str:
    """Give advice after an early end: a resume cannot change the recipe."""
    if failure is not None and failure.blame is Blame.CONFIG:
        return (
            "answers are kept; a resume would ask with the same recipe: if that is what must"
            f" change, start a new evaluation (otherwise: labctl resume {run})"
        )
    return f"answers are kept; to continue: labctl resume {run}"


def _with_adapters(
    models: Mapping[str, ModelIdentity], endpoints: Iterable[EndpointRecord]
) -> Iterator[ModelIdentity]:
    """Yield the models with the adapters of their endpoints, which all have the same ones."""
    of_model = {one.model: one.adapters for one in endpoints}
    yield from (adapted(model, of_model[key]) for key, model in models.items())


def _dataset_record(dataset: Dataset) -> DatasetRecord:
    return DatasetRecord(
        name=dataset.name,
        source=dataset.source,
        sha256=dataset.sha256,
        split=dataset.split,
        size=dataset.size,
        questions=tuple(question.id for question in dataset.questions),
        subset_seed=dataset.subset_seed,
        shots=len(dataset.examples),
    )


def _other_inputs(
    record: EvaluationRecord, dataset: Dataset, models: Mapping[str, ModelIdentity]
) -> Iterator[str]:
    if dataset.sha256 != record.dataset.sha256:
        yield f"the data set {dataset.source} changed"
    elif tuple(question.id for question in dataset.questions) != record.dataset.questions:
        yield "the chosen questions differ now"
    for was in record.models:
        now = models[was.key]
        if now.sha256 != was.sha256:
            yield f"model {was.key} was {was.sha256[:12]}, now {now.sha256[:12]}"


def _refuse(record: EvaluationRecord, changed: Iterable[str]) -> None:
    if found := list(changed):
        raise ConfigError(
            f"run {record.id} cannot be resumed: {found[0]}",
            hint="start a new one: `labctl run`; do not combine answers of both runs",
            details="\n".join(found[1:]) or None,
        )
