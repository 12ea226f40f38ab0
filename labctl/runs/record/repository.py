"""The repository of a lab's runs: run directories, and the index made from them.

The directories decide. Before every answer their stamps are compared with those in the index, and
changed runs are read again: a run in progress, or one that was tagged, removed, copied from
elsewhere, or measured while the index could not be written.
"""

import os
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from labctl.config.lab import DATABASE_VARIABLE, find_lab, find_lab_root
from labctl.config.lab import FILE_NAME as DEVICES
from labctl.database import (
    DamagedDatabase,
    Database,
    SqliteDatabase,
    UnwritableDatabase,
    lab_database,
)
from labctl.database.base import together
from labctl.errors import ConfigError, LabctlError
from labctl.files import host_reads, host_writes, locked, write_atomic
from labctl.index import (
    SCHEMA_VERSION,
    Entry,
    Filter,
    Index,
    IndexedRun,
    IndexedTrial,
    ProbeRow,
    RunRow,
)
from labctl.index.index import Stamps
from labctl.records import Annotations, EvaluationEnd
from labctl.runs.record.directory import (
    EVALUATION,
    GENERATIONS,
    RUN,
    SERVING,
    RunDirectory,
    is_run_id,
)
from labctl.runs.record.disk import directory_bytes, read_file
from labctl.units import counted

#: Runs that are added in one transaction: others write in between, and a kill loses little.
_BATCH = 50
#: Reading more changed runs than these is a wait that needs a word.
_MANY = 200
_LOCK_SECONDS = 10.0

T = TypeVar("T")
Note = Callable[[str], None]


def silent(_text: str) -> None:
    """Say nothing."""


