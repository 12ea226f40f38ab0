"""The queue's jobs for a worker of a lab host: their contents, inputs and runs.

The runs are read from this host's run directories, because a database restored from an older backup
does not know them. So finished measurements are not repeated.
"""

import hashlib
import json
import math
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from labctl.build.installation import install, installed, is_installed, version_of
from labctl.config.lab import LabFile
from labctl.config.recipe import Recipe
from labctl.errors import (
    ConfigError,
    HostError,
    IntegrityError,
    LabctlError,
    LeaseLost,
    lack_of_host,
)
from labctl.evaluation.any_recipe import AnyRecipe, target_of
from labctl.farm.job import FarmJob
from labctl.farm.preparing import Inputs
from labctl.farm.run_archives import RunArchives, is_finished
from labctl.farm.run_content import RunContent
from labctl.farm.store import SharedStore
from labctl.files import host_reads
from labctl.locks import locked
from labctl.models.expected import are_ready, origin
from labctl.models.quantizer import find_quantizer
from labctl.models.resolve import resolve
from labctl.progress import silent
from labctl.retry import retry_infra
from labctl.runs.inputs.prepare import recipe_files
from labctl.runs.inputs.programs import derives_models
from labctl.runs.record.directory import ORIGIN, RunDirectory, all_directories
from labctl.runs.record.disk import KINDS
from labctl.runs.record.repository import RunRepository
from labctl.runs.record.trash import move_to_trash
from labctl.state.job import Job
from labctl.state.state import LabState
from labctl.state.uses import QUEUED_KINDS

#: Time (s) to wait for an unreachable shared store or database.
_AWAY_SECONDS = 120.0
#: Time (s) to wait for a file that another job fetches.
_FETCH_SECONDS = 4 * 3600.0
#: Interval (s) between two searches for llama-quantize.
_LOOK_SECONDS = 5.0
_MOST_BYTES = 4096


