"""Workers that run in this process, with executors that only note what they are to run."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from labctl.config.lab import LabFile
from labctl.farm.job import FarmJob, JobResult
from labctl.farm.queue_engine import QueueEngine
from labctl.farm.worker import Worker
from labctl.state.job import NewJob
from labctl.state.state import lab_state

#: Workers with their threads.
Started = list[tuple[Worker, threading.Thread]]


class Recorded:
    """An executor that notes what it was to run; each job has its results in turn."""

    def __init__(self, results: dict[str, list[JobResult]] | None = None) -> None:
        self.ran: list[tuple[str, str]] = []
        self.results = results or {}
        self.stopped = threading.Event()

    def run(self, job: FarmJob, board: str) -> JobResult:
        """Return the job's next result; success if it has none."""
        self.ran.append((job.id, board))
        if left := self.results.get(job.id):
            return left.pop(0)
        return JobResult(0, run=f"run-of-{job.id}")

    def stop(self) -> None:
        """Note that all jobs are to stop."""
        self.stopped.set()


def new_job(name: str, *boards: str, **more: object) -> NewJob:
    """Return a job for some boards, its id its name."""
    return NewJob(name, {"version": 1}, boards, id=name, **more)  # type: ignore[arg-type]


def made_worker(lab: LabFile, executor: Recorded, *boards: str, host: str = "lab1") -> Worker:
    """Return a worker that looks often."""
    engine = None if lab.database is None else QueueEngine(lab)
    return Worker(lab_state(lab), host, boards, executor, engine, look_seconds=0.1)


def looks_of(worker: Worker) -> list[None]:
    """Return a list that grows with each look of a worker."""
    looks, plain = list[None](), worker._begin

    def look() -> None:
        plain()
        looks.append(None)

    worker._begin = look  # type: ignore[method-assign]
    return looks


def start(started: Started, worker: Worker) -> None:
    """Run a worker in a thread."""
    thread = threading.Thread(target=worker.run)
    started.append((worker, thread))
    thread.start()


@contextmanager
def workers() -> Iterator[Started]:
    """Yield a list for workers; those in it are stopped at the end."""
    started: Started = []
    yield started
    for worker, thread in started:
        worker.stop()
        thread.join(60)
        assert not thread.is_alive()
