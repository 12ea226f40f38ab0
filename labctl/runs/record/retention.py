"""Retention: which runs of a lab may go to the trash, and why the others stay."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from labctl.index.filters import Filter
from labctl.index.index import IndexedRun
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.repository import RunRepository


@dataclass(frozen=True)
class Retention:
    """Plan of a prune."""

    #: Newest first.
    remove: tuple[IndexedRun, ...]
    #: reason -> number of runs that it keeps; the first reason of each run counts
    kept: Mapping[str, int]

    @property
    def freed_bytes(self) -> int:
        """Size of what goes."""
        return sum(one.run.size_bytes or 0 for one in self.remove)

    @property
    def sizes(self) -> dict[str, int | None]:
        """Size in bytes of each run that goes, by its id."""
        return {one.run.id: one.run.size_bytes for one in self.remove}

    def document(self, moved: Iterable[str], *, dry_run: bool) -> dict[str, object]:
        """Return as JSON the runs that were ``moved``, or all that would be, and what is kept."""
        sizes = self.sizes
        told = sizes if dry_run else {run: sizes[run] for run in moved}
        return {"remove": told, "kept": dict(self.kept), "dry_run": dry_run}


def compression_document(
    freed_bytes: Mapping[str, int | None], *, dry_run: bool
) -> dict[str, object]:
    """Return as JSON what compressing each run freed, or which would be compressed."""
    return {"compress": freed_bytes, "dry_run": dry_run}


def old_runs(
    runs: Path,
    repository: RunRepository,
    wanted: Filter,
    *,
    keep_last: int,
    protected: Mapping[str, str],
) -> Retention:
    """Choose the runs that may go, of those that meet a filter.

    Of each recipe on each board the last ``keep_last`` runs with a good trial stay, and all that
    came after the first of these. A tag, a note, an import, damage, a controller, and what is
    ``protected`` (id -> reason) keep a run too. Runs of other hosts are not asked for.
    """
    kept: Counter[str] = Counter()
    remove = []
    for one, directory, recent in _own_runs(runs, repository, wanted, keep_last):
        if reason := _reason_to_keep(one, directory, protected, recent=recent):
            kept[reason] += 1
        else:
            remove.append(one)
    return Retention(tuple(remove), kept)


def compressible_runs(
    runs: Path, repository: RunRepository, wanted: Filter, *, keep_last: int
) -> list[RunDirectory]:
    """Return the finished runs that are not among the last ones and are not compressed yet."""
    return [
        directory
        for one, directory, recent in _own_runs(runs, repository, wanted, keep_last)
        if one.run.state == "finished" and not recent and directory.is_compressible
    ]


def _own_runs(
    runs: Path, repository: RunRepository, wanted: Filter, keep_last: int
) -> Iterator[tuple[IndexedRun, RunDirectory, bool]]:
    """Yield the runs that lie on this host and meet a filter, newest first; is each recent?"""
    candidates = {one.run.id for one in repository.query(wanted)}
    good: Counter[tuple[str, str | None]] = Counter()
    for one in repository.query():
        directory = RunDirectory(runs / one.run.id)
        if not directory.is_planned:
            continue
        group = (one.run.recipe, one.run.board)
        recent = good[group] < keep_last
        good[group] += one.run.trials_ok > 0 and directory.is_recorded_here
        if one.run.id in candidates:
            yield one, directory, recent


def _reason_to_keep(
    one: IndexedRun, directory: RunDirectory, protected: Mapping[str, str], *, recent: bool
) -> str | None:
    reasons = {
        "damaged": one.run.damage is not None,
        "imported": directory.is_imported,
        "linked": directory.path.is_symlink(),
        "tagged": bool(one.tags),
        "with a note": one.run.note is not None,
        "recent": recent,
        "in progress": one.run.state == "unfinished" and directory.is_held(),
    }
    return protected.get(one.run.id) or next((why for why, holds in reasons.items() if holds), None)
