"""Keep the index of runs up to date with the run directories, which are the source.

Before every answer the stamps of the directories are compared with the stamps in the index, and
changed runs are read again: a run in progress, or a run that was tagged, removed, copied from
elsewhere, or measured while the index could not be written.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from labctl.errors import ConfigError
from labctl.files import host_reads
from labctl.index.index import Index, Stamps
from labctl.index.rows import VERSION, Entry
from labctl.records.evaluation import EvaluationEnd
from labctl.records.run import Annotations
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

#: Runs per transaction: others can write in between, and a kill loses little.
_BATCH = 50
#: Reading more changed runs than this number takes long, so it is announced.
_MANY = 200

Note = Callable[[str], None]


def silent(_text: str) -> None:
    """Say nothing."""


def refresh_index(index: Index, runs: Path, note: Note) -> bool:
    """Update the index. Return False without runs; then the index may be missing, too."""
    version = index.version()
    none = Stamps({}, frozenset())
    known = index.stamps() if version == VERSION else none
    there = _stamps(runs)
    changed = sorted(
        name
        for name, stamp in there.items()
        if known.own.get(name) != stamp and name not in known.others
    )
    number = counted(len(changed), "run")
    if version not in (None, VERSION):
        note(f"the index is of another version of labctl: made again from {number}")
    elif len(changed) > _MANY:
        note(f"reading {number} into the index")
    for first in range(0, len(changed), _BATCH):
        batch = changed[first : first + _BATCH]
        index.add(entry_with_size(RunDirectory(runs / n), there[n]) for n in batch)
    if gone := sorted(known.own.keys() - there.keys()):
        index.remove(gone)
    return bool(there or known.others)


def _stamps(runs: Path) -> dict[str, str]:
    """Return the stamp of every run by its id."""
    with host_reads(runs):
        if not runs.is_dir():
            return {}
        stamps = {name: stamp_of(runs / name) for name in os.listdir(runs) if is_run_id(name)}
    return {name: stamp for name, stamp in stamps.items() if stamp is not None}


def stamp_of(directory: Path) -> str | None:
    """Return a value that changes with a run directory; None if it is not a planned run.

    Replaced files change the time of the directory; appended lines change the time of records.jsonl
    or generations.jsonl. A kill may come between a trial's record and its line, so the records of a
    run without an end are also counted.
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


def entry_with_size(directory: RunDirectory, stamp: str) -> Entry:
    """Return the rows of one run, with the size of its directory if it can be read."""
    entry = _facts(directory, stamp)
    if not directory.is_recorded_here:  # its number belongs to another folder
        entry = replace(entry, run=replace(entry.run, recorded=None))
    with suppress(ConfigError):  # the size of an unreadable folder is unknown
        size = directory_bytes(directory.path)
        return replace(entry, run=replace(entry.run, size_bytes=size))
    return entry


def _facts(directory: RunDirectory, stamp: str) -> Entry:
    from labctl.index.entry import damaged_entry, entry_of  # only for changed runs

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
        plan = directory.plan()
    except ConfigError as error:
        return damaged_entry(name, error.message, annotations, stamp)
    entry = entry_of(
        name,
        run,
        trials,
        end,
        annotations=annotations,
        stamp=stamp,
        plan=plan,
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
    """Return True for a complete answer; False for a limit check, a failure or a torn line.

    Lines are not parsed, since there may be many. Quotes in texts are escaped, so only keys match.
    """
    others = (key in line and key + b"null" not in line for key in (b'"check":', b'"failure":'))
    return line.endswith(b"\n") and not any(others)
