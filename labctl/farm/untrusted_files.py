"""Files of untrusted jobs in the queue: copies in the lab, safe from later changes.

When a pull request's job begins, its checkout is gone or has changed. So the job's files are below
``untrusted/JOB/`` in the lab's folder, with their digests; other hosts get them from the shared
store.
"""

import os
import shutil
import stat
import time
from itertools import count
from pathlib import Path

from labctl.config.recipe import Recipe
from labctl.errors import ConfigError
from labctl.files import host_reads, host_writes
from labctl.runs.inputs.untrusted import Workspace, with_paths
from labctl.state import LabState

FOLDER = "untrusted"
#: A folder without a job may belong to a job that is being submitted, for this time (s).
_SUBMITTING_SECONDS = 3600.0


def take_files(recipe: Recipe, lab_root: Path, job: str) -> Recipe:
    """Copy the files of a recipe within its workspace into the lab; return it with the copies.

    Raises HostError, ConfigError.
    """
    numbers = count()

    def taken(text: str) -> str:
        source = Path(text)
        name = f"{FOLDER}/{job}/{next(numbers)}/{source.name}"
        with host_writes(lab_root / name):
            (lab_root / name).parent.mkdir(parents=True)
        _copy(source, lab_root / name)
        return name

    with host_writes(lab_root / FOLDER):
        (lab_root / FOLDER).mkdir(mode=0o700, exist_ok=True)
    return with_paths(recipe, taken)


def check_paths(recipe: Recipe, lab_root: Path, job: str) -> None:
    """Raise ConfigError for a job that requests more than an untrusted recipe may have."""
    workspace = Workspace((lab_root / FOLDER / job).resolve())
    wanted = with_paths(recipe, lambda text: str(lab_root / text))
    for path, sentence in workspace.problems(wanted):
        where = ".".join(map(str, path))
        raise ConfigError(f"the job is not of an untrusted recipe: {where}: {sentence}")


def discard_files(lab_root: Path, job: str) -> None:
    """Remove the files of a job that has ended."""
    shutil.rmtree(lab_root / FOLDER / job, ignore_errors=True)


def discard_ended(lab_root: Path, state: LabState) -> None:
    """Remove the files of jobs that ended elsewhere, were cancelled or given up."""
    for folder in sorted((lab_root / FOLDER).glob("*")):
        job = state.jobs.get(folder.name)
        try:
            young = time.time() - folder.stat().st_mtime < _SUBMITTING_SECONDS
        except FileNotFoundError:
            continue  # another process was faster
        if (job is None and not young) or (job is not None and job.ended_at is not None):
            discard_files(lab_root, folder.name)


def _copy(source: Path, to: Path) -> None:
    """Copy a plain file; refuse a link in its place."""
    with host_reads(source):
        file = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(file, "rb") as reading, host_writes(to), to.open("xb") as writing:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise ConfigError(f"{source} is no longer a file")
        shutil.copyfileobj(reading, writing)