class QueueLedger:
    """The run of each job, by the queue; it outlives the process.

    Args:
        lab: the lab, as this host has it.
        state: its state.
        store: the lab's shared store; None: each host has its own files.
        note: gets lines for people.
    """

    def __init__(
        self, lab: LabFile, state: LabState, store: SharedStore | None, note: Callable[[str], None]
    ):
        self._lab = lab
        self._state = state
        self._store = store
        self._note = note
        #: True in a lab of one host: no other host has what is missing here.
        self._is_alone = store is None and lab.database is None
        runs = lab.root / "runs"
        self._own_runs = RunsOfJobs(runs)
        self._archives = None if store is None else RunArchives(store, state, runs)
        self._attempts: dict[tuple[str, str], Job] = {}
        self._understood: dict[str, bool] = {}
        #: Recipes of jobs whose models llama-quantize makes.
        self._deriving: dict[str, AnyRecipe] = {}
        #: Target -> time of the last search for llama-quantize, and the reason if it was missing.
        self._lacks: dict[str, tuple[float, str | None]] = {}

    def understands(self, job: Job) -> bool:
        """Return True if this labctl can run a job."""
        if job.id not in self._understood:
            try:
                recipe = RunContent.read(job.content).recipe
            except ConfigError:
                self._understood[job.id] = False
            else:
                self._understood[job.id] = job.kind in QUEUED_KINDS
                if derives_models(recipe.models, recipe.measured_models()):
                    self._deriving[job.id] = recipe
        return self._understood[job.id]

    def lacks(self, job: Job) -> str | None:
        """Return why this host cannot make a job's models now, with the remedy; None: it can."""
        recipe = self._deriving.get(job.id) if self.understands(job) else None
        if recipe is None:
            return None
        try:
            lack = self._lack_of_quantizer(self._target(job, recipe))
            is_ready = lack is None or are_ready(
                recipe.models, recipe.measured_models(), self._lab.root
            )
        except ConfigError:  # the attempt reports it
            return None
        return None if is_ready else lack

    def _lack_of_quantizer(self, target: str) -> str | None:
        """Return why llama-quantize is missing here; one search serves all jobs of a target."""
        seen, lack = self._lacks.get(target, (-math.inf, None))
        if time.monotonic() - seen > _LOOK_SECONDS:
            try:
                find_quantizer(target, self._lab.root)
            except LabctlError as error:
                lack = lack_of_host(error)
                if lack is None:
                    raise
            else:
                lack = None
            self._lacks[target] = time.monotonic(), lack
        return lack

    def took(self, job: Job, board: str) -> None:
        """Record the attempt that begins now on a board."""
        self._attempts[job.id, board] = job

    def inputs(self, job: Job) -> Inputs:
        """Return the inputs that this host needs for a job, each with a function that looks for it.

        A job that cannot be read here has no inputs: the attempt reports it.
        """
        root = self._lab.root
        try:
            content = RunContent.read(job.content)
            recipe = content.recipe
            found: dict[str, Callable[[], bool]] = {
                f"file {name}": (root / name).exists for name in content.files
            }
            if content.build is not None:
                name = f"build {content.build.model_dump_json()}"
                found[name] = partial(is_installed, content.build)
            for key in recipe.measured_models():
                name = f"model {origin(recipe.models, key, root)}"
                found[name] = partial(are_ready, recipe.models, [key], root)
        except LabctlError:
            return {}
        return {name: partial(_is_here, look) for name, look in found.items()}

    def prepare(self, job: Job) -> None:
        """Bring all inputs of a job to this host; uses no board.

        Raises what :meth:`content` raises, and what :func:`labctl.models.resolve` raises.
        """
        recipe, root = self._brought(job).recipe, self._lab.root
        if isinstance(recipe, Recipe):
            recipe_files(recipe, root, untrusted=job.kind == "untrusted").with_models(silent)
            return
        resolve(
            recipe.models,
            recipe.measured_models(),
            root=root,
            find_quantizer=partial(find_quantizer, self._target(job, recipe), root),
            progress=silent,
        )

    def _target(self, job: Job, recipe: AnyRecipe) -> str:
        """Return the target of a job's boards."""
        return target_of(recipe) or self._lab.board(job.boards[0]).target

    def content(self, job: FarmJob) -> RunContent:
        """Return the content of a job; fetch files missing on this host from the shared store."""
        return self._brought(self._found(job))

    def _brought(self, job: Job) -> RunContent:
        content = RunContent.read(job.content)
        for name, digest in content.files.items() if not self._is_alone else ():
            self._fetch(name, digest)
        if content.build is not None and not is_installed(content.build):
            if self._store is None:
                build = f"{content.build.product} {version_of(content.build)}"
                shared = "name a `store` in devices.yaml that all hosts of the lab share"
                hint = "build it again, or cancel the job" if self._is_alone else shared
                raise ConfigError(f"{build} is not built on this host", hint=hint).of_host()
            install(content.build, self._store.get)
        return content

    def _fetch(self, name: str, digest: str) -> None:
        path = self._lab.root / name
        if path.exists():
            return
        if self._store is None or not _is_in(self._lab, path):
            raise ConfigError(
                f"{name} is not on this host",
                hint="name a `store` in devices.yaml that all hosts of the lab share, and keep"
                " the files of recipes in the lab's folder",
            )
        # Several jobs, of one worker or two, may begin at once and need the same file.
        lock = self._lab.root / "runs" / f".fetch-{hashlib.sha256(name.encode()).hexdigest()}.lock"
        with locked(lock, timeout=_FETCH_SECONDS, holder=f"a job that fetches {name}"):
            if not path.exists():
                self._store.get(digest, path)

    def run_of(self, job: FarmJob) -> str | None:
        """Return the run of an earlier attempt; fetch it if another host stored it.

        A database restored from an older backup does not know the finished run, or only an
        interrupted one. Then the run is in the run directories of this host, or in the shared
        store.
        """
        found = self._found(job)
        run = self._own_runs.find(job.id, found.submitted_at, found.run)
        if self._archives is None:
            return run
        if run is None or self._state.stored_runs.get(run) is None:
            run = self._run_in_store(job.id) or run
        if run is None:
            return None
        self._archives.fetch(run)
        return run

    def _run_in_store(self, job: str) -> str | None:
        finished = self._finished_run(job)
        if finished is None:
            return None
        run, digest = finished
        if self._archives is not None and self._state.stored_runs.get(run) is None:
            self._archives.found(run, digest)
        return run

    def _finished_run(self, job: str) -> tuple[str, str] | None:
        """Return the run that finished a job, from the shared store, and the archive's digest."""
        assert self._store is not None
        content = self._store.read(_key(job), most_bytes=_MOST_BYTES)
        if content is None:
            return None
        try:
            finished = json.loads(content)
            return str(finished["run"]), str(finished["sha256"])
        except (ValueError, KeyError, TypeError) as error:
            raise IntegrityError(f"{self._store}: {_key(job)} is damaged") from error

    def note_run(self, job: FarmJob, board: str, run: str) -> None:
        """Record the run of a job. Raises LeaseLost if another worker now has the job."""
        attempt = self._attempts[job.id, board]
        retry_infra(
            lambda: self._state.jobs.start(attempt, run), on=(HostError,), timeout=_AWAY_SECONDS
        )

    def share(self, job: Job, run: str) -> bool:
        """Store a job's finished run. If that fails now, the worker's next start does it.

        The first run that finishes a job is its result. Any other run, of a host that lost the job
        or got it later, is moved to the trash; return False then.

        An interrupted run stays on this host, which resumes it if it gets the job again. Another
        host begins a new run.
        """
        directory = RunDirectory(self._lab.root / "runs" / run)
        if self._archives is None or not is_finished(directory):
            return True
        settle = partial(self._settle, self._archives, job.id, directory)
        try:
            return retry_infra(settle, on=(HostError,), timeout=_AWAY_SECONDS)
        except (HostError, IntegrityError) as error:
            self._note(f"run {run} is only on this host: {error.message}")
            return True

    def share_missing(self) -> None:
        """Store the finished runs that an earlier worker of this host could not store."""
        if self._archives is None:
            return
        for directory in self._archives.missing():
            run, job = directory.path.name, self._own_runs.job_of(directory)
            if job is None:
                self._archives.put(run)
            elif not self._settle(self._archives, job, directory):
                continue
            self._note(f"stored run {run}")

    def _settle(self, archives: RunArchives, job: str, directory: RunDirectory) -> bool:
        """Make a finished run a job's result, or return False if it has another."""
        assert self._store is not None
        run = directory.path.name
        finished = self._finished_run(job)
        if finished is None or finished[0] == run:
            digest = archives.upload(run)
            finished = self._finished_run(job)  # as late as possible
        if finished is not None and finished[0] != run:
            if directory.path.exists():  # else it is in the trash already
                self._note(
                    f"run {run} goes to the trash: run {finished[0]} finished job {job} before"
                )
                move_to_trash(directory)
            RunRepository(directory.path.parent).refresh()
            return False
        # In this order: after a kill in between, all steps are repeated.
        self._store.write(_key(job), json.dumps({"run": run, "sha256": digest}).encode())
        archives.found(run, digest)
        return True

    def _found(self, job: FarmJob) -> Job:
        found = self._state.jobs.get(job.id)
        if found is None:
            raise LeaseLost(f"job {job.id} is gone: the database no longer has it")
        return found


