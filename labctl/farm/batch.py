"""A batch: its plan on disk, and its jobs, which are a group in the lab's table of jobs.

``batches/<UTC time>-<name>-<short id>/`` holds ``batch.json``, with all jobs and their contents,
and at the end ``results.json``. Until then the table knows which jobs have ended. If the table was
lost, the run directories show which jobs have finished runs; those jobs do not run again.
"""

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labctl.config.lab import LabFile
from labctl.config.recipe import Recipe
from labctl.errors import Blame, BoardOutOfService, ConfigError, ExitStatus
from labctl.evaluation.any_recipe import longest_seconds
from labctl.farm.batch_plan import PlannedBatch, PlannedJob
from labctl.farm.job import FarmJob, JobResult
from labctl.farm.run_content import RunContent
from labctl.files import host_reads, host_writes, write_atomic
from labctl.locks import locked
from labctl.runs.record.directory import new_run_id
from labctl.state.events import this_user
from labctl.state.groups import GroupJob, NewGroup
from labctl.state.job import NewJob, new_job_id
from labctl.state.state import LabState, lab_state

FOLDER = "batches"
_PLAN, _RESULTS, _LOCK = "batch.json", "results.json", "lock"
#: Errors that a damaged file of a batch raises.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
_DAMAGED = "`labctl batch PLAN --new` begins another batch; finished runs stay"
#: Number of jobs to submit in one transaction.
_AT_ONCE = 200
#: A board counts as lost after this time (s) without a worker of its host, which may be restarting.
_WORKER_AWAY_SECONDS = 180.0
#: Interval (s) of the search for damaged jobs while no job of a batch runs.
_DAMAGE_SECONDS = 60.0


class Batch:
    """The plan of one batch, on disk."""

    def __init__(self, path: Path):
        """Read a batch. Raises HostError, ConfigError if a file of it is damaged."""
        self.path = path
        with host_reads(path):
            text = (path / _PLAN).read_bytes()
        try:
            document = json.loads(text)
            self.name: str = document["name"]
            self.group: str = document["group"]
            self.digest: str = document["digest"]
            pools: dict[tuple[str, ...], tuple[str, ...]] = {}
            self.jobs = tuple(_job(one, pools) for one in document["jobs"])
            contents = document["contents"].items()
            #: Contents as JSON text, because most of them wait a long time.
            self._contents = {digest: json.dumps(one) for digest, one in contents}
        except _UNREADABLE as error:
            raise ConfigError(f"{path / _PLAN} is damaged", hint=_DAMAGED) from error

    @classmethod
    def begin(cls, root: Path, planned: PlannedBatch) -> "Batch":
        """Write a new batch. Raises HostError."""
        path = root / FOLDER / new_run_id(planned.name)
        document = {
            "name": planned.name,
            "group": new_job_id(),
            "digest": planned.digest,
            "jobs": [{**vars(one.job), "content": one.content} for one in planned.jobs],
            "contents": planned.contents,
        }
        with host_writes(path):
            path.mkdir(parents=True)
        write_atomic(path / _PLAN, json.dumps(document) + "\n")
        return cls(path)

    @classmethod
    def unfinished(
        cls, root: Path, name: str, note: Callable[[str], None] = lambda _line: None
    ) -> "list[Batch]":
        """Return the batches of a plan that have jobs left, the newest first.

        ``note`` gets a line for each damaged batch, which stays as it is and is not continued.
        """
        found = []
        for path in sorted((root / FOLDER).glob(f"*-{name}-*"), reverse=True):
            if not (path / _PLAN).is_file() or (path / _RESULTS).exists():
                continue
            try:
                batch = cls(path)
            except ConfigError as error:
                note(f"not continued: {error.message}")
                continue
            if batch.name == name:
                found.append(batch)
        return found

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the batch against other processes of this host. Raises HostTimeout."""
        with locked(self.path / _LOCK, timeout=0.5, holder="another labctl that runs this batch"):
            yield

    def content(self, job: PlannedJob) -> Mapping[str, Any]:
        """Return the content of a job, as :meth:`RunContent.document` has it."""
        found: Mapping[str, Any] = json.loads(self._contents[job.content])
        return found

    def job_id(self, job: FarmJob) -> str:
        """Return the id of a job in the lab's table."""
        return f"{self.group}.{job.id}"

    def finish(self, results: Mapping[str, JobResult]) -> dict[str, object]:
        """Write the results of all jobs, by their ids in the plan; return them as JSON."""
        rows = [one.job.document() | results[one.job.id].document() for one in self.jobs]
        document: dict[str, object] = {"batch": self.path.name, "jobs": rows}
        write_atomic(self.path / _RESULTS, json.dumps(document, indent=2) + "\n")
        return document