class RunRepository:
    """All runs of a lab. ``note`` gets a line about an index that had to be made again."""

    def __init__(self, runs: Path, note: Note = silent):
        self._runs = runs
        self._note = note

    @cached_property
    def _index(self) -> Index:
        database = _shared_database(self._runs)
        if database is not None:
            return Index(database, _folder_id(self._runs))
        hint = "`labctl index rebuild` makes it again from the run directories"
        return Index(SqliteDatabase(self._runs / "index.sqlite", "the index", hint))

    def add(self, directory: RunDirectory) -> None:
        """Read one run into the index. Raises HostError when the index cannot be written."""
        stamp = stamp_of(directory.path)
        if stamp is not None:
            together(self._runs.absolute(), _entry(directory, stamp), self._index.add)

    def get(self, run_id: str) -> IndexedRun | None:
        """Return a run by its id; None if there is none."""
        return next(iter(self.query(Filter(ids=(run_id,)))), None)

    def query(self, wanted: Filter | None = None, *, limit: int | None = None) -> list[IndexedRun]:
        """Return the runs that meet a filter, newest first.

        A damaged run has the state ``damaged``, and only the facts in its id. Raises HostError.
        """
        return self._ask(lambda index: index.runs(wanted, limit=limit))

    def refresh(self) -> None:
        """Bring the index up to date, for questions to :attr:`known`. Raises HostError."""
        self._ask(lambda _index: [])

    @property
    def known(self) -> Index | None:
        """The index as it is, without a look at the run directories; None where there is none."""
        return self._index if self._index.version() == SCHEMA_VERSION else None

    def trials(self, wanted: Filter | None = None) -> list[IndexedTrial]:
        """Return the trials of the runs that meet a filter, oldest first. Raises HostError."""
        return self._ask(lambda index: index.trials(wanted))

    def tags(self) -> list[str]:
        """Return all tags in use."""
        return self._ask(Index.tags)

    def parameters(self) -> list[tuple[str, str]]:
        """Return all names of engine parameters with each of their values."""
        return self._ask(Index.parameters)

    def probes(self, board: str | None = None) -> list[ProbeRow]:
        """Return the probes of the lab's boards, or of one, newest first. Raises HostError.

        A damaged one has a ``damage`` and no rates.
        """
        return self._ask_again(lambda: self._probes(board))

    def _probes(self, board: str | None) -> list[ProbeRow]:
        from labctl.runs.record.history import probe_files, probe_row

        version = self._index.version()
        known = self._index.probe_files() if version == SCHEMA_VERSION else Stamps({}, frozenset())
        there = probe_files(self._runs.parent)
        new = [path for file, path in there.items() if file not in {*known.own, *known.others}]
        if new:
            self._index.add_probes([probe_row(path) for path in new])
        if gone := sorted(known.own.keys() - there.keys()):
            self._index.remove_probes(gone)
        return self._index.probes(board) if there or known.others else []

    def rebuild(self, *, of_all_hosts: bool = False) -> list[IndexedRun]:
        """Make the index again from the run directories alone; return what it holds now.

        In a shared database the runs of other hosts stay, or go until their host adds them again.
        """
        if of_all_hosts:
            self._index.make_again()
        else:
            self._index.clear()
        self.probes()
        return self.query()

    def _ask(self, question: Callable[[Index], list[T]]) -> list[T]:
        return self._ask_again(lambda: question(self._index) if self._is_current() else [])

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
        """Return an index that goes with this process."""
        with host_writes(Path("a temporary folder")):
            folder = tempfile.mkdtemp(prefix="labctl-index-")
        database = SqliteDatabase(Path(folder) / "index.sqlite", "the index", "")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        weakref.finalize(self, database.close)  # before: the last one is the first to be called
        return Index(database)

    def _is_current(self) -> bool:
        """Bring the index up to date. Return False if there is no run, and maybe no index."""
        version = self._index.version()
        none = Stamps({}, frozenset())
        known = self._index.stamps() if version == SCHEMA_VERSION else none
        there = _stamps(self._runs)
        changed = sorted(
            name
            for name, stamp in there.items()
            if known.own.get(name) != stamp and name not in known.others
        )
        number = counted(len(changed), "run")
        if version not in (None, SCHEMA_VERSION):
            self._note(f"the index is of another version of labctl: made again from {number}")
        elif len(changed) > _MANY:
            self._note(f"reading {number} into the index")
        for first in range(0, len(changed), _BATCH):
            batch = changed[first : first + _BATCH]
            self._index.add(_entry(RunDirectory(self._runs / n), there[n]) for n in batch)
        if gone := sorted(known.own.keys() - there.keys()):
            self._index.remove(gone)
        return bool(there or known.others)


def _shared_database(runs: Path) -> Database | None:
    """Return the PostgreSQL of the lab that the folder of runs belongs to; None without one."""
    root = find_lab_root(runs)
    if root is None or runs.resolve() != root / "runs":
        return None
    with host_reads(root):
        named = b"database" in (root / DEVICES).read_bytes() or DATABASE_VARIABLE in os.environ
    if not named:
        return None  # most labs have none: a list need not wait for all boards to be checked
    from labctl.transport.registry import TRANSPORTS

    return lab_database(find_lab(root, TRANSPORTS))


def _folder_id(runs: Path) -> str:
    """Return what a folder of runs is called in a shared database; with nothing to add, nothing.

    It lies in the folder: hosts that have it on a network file system agree, and it may be moved.
    """
    path = runs / "folder-id"
    if not (runs.is_dir() or (runs.parent / "boards").is_dir()):
        return ""
    if not path.exists():
        with locked(runs / "folder-id.lock", timeout=_LOCK_SECONDS):
            if not path.exists():
                write_atomic(path, f"{secrets.token_hex(8)}\n")
    with host_reads(path):
        return path.read_text().strip()


def note_in_index(directory: RunDirectory, note: Note) -> None:
    """Add a run to the index of its lab; the next list does what fails here."""
    try:
        RunRepository(directory.path.parent).add(directory)
    except LabctlError as error:
        note(f"note: {error.message}")


def run_elsewhere(runs: Path, name: str) -> RunRow | None:
    """Return a run of this id, or start or end of it, that a shared index alone knows."""
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


