"""The runs of the queue's jobs on this host, read from the run directories.

A database restored from an older backup does not know them. Finished measurements are not repeated.
"""

import json
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from labctl.files import host_reads
from labctl.runs.record.directory import ORIGIN, RUN, RunDirectory, all_directories

#: Maximum difference of a host's clock and the database's. No run begins before its job.
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
            path = directory.path / RUN
            with host_reads(path):
                if not path.is_file():
                    return None  # it is not planned yet
                content = path.read_bytes()
            job = None  # of one that is imported, too: another lab's jobs are not ours
            with suppress(ValueError, AttributeError):  # a damaged one is no job's
                if not (directory.path / ORIGIN).exists():
                    job = json.loads(content).get("job")
            self._jobs[run] = job
        return self._jobs[run]
