"""The run directory: the source of all facts of a run. Everything else can be rebuilt from it.

``runs/<UTC time>-<recipe>-<short id>/`` holds ``run.json``, ``trials/<n>-<slug>/`` with the raw
files as pulled and ``record.json``, and ``records.jsonl`` (the same records, one per line);
``recipe.yaml`` is the recipe as written; :mod:`labctl.runs.resume` continues from ``plan.json`` and
``journal.jsonl``, and :mod:`labctl.runs.watch` shows ``events.jsonl``; ``annotations.json`` has
tags and a note of people, and ``origin.json`` the origin of an imported run. The directory is
created when the board has answered and can take the run; it is a run once it has a ``run.json``.
Until then ``recording`` has the number of recording that ``run.json`` gets: clocks of hosts may be
wrong, so the number shows the latest run.

A measurement of another lab is imported under a lock, so that it is imported only once. A load test
has ``serving.json`` in place of ``run.json``; see :mod:`labctl.evaluation.serving.directory`. An
evaluation has ``evaluation.json`` in place of it, and ``generations.jsonl`` for a journal; see
:mod:`labctl.evaluation.directory`.
"""

import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from labctl.errors import BoardBusy, BoardNoSpace, BoardPermission, ConfigError
from labctl.files import append_line, host_reads, host_writes, scratch, sync_directory, write_atomic
from labctl.locks import is_locked, locked
from labctl.records.base import NumberedRecord
from labctl.records.evaluation import EvaluationRecord
from labctl.records.run import Annotations, Origin, PlannedRecord, PlanRecord, RunEnd, RunRecord
from labctl.records.serving import ServingRecord
from labctl.records.trial import TrialRecord
from labctl.records.tuning import TuningRecord
from labctl.runs.record.disk import (
    COMPRESSED,
    KINDS,
    NUMBER,
    check_space,
    compress,
    number_of,
    read_file,
)

RUN, EVALUATION, SERVING = KINDS
GENERATIONS = "generations.jsonl"
RECORD = "record.json"
PLAN = "plan.json"
#: State of a search.
TUNING = "tuning.json"
ANNOTATIONS = "annotations.json"
ORIGIN = "origin.json"
#: Marks a copy of another host's run; it holds the digest of the archive.
FETCHED = "fetched"
RECIPE = "recipe.yaml"
#: The records, one per line.
LINES = "records.jsonl"
LOCK = "lock"
#: Time (s): a process that checks if a run is held has its lock for a moment.
_LOOK_SECONDS = 0.5
#: Time (s): taking a number needs less than a second.
_NUMBERING_SECONDS = 60.0
#: Errors that mark a refused run.
_REFUSALS = (ConfigError, BoardBusy, BoardNoSpace, BoardPermission)
_ID = re.compile(r"\d{8}T\d{6}Z-.+-[0-9a-f]{6}")


