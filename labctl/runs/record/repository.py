"""The repository of a lab's runs: queries on their index, which is updated before each answer."""

import os
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeVar

from labctl.config.lab import DATABASE_VARIABLE, find_lab, find_lab_root
from labctl.config.lab import FILE_NAME as DEVICES
from labctl.database.base import (
    DamagedDatabase,
    Database,
    UnwritableDatabase,
    lab_database,
    patience,
    together,
)
from labctl.database.sqlite import SqliteDatabase
from labctl.errors import LabctlError
from labctl.files import host_reads, host_writes, write_atomic
from labctl.index.filters import Filter
from labctl.index.index import Index, IndexedRun, IndexedTrial, Stamps
from labctl.index.rows import VERSION, ProbeRow, RunRow
from labctl.locks import locked
from labctl.runs.record.directory import (
    RunDirectory,
)
from labctl.runs.record.index_refresh import (
    Note,
    entry_with_size,
    refresh_index,
    silent,
    stamp_of,
)

_LOCK_SECONDS = 10.0

T = TypeVar("T")


class RunRepository:
    """All runs of a lab. ``note`` gets a line about an index that had to be rebuilt."""

    def __init__(self, runs: Path, note: Note = silent):
        self._runs = runs
        self._note = note

    @cached_property
    def _index(self) -> Index:
        database = _shared_database(self._runs)
        if database is not None:
            return Index(database, _folder_id(self._runs))
        hint = "labctl makes it again from the run directories"
        return Index(SqliteDatabase(self._runs / "index.sqlite", "the index", hint))

    def add(self, directory: RunDirectory) -> None:
        """Read one run into the index. Raises HostError if the index cannot be written."""
        stamp = stamp_of(directory.path)
        if stamp is not None:
            together(self._runs.absolute(), entry_with_size(directory, stamp), self._index.add)

    def get(self, run_id: str) -> IndexedRun | None:
        """Return a run by its id; None if it does not exist."""
        return next(iter(self.query(Filter(ids=(run_id,)))), None)

    def query(self, wanted: Filter | None = None, *, limit: int | None = None) -> list[IndexedRun]:
        """Return the runs that meet a filter, newest first.

        A damaged run has the state ``damaged``, and only the facts in its id. Raises HostError.
        """
        return self._ask(lambda index: self.runs_now(index, wanted, limit=limit))

    def runs_now(
        self, index: Index, wanted: Filter | None = None, *, limit: int | None = None, skip: int = 0
    ) -> list[IndexedRun]:
        """Return runs of an index, each ``running`` or ``interrupted`` if it has no end."""
        found = index.runs(wanted and self.as_of_now(index, wanted), limit=limit, skip=skip)
        return [
            replace(one, run=replace(one.run, state=self._without_end(one.run.id)))
            if one.run.state == "unfinished"
            else one
            for one in found
        ]

    def as_of_now(self, index: Index, wanted: Filter) -> Filter:
        """Return a filter that knows which runs a controller drives now, if it asks for that."""
        if not {"running", "interrupted"} & {*wanted.states}:
            return wanted
        ids = (one.run.id for one in index.runs(Filter(states=("unfinished",))))
        driven = (name for name in ids if self._without_end(name) == "running")
        return replace(wanted, running=tuple(driven))

    def _without_end(self, run: str) -> Literal["running", "interrupted"]:
        """Return the state of a run without an end: the lock of its directory shows it."""
        return "running" if RunDirectory(self._runs / run).is_held() else "interrupted"

    def refresh(self) -> None:
        """Update the index, for questions to :attr:`known`. Raises HostError."""
        self._ask(lambda _index: [])

    @property
    def known(self) -> Index | None:
        """The index as it is, without looking at the run directories; None if there is no index."""
        return self._index if self._index.version() == VERSION else None

    def answer(self, question: Callable[[Index], T]) -> T | None:
        """Answer from :attr:`known`, None without an index; rebuild a damaged index.

        Raises HostError.
        """
        try:
            return None if self.known is None else question(self.known)
        except DamagedDatabase:
            self._index.make_again()
            self.refresh()
            return question(self._index)

    def trials(self, wanted: Filter | None = None) -> list[IndexedTrial]:
        """Return the trials of the runs that meet a filter, oldest first. Raises HostError."""
        return self._ask(lambda index: index.trials(wanted))

    def tags(self) -> list[str]:
        """Return all tags in use."""
        return self._ask(Index.tags)

    def parameters(self) -> list[tuple[str, str]]:
        """Return all names of engine parameters with all their values."""
        return self._ask(Index.parameters)

    def probes(self, board: str | None = None) -> list[ProbeRow]:
        """Return the probes of the lab's boards, or of one board, newest first. Raises HostError.

        A damaged probe has a ``damage`` and no rates.
        """
        return self._ask_again(lambda: self._probes(board))

    def _probes(self, board: str | None) -> list[ProbeRow]:
        from labctl.board.probe_files import probe_files, probe_row

        version = self._index.version()
        known = self._index.probe_files() if version == VERSION else Stamps({}, frozenset())
        there = probe_files(self._runs.parent)
        new = [path for file, path in there.items() if file not in {*known.own, *known.others}]
        if new:
            self._index.add_probes([probe_row(path) for path in new])
        if gone := sorted(known.own.keys() - there.keys()):
            self._index.remove_probes(gone)
        return self._index.probes(board) if there or known.others else []

    def _ask(self, question: Callable[[Index], list[T]]) -> list[T]:
        return self._ask_again(
            lambda: (
                question(self._index) if refresh_index(self._index, self._runs, self._note) else []
            )
        )

    def _ask_again(self, question: Callable[[], list[T]]) -> list[T]:
        try:
            try:
                return question()
            except DamagedDatabase:
                self._index.make_again()
                self._note("the index of runs was damaged: made again from the run directories")
                return question()
        except UnwritableDatabase as error:  # an archive, another user's lab, a full disk
            self._note(f"{error.message}: all runs are read for this answer")
            self._index = self._passing_index()
            return question()

    def _passing_index(self) -> Index:
        """Return a temporary index that is removed when this process ends."""
        with host_writes(Path("a temporary folder")):
            folder = tempfile.mkdtemp(prefix="labctl-index-")
        database = SqliteDatabase(Path(folder) / "index.sqlite", "the index", "")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        weakref.finalize(self, database.close)  # before: finalizers are called in reverse order
        return Index(database)