class BatchJobs:
    """The jobs of a batch in the lab's table.

    Args:
        lab: the lab, as this host has it.
        batch: the plan.
        own_boards: boards of this host; boards of other hosts need a worker there.
        lacking: boards for which this host can have no agent, with the reason.
        on_end: gets a job, its board, the end of its attempt, and the number of ended jobs; None
            instead of the number if the job waits again.
    """

    def __init__(
        self,
        lab: LabFile,
        batch: Batch,
        own_boards: Collection[str],
        lacking: Mapping[str, ConfigError],
        on_end: Callable[[FarmJob, str, JobResult, int | None], None],
    ):
        self._lab = lab
        self._state: LabState = lab_state(lab)
        self._batch = batch
        self._own_boards = own_boards
        self._lacking = lacking
        self._on_end = on_end
        self._of = {batch.job_id(one.job): one for one in batch.jobs}
        #: Results by the job's id in the plan.
        self.results: dict[str, JobResult] = {}
        #: Ends from this time on are new, by the database's clock.
        self._since = 0.0
        #: Jobs whose row in the table could not be read at the last look.
        self._damaged: set[str] = set()
        self._damage_due = 0.0
        #: Job -> number of its interruptions that were reported.
        self._told: dict[str, int] = {}
        #: Board -> when a worker for it was first missing, by the monotonic clock.
        self._unserved: dict[str, float] = {}
        #: Returns False for an own board that this host does not reach; None: it does not know.
        self.reaches: Callable[[str], bool | None] = lambda _board: True

    @property
    def group(self) -> NewGroup:
        """The group of these jobs in the lab's table."""
        return NewGroup(self._batch.group, "batch", self._batch.name, this_user())

    def submit(self) -> int:
        """Add the missing jobs to the table; return the number of jobs that had ended before."""
        there = self._state.groups.jobs(self._of)
        for one in there:
            self._note_end(one)
        ended = len(self.results)
        self._add(self._of.keys() - {one.id for one in there})
        return ended

    def _add(self, absent: Collection[str]) -> None:
        """Add jobs to the table, in the order of the plan."""
        waiting = list[NewJob]()
        for job_id, planned in self._of.items():
            if job_id not in absent or planned.job.id in self.results:
                continue
            boards = tuple(name for name in planned.job.boards if name not in self._lacking)
            if not boards:
                why = self._lacking[planned.job.boards[0]].message
                self._give_up(planned.job, f"no board is left to run it on: {why}")
                continue
            waiting.append(self._new(job_id, planned, boards))
            if len(waiting) == _AT_ONCE:
                self._state.jobs.submit(*waiting)
                waiting.clear()
        if waiting:
            self._state.jobs.submit(*waiting)

    def _new(self, job_id: str, planned: PlannedJob, boards: tuple[str, ...]) -> NewJob:
        job, document = planned.job, self._batch.content(planned)
        recipe = RunContent.read(document).recipe
        if job.untrusted and isinstance(recipe, Recipe):
            from labctl.farm.untrusted_run import take_files

            taken = take_files(recipe, self._lab.root, job_id)
            document = RunContent.of(taken, self._lab.root, untrusted=True).document()
        if self._lab.lab.store is not None and not {*boards} <= {*self._own_boards}:
            from labctl.farm.queue_ledger import share_inputs
            from labctl.farm.store import lab_store

            share_inputs(self._lab, lab_store(self._lab), RunContent.read(document))
        return NewJob(
            job.name,
            document,
            boards,
            "untrusted" if job.untrusted else "run",
            job.priority,
            job.expected_seconds,
            longest_seconds(recipe, [self._lab.board(name) for name in boards]),
            job.uses,
            self._batch.group,
            None if job.group is None else f"{self._batch.group}.{job.group}",
            id=job_id,
        )

    def look(self) -> bool:
        """Report jobs that ended since the last look; return True once all have ended.

        Damaged jobs, and jobs for which no board is left, are given up when nothing else of the
        batch runs. A job that the table lost, for example after a restored backup, is added again.
        """
        news, left = self._state.groups.news(self._batch.group, self._since)
        self._tell(news)
        if left != len(self._of) - len(self.results) + len(self._damaged):
            unknown = [name for name, one in self._of.items() if one.job.id not in self.results]
            there = self._state.groups.jobs(unknown)
            self._tell(there)  # ends that look old because the clock was set back
            self._add({*unknown} - {one.id for one in there})
        runs = any(one.state == "running" and one.damaged is None for one in news)
        if not runs and len(self.results) < len(self._of):
            self._give_up_damaged()
            self._give_up_stranded()
        return len(self.results) == len(self._of)

    def _tell(self, jobs: Iterable[GroupJob]) -> None:
        """Report jobs that ended or wait again."""
        for one in jobs:
            if one.id not in self._of:
                continue  # its id is damaged
            job = self._of[one.id].job
            if self._note_end(one):
                self._on_end(job, one.board or "no board", self.results[job.id], len(self.results))
            elif one.state == "waiting" and one.failures > self._told.get(one.id, 0):
                self._told[one.id] = one.failures
                again = JobResult(ExitStatus.INFRA, one.run, Blame.INFRA, one.reason)
                self._on_end(job, "a board", again, None)

    def _note_end(self, one: GroupJob) -> bool:
        """Keep the result of a job; return True if its end is new."""
        job = self._of[one.id].job
        if not one.has_ended:
            return False
        self._since = max(self._since, one.ended_at or 0.0)
        is_new = job.id not in self.results
        if is_new:
            self.results[job.id] = _result(one)
            if job.untrusted:  # it may have ended elsewhere, or without an attempt
                from labctl.farm.untrusted_run import discard_files

                discard_files(self._lab.root, one.id)
        return is_new

    def _give_up_damaged(self) -> None:
        """Give up jobs whose rows in the table cannot be read; keep the rows for people."""
        if time.monotonic() < self._damage_due:
            return
        self._damage_due = time.monotonic() + _DAMAGE_SECONDS
        for name, why in self._state.groups.damaged(self._batch.group).items():
            if name in self._of and self._of[name].job.id not in self.results:
                self._damaged.add(name)
                self._give_up(self._of[name].job, f"its entry in the queue is {why}")

    def _give_up_stranded(self) -> None:
        waiting = self._state.groups.waiting(self._batch.group)
        lost = self._lost({board for boards in waiting for board in boards})
        for boards, jobs in waiting.items():
            if boards and lost.keys() >= {*boards}:
                reason = f"no board is left to run it on: {lost[boards[0]]}"
                self._state.groups.give_up(jobs, reason)

    def _lost(self, boards: Collection[str]) -> Mapping[str, str]:
        """Return the boards on which no job of the batch can run, with the reason."""
        served = {
            board for one in self._state.workers.list() if one.is_alive for board in one.boards
        }
        lost = {name: error.message for name, error in self._lacking.items()}
        now, untrusted = time.monotonic(), any(one.job.untrusted for one in self._batch.jobs)
        for name in boards:
            try:
                self._state.health.working([name], this_user(), untrusted=untrusted)
            except BoardOutOfService as error:
                lost[name] = error.message
            is_own = name in self._own_boards and self.reaches(name) is not False
            if is_own or name in served:
                self._unserved.pop(name, None)
            elif now - self._unserved.setdefault(name, now) > _WORKER_AWAY_SECONDS:
                host = self._lab.board(name).host
                lost[name] = (
                    f"no worker of host {host} serves board {name}: start `labctl worker` there"
                    if host
                    else f"no host reaches board {name}: start `labctl worker` on one that does"
                )
        return lost

    def _give_up(self, job: FarmJob, reason: str) -> None:
        result = JobResult(ExitStatus.INFRA, blame=Blame.INFRA, reason=reason)
        self.results[job.id] = result
        self._on_end(job, "no board", result, len(self.results))


def _result(job: GroupJob) -> JobResult:
    if job.state == "cancelled":
        why = f"cancelled: {job.reason}"
        return JobResult(ExitStatus.INFRA, job.run, Blame.INFRA, why)
    status = ExitStatus.INFRA if job.exit_status is None else job.exit_status
    return JobResult(status, job.run, job.blame, job.reason)


def _job(document: Mapping[str, Any], pools: dict[tuple[str, ...], tuple[str, ...]]) -> PlannedJob:
    """Read a job; thousands of them share a few ``pools`` of boards."""
    fields = dict(document)
    content = fields.pop("content")
    fields["uses"] = tuple(fields["uses"])
    boards = tuple(fields["boards"])
    fields["boards"] = pools.setdefault(boards, boards)
    return PlannedJob(FarmJob(**fields), content)
