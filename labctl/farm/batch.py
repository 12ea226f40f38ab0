"""A batch on disk: its jobs, and a journal of their runs and results.

``batches/<UTC time>-<name>-<short id>/`` holds ``batch.json``, all jobs with all that they run, and
``journal.jsonl``: a line when a job's run is known, before its first trial, and one when the job
has ended. Together with the records of the runs that is all of its state: a kill at any point costs
at most what a kill of ``labctl run`` costs.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from labctl.errors import Blame, ConfigError
from labctl.farm.batch_plan import PlannedBatch, PlannedJob
from labctl.farm.job import FarmJob, JobResult
from labctl.farm.run_content import RunContent
from labctl.files import append_line, host_reads, host_writes, locked, write_atomic
from labctl.runs.record.directory import new_run_id

FOLDER = "batches"
_PLAN, _JOURNAL, _LOCK = "batch.json", "journal.jsonl", "lock"
#: What a damaged file of a batch raises.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
_DAMAGED = "`labctl batch PLAN --new` begins another batch; finished runs stay"


class Batch:
    """One batch; the ledger of its runs."""

    def __init__(self, path: Path):
        """Read a batch. Raises HostError, ConfigError if a file of it is damaged."""
        self.path = path
        with host_reads(path):
            text = (path / _PLAN).read_bytes()
        try:
            document = json.loads(text)
            self.name: str = document["name"]
            self.digest: str = document["digest"]
            pools: dict[tuple[str, ...], tuple[str, ...]] = {}
            self.jobs = tuple(_job(one, pools) for one in document["jobs"])
            contents = document["contents"].items()
            #: As text, because most of them wait a long time.
            self._contents = {digest: json.dumps(one) for digest, one in contents}
        except _UNREADABLE as error:
            raise ConfigError(f"{path / _PLAN} is damaged", hint=_DAMAGED) from error
        self._of = {one.job.id: one.content for one in self.jobs}
        self._lock = threading.Lock()
        self._read()

    def _read(self) -> None:
        self._runs: dict[str, str] = {}
        #: Job -> the last board that it was on.
        self._boards: dict[str, str] = {}
        #: Results of the jobs that have ended.
        self.results: dict[str, JobResult] = {}
        #: What was read without a torn last line; None: nothing is torn.
        self._whole: bytes | None = None
        for number, line in enumerate(self._lines(), 1):
            try:
                self._apply(json.loads(line))
            except _UNREADABLE as error:
                where = f"{self.path / _JOURNAL}:{number}"
                raise ConfigError(f"{where}: not a line of a batch", hint=_DAMAGED) from error

    def _apply(self, line: Mapping[str, Any]) -> None:
        self._runs[line["job"]] = line["run"] or self._runs.get(line["job"], "")
        self._boards[line["job"]] = line["board"] or self._boards.get(line["job"], "")
        if "exit_status" in line:
            blame = Blame(line["blame"]) if line["blame"] else None
            self.results[line["job"]] = JobResult(
                line["exit_status"], line["run"], blame, line["reason"]
            )

    @classmethod
    def begin(cls, root: Path, planned: PlannedBatch) -> "Batch":
        """Write a new batch. Raises HostError."""
        path = root / FOLDER / new_run_id(planned.name)
        document = {
            "name": planned.name,
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

        ``note`` gets a line about each that is damaged: it stays as it is, and is not continued.
        """
        found = []
        for path in sorted((root / FOLDER).glob(f"*-{name}-*"), reverse=True):
            if not (path / _PLAN).is_file():
                continue
            try:
                batch = cls(path)
            except ConfigError as error:
                note(f"not continued: {error.message}")
                continue
            if batch.name == name and batch.remaining:
                found.append(batch)
        return found

    @property
    def remaining(self) -> list[FarmJob]:
        """The jobs that have not ended; the rest of a group stays on the board of its first."""
        jobs = [one.job for one in self.jobs]
        begun = {job.group: board for job in jobs if (board := self._boards.get(job.id))}
        begun.pop(None, None)
        left = (job for job in jobs if job.id not in self.results)
        return [
            replace(job, boards=(begun[job.group],)) if job.group in begun else job for job in left
        ]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes out. Raises HostTimeout."""
        with locked(self.path / _LOCK, timeout=0.5, holder="another labctl that runs this batch"):
            self._read()  # another may have ended jobs since
            yield

    def content(self, job: FarmJob) -> RunContent:
        """Return what a job is to run. Raises ConfigError."""
        return RunContent.read(json.loads(self._contents[self._of[job.id]]))

    def run_of(self, job: FarmJob) -> str | None:
        """Return the last run that was noted for a job."""
        return self._runs.get(job.id) or None

    def note_run(self, job: FarmJob, board: str, run: str) -> None:
        """Keep the run of a job, before its first trial begins."""
        if self._runs.get(job.id) != run:
            self._write({"job": job.id, "board": board, "run": run})
            self._runs[job.id] = run

    def note_result(self, job: FarmJob, board: str, result: JobResult) -> None:
        """Keep the end of a job."""
        self._write(
            {
                "job": job.id,
                "board": board,
                "run": result.run,
                "exit_status": result.exit_status,
                "blame": result.blame,
                "reason": result.reason,
            }
        )
        self.results[job.id] = result

    def document(self) -> dict[str, object]:
        """Return a batch that is over as JSON: its jobs, each with its result."""
        rows = [one.job.document() | self.results[one.job.id].document() for one in self.jobs]
        return {"batch": self.path.name, "jobs": rows}

    def _write(self, line: Mapping[str, Any]) -> None:
        with self._lock:
            if self._whole is not None:
                write_atomic(self.path / _JOURNAL, self._whole)
                self._whole = None
            append_line(self.path / _JOURNAL, json.dumps(line))

    def _lines(self) -> list[bytes]:
        path = self.path / _JOURNAL
        if not path.exists():
            return []
        with host_reads(path):
            lines = path.read_bytes().splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            # Torn by a power cut: the record of its run has the same facts.
            lines.pop()
            self._whole = b"".join(lines)
        return lines


def _job(document: Mapping[str, Any], pools: dict[tuple[str, ...], tuple[str, ...]]) -> PlannedJob:
    """Read a job; thousands of them share a few ``pools`` of boards."""
    fields = dict(document)
    content = fields.pop("content")
    fields["uses"] = tuple(fields["uses"])
    boards = tuple(fields["boards"])
    fields["boards"] = pools.setdefault(boards, boards)
    return PlannedJob(FarmJob(**fields), content)