def _key(job: str) -> str:
    return f"jobs/{hashlib.sha256(job.encode()).hexdigest()}.json"


def share_inputs(lab: LabFile, store: SharedStore | None, content: RunContent) -> None:
    """Store the files of a job for hosts where they are missing.

    Raises HostError, and IntegrityError for a file that changed since.
    """
    if store is None:
        return
    for name, digest in content.files.items():
        path = lab.root / name
        if _is_in(lab, path):
            store.put(path, digest)
    if content.build is not None:
        folder = installed(content.build)
        for name, tool in content.build.tools.items():
            store.put(folder.tool(name), tool.sha256)


def _is_in(lab: LabFile, path: Path) -> bool:
    """Return True if a path in a job lies in the lab's folder after all links are resolved."""
    return path.resolve().is_relative_to(lab.root.resolve())


#: Maximum difference (s) between the clocks of a host and the database. No run begins before its
#: job.
_CLOCKS_SECONDS = 2 * 86_400.0


class RunsOfJobs:
    """Finds the run of a job in a folder of runs; each directory is read once."""

    def __init__(self, runs: Path):
        self._runs = runs
        #: Run -> its job, if any.
        self._jobs: dict[str, str | None] = {}

    def find(self, job: str, submitted_at: float, known: str | None) -> str | None:
        """Return the run that finished a job, else ``known``, else its last run; None: no run.

        ``submitted_at`` is in s since 1970. Raises ConfigError for a folder that cannot be read.
        """
        first = datetime.fromtimestamp(max(0.0, submitted_at - _CLOCKS_SECONDS), UTC)
        since = f"{first:%Y%m%dT%H%M%SZ}"
        found = [
            directory
            for directory in all_directories(self._runs)
            if directory.path.name >= since and self.job_of(directory) == job
        ]
        names = [directory.path.name for directory in found]
        finished = [
            directory.path.name
            for directory in found
            if (end := directory.end()) is not None and end.state == "finished"
        ]
        if known is not None and (known in finished or not finished):
            return known
        told = finished or names
        return told[-1] if told else None

    def job_of(self, directory: RunDirectory) -> str | None:
        """Return the job of a run; None for a run that is unplanned, imported or damaged.

        Raises ConfigError for a file that cannot be read.
        """
        run = directory.path.name
        if run not in self._jobs:
            with host_reads(directory.path):
                paths = (directory.path / kind for kind in KINDS)
                path = next((path for path in paths if path.is_file()), None)
                if path is None:
                    return None  # it is not planned yet
                content = path.read_bytes()
            job = None  # also of an imported run: another lab's jobs are not ours
            with suppress(ValueError, AttributeError):  # a damaged run has no job
                if not (directory.path / ORIGIN).exists():
                    job = json.loads(content).get("job")
            self._jobs[run] = job
        return self._jobs[run]


def _is_here(look: Callable[[], bool]) -> bool:
    try:
        return look()
    except (LabctlError, OSError):  # the attempt reports it
        return True