def new_run_id(recipe: str) -> str:
    """Return a readable id that sorts by time."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{recipe}-{secrets.token_hex(3)}"


class RunDirectory:
    """One run on disk."""

    def __init__(self, path: Path):
        self.path = path

    def begin(self, *, is_own: bool = True) -> None:
        """Create the directory of a new run, with the next number of recording.

        A run of another lab has no number. Raises ConfigError at once if records cannot store the
        lab's path, HostError.
        """
        raw = os.fsencode(self.path.absolute())
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"records are UTF-8, and this lab's path is not: "
                f"{raw.decode(errors='backslashreplace')}",
                hint="rename that folder, or copy the lab elsewhere",
            ) from error
        with host_writes(self.path):
            self.path.mkdir(parents=True)
            sync_directory(self.path.parent)
        if is_own:
            self.take_number()

    def take_number(self) -> None:
        """Give a directory without a run the next number of recording. Raises HostError."""
        runs = self.path.parent
        with locked(runs / ".recording-lock", timeout=_NUMBERING_SECONDS), host_reads(runs):
            write_atomic(self.path / NUMBER, f"{1 + _greatest_number(runs)}\n")

    def open(self, name: str, record: NumberedRecord) -> None:
        """Write the first record of the run, one of :data:`KINDS`, with its number."""
        numbered = record.model_copy(update={"recorded": number_of(str(self.path)) or None})
        write_atomic(self.path / name, numbered.model_dump_json(indent=2) + "\n")
        with host_writes(self.path):
            (self.path / NUMBER).unlink(missing_ok=True)

    def start(self, record: RunRecord, plan: PlanRecord, recipe: str | None = None) -> None:
        """Write ``plan.json`` and then ``run.json``: from here on it is a run.

        ``recipe`` is its recipe as written; None without a written recipe.
        """
        if recipe is not None:
            write_atomic(self.path / RECIPE, recipe)
        write_atomic(self.path / PLAN, plan.model_dump_json(indent=2) + "\n")
        self.open(RUN, record)

    def extend_plan(self, trials: Iterable[PlannedRecord]) -> None:
        """Add trials to the plan, before the first of them begins."""
        plan = self.plan()
        plan = plan.model_copy(update={"trials": (*plan.trials, *trials)})
        write_atomic(self.path / PLAN, plan.model_dump_json(indent=2) + "\n")

    def write_tuning(self, record: TuningRecord) -> None:
        """Write the state of a search."""
        write_atomic(self.path / TUNING, record.model_dump_json(indent=2) + "\n")

    def tuning(self) -> TuningRecord | None:
        """Return the state of a search; None for another run. Raises ConfigError if damaged."""
        path = self.path / TUNING
        return read_file(path, TuningRecord) if path.exists() else None

    @property
    def is_planned(self) -> bool:
        """True if it is planned, so that its trials or questions can begin."""
        return any((self.path / name).is_file() for name in KINDS)

    @property
    def is_resumable(self) -> bool:
        """True if the run can be resumed: it is planned, and its recipe is not untrusted."""
        if not (self.path / RUN).is_file():
            return self.is_planned
        try:
            return not self.run().untrusted_recipe
        except ConfigError:
            return False

    @property
    def is_evaluation(self) -> bool:
        """True if it is an evaluation; False: it measures times."""
        return (self.path / EVALUATION).is_file()

    @property
    def is_load_test(self) -> bool:
        """True if it loads a server."""
        return (self.path / SERVING).is_file()

    def forget_if_refused(self, error: Exception) -> None:
        """Remove the directory if its run was refused before it was planned."""
        if isinstance(error, _REFUSALS) and not self.is_planned:
            shutil.rmtree(self.path, ignore_errors=True)  # only the refusal is reported

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the run against other controllers of this host, for any board.

        Raises HostTimeout if a controller has it, ConfigError if the run was moved away.
        """
        holder = "another labctl that makes this run"
        with locked(self.path / LOCK, timeout=_LOOK_SECONDS, holder=holder, make_folder=False):
            yield

    def is_held(self, by: int | None = None) -> bool:
        """Return True if a controller of this host drives the run now: the process ``by``, or any.

        Raises ConfigError if this user may not read the lock.
        """
        lock = self.path / LOCK
        with host_reads(lock):
            return is_locked(lock) and (by is None or lock.read_bytes().strip() == b"%d" % by)

    def trial_path(self, number: int, slug: str) -> Path:
        """Return the folder of one trial's raw files and record."""
        return self.path / "trials" / f"{number:03d}-{slug}"

    def add(self, trial: TrialRecord) -> None:
        """Store a finished trial; from here on it is never lost."""
        folder = self.trial_path(trial.number, trial.slug)
        write_atomic(folder / RECORD, trial.model_dump_json(indent=2) + "\n")
        for made in (folder.parent, self.path):  # the first trial added its entries
            sync_directory(made)
        append_line(self.path / LINES, trial.model_dump_json())

    def reopen(self) -> None:
        """Reopen the run: remove its end, and write ``records.jsonl`` from the trials' folders.

        After a kill its last line can be missing, and a repeated trial changes a line.
        """
        with host_writes(self.path):
            (self.path / "end.json").unlink(missing_ok=True)
        lines = [trial.model_dump_json() + "\n" for trial in self.trials()]
        write_atomic(self.path / LINES, "".join(lines))

    def check_space(self) -> None:
        """Raise HostError if the disk has too little space for another trial."""
        check_space(self.path, [path.parent for path in self.records()])

    def set_aside(self, number: int, slug: str, attempt: int) -> None:
        """Keep the files of an attempt, separate from the next attempt's files.

        The record is moved last: until then, a controller after a kill repeats the move.
        """
        folder = self.trial_path(number, slug)
        with host_writes(folder):
            apart = folder / f"attempt-{attempt}"
            apart.mkdir(parents=True, exist_ok=True)
            left = [path for path in folder.iterdir() if path.is_file()]
            for path in sorted(left, key=lambda path: path.name == RECORD):
                path.replace(apart / path.name)

    def finish(self, end: RunEnd) -> None:
        """Record the end of the run."""
        write_atomic(self.path / "end.json", end.model_dump_json(indent=2) + "\n")

    def end(self) -> RunEnd | None:
        """Return its end; None while it is in progress, or if its controller died."""
        path = self.path / "end.json"
        return read_file(path, RunEnd) if path.exists() else None

    @property
    def is_imported(self) -> bool:
        """True if another lab measured it: its boards are not boards of this lab."""
        return (self.path / ORIGIN).exists()

    @property
    def is_recorded_here(self) -> bool:
        """True unless it was imported, or fetched from the lab's shared store."""
        folder = str(self.path)  # there may be thousands, and creating Paths takes longer
        marks = (f"{folder}/{name}" for name in (ORIGIN, FETCHED))
        return not any(map(os.path.exists, marks))

    def origin(self) -> Origin | None:
        """Return the origin of an imported run; None for this lab's own. Raises ConfigError."""
        return read_file(self.path / ORIGIN, Origin) if self.is_imported else None

    def mark_imported(self, origin: Origin) -> None:
        """Record the origin of its files, before it gets its ``run.json``."""
        write_atomic(self.path / ORIGIN, origin.model_dump_json(indent=2) + "\n")

    @property
    def is_unfinished(self) -> bool:
        """True if it is not finished, or its end cannot be read.

        An imported run and an interrupted load test cannot be continued: they count as finished.
        """
        if self.is_imported or self.is_load_test:
            return False
        try:
            end = self.end()
        except ConfigError:
            return True
        return end is None or end.state != "finished"

    def summary(self) -> str:
        """Return a line for people: id, recipe, board, trials, end."""
        try:
            if self.is_evaluation:
                asked, end = self.evaluation(), self.end()
                state = end.state if end else "killed"
                return f"{asked.id}  {asked.recipe}, evaluation of {asked.dataset.name}, {state}"
            if self.is_load_test:
                test, end = self.serving(), self.end()
                return f"{test.id}  {test.recipe}, load test, {end.state if end else 'killed'}"
            run, end = self.run(), self.end()
        except ConfigError as error:
            return f"{self.path.name}  {error.message}"
        trials = f"{len(self.records())} of {run.trials_planned} trials"
        return f"{run.id}  {run.recipe} on {run.board}, {trials}, {end.state if end else 'killed'}"

    def annotations(self) -> Annotations:
        """Return its tags and its note; empty without annotations. Raises ConfigError."""
        path = self.path / ANNOTATIONS
        return read_file(path, Annotations) if path.exists() else Annotations()

    def refuse_if_finished(self) -> None:
        """Raise ConfigError for a finished run or a run of another lab."""
        if self.is_imported:
            raise ConfigError(
                f"run {self.path.name} was imported; it cannot be resumed here",
                hint=f"show it: `labctl report {self.path.name}`",
            )
        end, run = self.end(), self.path.name
        if self.is_load_test:
            raise ConfigError(
                f"run {run} is a load test: it cannot be resumed",
                hint=f"show it: `labctl report {run}`; start a new one: `labctl run`",
            )
        if end and end.state == "finished" and not end.out_of_time:
            hint = f"show it: `labctl report {run}`; start a new one: `labctl run`"
            if others := [found.path.name for found in reversed(unfinished_runs(self.path.parent))]:
                hint = f"unfinished: {', '.join(others)}; finish it: `labctl resume {others[0]}`"
            raise ConfigError(f"run {run} is finished; nothing to resume", hint=hint)

    def run(self) -> RunRecord:
        """Return the run's own record. Raises ConfigError if it is missing or cannot be read."""
        if self.is_evaluation:
            run = self.path.resolve().name
            raise ConfigError(
                f"run {run} is an evaluation: it has answers to questions, and no timed trials",
                hint=f"`labctl report {run}` prints its accuracies",
            )
        if self.is_load_test:
            run = self.path.resolve().name
            raise ConfigError(
                f"run {run} is a load test: it has requests to a server, and no timed trials",
                hint=f"`labctl report {run}` prints its table",
            )
        return read_file(self.path / RUN, RunRecord)

    def any_record(self) -> RunRecord | EvaluationRecord | ServingRecord:
        """Return the record of a run of any kind. Raises ConfigError if it cannot be read."""
        if self.is_evaluation:
            return self.evaluation()
        return self.serving() if self.is_load_test else self.run()

    def evaluation(self) -> EvaluationRecord:
        """Return the record of an evaluation. Raises ConfigError for any other run."""
        if not self.is_evaluation:
            raise ConfigError(f"run {self.path.resolve().name} is not an evaluation")
        return read_file(self.path / EVALUATION, EvaluationRecord)

    def serving(self) -> ServingRecord:
        """Return the record of a load test. Raises ConfigError if it cannot be read."""
        return read_file(self.path / SERVING, ServingRecord)

    def plan(self) -> PlanRecord:
        """Return its plan. Raises ConfigError if it cannot be read."""
        return read_file(self.path / PLAN, PlanRecord)

    def trials(self) -> list[TrialRecord]:
        """Return all records, from ``record.json`` of each trial, in order."""
        found = (read_file(file, TrialRecord) for file in self.records())
        return sorted(found, key=lambda trial: trial.number)

    def trial(self, number: int, slug: str) -> TrialRecord:
        """Return the record of one trial. Raises ConfigError if it cannot be read."""
        plain = self.trial_path(number, slug) / RECORD
        compressed = plain.with_name(plain.name + COMPRESSED)
        found = compressed if compressed.exists() and not plain.exists() else plain
        return read_file(found, TrialRecord)

    def records(self) -> list[Path]:
        """Return the file of every finished trial, compressed or not."""
        plain = list(self.path.glob(f"trials/*/{RECORD}"))
        folders = {path.parent for path in plain}
        compressed = self.path.glob(f"trials/*/{RECORD}{COMPRESSED}")
        return [*plain, *(path for path in compressed if path.parent not in folders)]

    @property
    def is_compressible(self) -> bool:
        """True if some of its records are not compressed."""
        return (self.path / LINES).exists()

    def compress(self) -> int:
        """Compress the records, with the times of all tokens; return the bytes that it freed.

        Each compressed file is written and verified before the plain file is removed; readers see
        no difference.
        """
        with self.held():
            plain = [*self.path.glob(f"trials/*/{RECORD}"), self.path / LINES]  # this file last
            return sum(compress(path) for path in plain if path.exists())