def _shared_database(runs: Path) -> Database | None:
    """Return the PostgreSQL of the lab that owns the folder of runs; None without PostgreSQL."""
    root = find_lab_root(runs)
    if root is None or runs.resolve() != root / "runs":
        return None
    with host_reads(root):
        named = b"database" in (root / DEVICES).read_bytes() or DATABASE_VARIABLE in os.environ
    if not named:
        return None  # most labs have no PostgreSQL: a list need not wait for a check of all boards
    from labctl.transport.built_in import TRANSPORTS

    return lab_database(find_lab(root, TRANSPORTS))


def _folder_id(runs: Path) -> str:
    """Return the id of a folder of runs in a shared database; empty without a folder.

    The id is in the folder: hosts that share it on a network file system agree, and it may be
    moved.
    """
    path = runs / "folder-id"
    if not (runs.is_dir() or (runs.parent / "boards").is_dir()):
        return ""
    if not path.exists():
        with locked(runs / "folder-id.lock", timeout=_LOCK_SECONDS):
            if not path.exists():
                write_atomic(path, f"{secrets.token_hex(8)}\n")
    with host_reads(path):
        return path.read_text(encoding="utf-8").strip()


def note_in_index(directory: RunDirectory, note: Note) -> None:
    """Add a run to the index of its lab; if this fails, the next list repeats it."""
    try:
        with patience(0.0):  # it is a cache
            RunRepository(directory.path.parent).add(directory)
    except LabctlError as error:
        note(f"note: {error.message}")


def run_elsewhere(runs: Path, name: str) -> RunRow | None:
    """Return a run that only a shared index knows, by its id, or the start or end of its id."""
    if _shared_database(runs) is None:
        return None
    known = [one.run for one in RunRepository(runs).query()]
    found = [run for run in known if run.id.startswith(name) or run.id.endswith(name)]
    return found[0] if len(found) == 1 else None


def newest_elsewhere(runs: Path) -> RunRow | None:
    """Return the newest run that a shared index knows."""
    if _shared_database(runs) is None:
        return None
    return next((one.run for one in RunRepository(runs).query(limit=1)), None)