def _entry(directory: RunDirectory, stamp: str) -> Entry:
    entry = _facts(directory, stamp)
    with suppress(ConfigError):  # of a folder that nobody here may read no size is known
        size = directory_bytes(directory.path)
        return replace(entry, run=replace(entry.run, size_bytes=size))
    return entry


def _facts(directory: RunDirectory, stamp: str) -> Entry:
    from labctl.index.entry import damaged_entry, entry_of  # a list that is up to date needs none

    name = directory.path.name
    annotations = Annotations()
    try:
        annotations = directory.annotations()
        if directory.is_evaluation:
            return _evaluation_facts(directory, stamp, annotations)
        if directory.is_load_test:
            from labctl.index.entry import load_test_entry

            return load_test_entry(
                name, directory.serving(), directory.end(), annotations=annotations, stamp=stamp
            )
        run, trials, end = directory.run(), directory.trials(), directory.end()
        origin = directory.origin()
        warm_ups = sum(trial.repeat == 0 for trial in directory.plan().trials)
    except ConfigError as error:
        return damaged_entry(name, error.message, annotations, stamp)
    entry = entry_of(
        name,
        run,
        trials,
        end,
        annotations=annotations,
        stamp=stamp,
        warm_ups=warm_ups,
        origin=origin,
    )
    if not entry.is_storable:
        damage = "a record has a number of more than 64 bits"
        return damaged_entry(name, damage, annotations, stamp)
    return entry


def _evaluation_facts(directory: RunDirectory, stamp: str, annotations: Annotations) -> Entry:
    from labctl.index.entry import evaluation_entry

    end = directory.path / "end.json"
    recorded = 0
    answers = directory.path / GENERATIONS
    with host_reads(directory.path), suppress(FileNotFoundError), answers.open("rb") as file:
        recorded = sum(map(_is_answer, file))
    return evaluation_entry(
        directory.path.name,
        directory.evaluation(),
        read_file(end, EvaluationEnd) if end.exists() else None,
        annotations=annotations,
        stamp=stamp,
        recorded=recorded,
    )


def _is_answer(line: bytes) -> bool:
    """Return True for a whole answer; False for a limit check, a failure or a torn line.

    Not parsed, since there may be many. Quotes in a text are escaped: only keys are found.
    """
    others = (key in line and key + b"null" not in line for key in (b'"check":', b'"failure":'))
    return line.endswith(b"\n") and not any(others)


def _stamps(runs: Path) -> dict[str, str]:
    """Return the stamp of every run by its id."""
    with host_reads(runs):
        if not runs.is_dir():
            return {}
        stamps = {name: stamp_of(runs / name) for name in os.listdir(runs) if is_run_id(name)}
    return {name: stamp for name, stamp in stamps.items() if stamp is not None}


def stamp_of(directory: Path) -> str | None:
    """Return what changes with a run directory; None if it is no planned run.

    Files that are replaced change the time of the directory, lines that are appended that of
    records.jsonl, or generations.jsonl. A kill may have come between a trial's record and its line:
    of a run without an end the records are counted too.
    """
    folder = str(directory)
    try:
        times, lines_in = [os.stat(folder).st_mtime_ns], "records.jsonl"
        try:
            times.append(os.stat(f"{folder}/{RUN}").st_mtime_ns)
        except FileNotFoundError:
            other = EVALUATION if os.path.exists(f"{folder}/{EVALUATION}") else SERVING
            times.append(os.stat(f"{folder}/{other}").st_mtime_ns)
            lines_in = GENERATIONS
    except (FileNotFoundError, NotADirectoryError):
        return None
    with suppress(FileNotFoundError):
        lines = os.stat(f"{folder}/{lines_in}")
        times += [lines.st_mtime_ns, lines.st_size]
    if not os.path.exists(f"{folder}/end.json"):
        times.append(len(RunDirectory(directory).records()))
    return " ".join(map(str, times))