def is_run_id(name: str) -> bool:
    """Return True if a directory of this name belongs to a run."""
    return _ID.fullmatch(name) is not None


def all_directories(runs: Path) -> list[RunDirectory]:
    """Return all runs of a lab, oldest first, also runs without a plan.

    Runs recorded here come last, by their numbers of recording: clocks may be wrong.
    """
    if not runs.is_dir():
        return []
    found = [RunDirectory(path) for path in runs.iterdir() if is_run_id(path.name)]
    return sorted(found, key=_place)


def _place(directory: RunDirectory) -> tuple[bool, int, str]:
    is_own, path = directory.is_recorded_here, directory.path
    return is_own, number_of(str(path)) if is_own else 0, path.name


def _greatest_number(runs: Path) -> int:
    """Return the greatest number of all runs recorded here, including runs in the trash."""
    found = chain(runs.iterdir(), runs.glob("trash/*"))
    return max((_place(RunDirectory(path))[1] for path in found if path.is_dir()), default=0)


def run_directories(runs: Path) -> list[RunDirectory]:
    """Return all planned runs of a lab, oldest first."""
    return [directory for directory in all_directories(runs) if directory.is_planned]


def unfinished_runs(runs: Path) -> list[RunDirectory]:
    """Return all unfinished planned runs, oldest first, without runs in progress."""
    return [found for found in run_directories(runs) if found.is_unfinished and not found.is_held()]


@contextmanager
def importing(runs: Path) -> Iterator[Path]:
    """Hold the lock of imports, and yield a folder in which to build a run before naming it.

    Removes the files of a killed import. Raises HostError.
    """
    with locked(runs / ".import-lock", timeout=60), scratch(runs, ".import-new-") as aside:
        yield aside
