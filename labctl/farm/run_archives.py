"""Run directories in the shared store: one archive each, fetched on demand.

An archive is a tar without times, owners and rights, with its files sorted by name: the same
directory has the same digest. The database has the digest of each run's archive, so the shared
store cannot replace it.
"""

import gzip
import socket
import tarfile
from collections.abc import Callable
from pathlib import Path

from labctl.archives import members, open_tar, unpacking
from labctl.config.lab import LabFile
from labctl.farm.store import SharedStore, lab_store
from labctl.files import host_writes, scratch, write_atomic
from labctl.runs.record.directory import FETCHED, LOCK, RunDirectory, all_directories, is_run_id
from labctl.runs.record.repository import run_elsewhere
from labctl.state.state import LabState, lab_state

_MOST_BYTES = 64 << 30
_NOT_SENT = (LOCK, FETCHED)


class RunArchives:
    """The archives of a lab's runs. Methods raise HostError, IntegrityError and ConfigError."""

    def __init__(self, store: SharedStore, state: LabState, runs: Path):
        self._store = store
        self._state = state
        self._runs = runs

    def put(self, run: str) -> str:
        """Store a run directory as it is now, and replace an earlier archive; return its digest."""
        digest = self.upload(run)
        self.found(run, digest)
        return digest

    def upload(self, run: str) -> str:
        """Upload a run directory before it is published; return its digest."""
        directory = self._runs / run
        with scratch(self._runs, f".archive-{run}-") as folder:
            archive = folder / "run.tar.gz"
            pack(directory, archive)
            return self._store.put(archive)

    def found(self, run: str, digest: str) -> None:
        """Publish the archive of a run to all hosts."""
        self._state.stored_runs.set(run, digest, socket.gethostname())

    def missing(self) -> list[RunDirectory]:
        """Return this host's finished runs that are not in the shared store, as far as known.

        A killed worker, an unreachable shared store or a database restored from an older backup
        leaves such runs.
        """
        known = self._state.stored_runs.list()
        return [
            found
            for found in all_directories(self._runs)
            if found.path.name not in known
            and not (found.path / FETCHED).exists()
            and is_finished(found)
        ]

    def fetch(self, run: str) -> bool:
        """Fetch a run. Return False if this host has it as stored, or if it is not stored."""
        path = self._runs / run
        mark = path / FETCHED
        if path.exists() and not mark.exists():
            return False  # this host measured it
        digest = self._state.stored_runs.get(run) if is_run_id(run) else None
        if digest is None or (mark.exists() and mark.read_text(encoding="utf-8").strip() == digest):
            return False
        with scratch(self._runs, f".fetch-{run}-") as folder:
            archive, made = folder / "run.tar.gz", folder / run
            self._store.get(digest, archive)
            unpack(archive, made)
            write_atomic(made / FETCHED, f"{digest}\n")
            with host_writes(path):
                if path.exists():
                    path.rename(folder / "before")
                made.rename(path)
        return True


def is_finished(directory: RunDirectory) -> bool:
    """Return True if a run is finished: nobody resumes it, so copies stay correct."""
    end = directory.end()
    return end is not None and end.state == "finished"


def fetch_named(lab: LabFile, runs: Path, name: str, note: Callable[[str], None]) -> None:
    """Fetch the runs of a name that only the lab's shared store has.

    Does nothing for a lab without a shared store, or for names that this host knows.
    """
    store = lab_store(lab)
    if store is None or name == "latest" or runs.resolve() != lab.root.resolve() / "runs":
        return
    state = lab_state(lab)
    baseline = None if is_run_id(name) else state.baselines.get(name)
    own = [path.name for path in runs.glob("*") if not (path / FETCHED).exists()]
    for wanted in baseline.runs if baseline else (name,):
        if any(run.startswith(wanted) or run.endswith(wanted) for run in own):
            continue
        elsewhere = run_elsewhere(runs, wanted)
        if elsewhere and RunArchives(store, state, runs).fetch(elsewhere.id):
            note(f"run {elsewhere.id} of host {elsewhere.host} is here, from {store}")


def pack(directory: Path, archive: Path) -> None:
    """Write a directory's files into one archive. Raises HostError."""
    with (
        host_writes(archive),
        archive.open("wb") as raw,
        gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in sorted(directory.rglob("*")):
            name = path.relative_to(directory).as_posix()
            if path.is_symlink() or not path.is_file() or name in _NOT_SENT:
                continue
            member = tarfile.TarInfo(name)
            with path.open("rb") as file:
                member.size, member.mode = path.stat().st_size, 0o644
                tar.addfile(member, file)


def unpack(archive: Path, folder: Path) -> None:
    """Write the files of an archive below a new folder. Raises IntegrityError, HostError."""
    with host_writes(folder), unpacking("an archive of a run"), open_tar(archive) as tar:
        folder.mkdir()
        for member in members(tar, most_bytes=_MOST_BYTES):
            if not member.isreg():
                raise ValueError(f"it has {member.name!r}, which labctl never packs")
            tar.extract(member, folder, filter="data")
