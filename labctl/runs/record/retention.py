"""Retention: the runs of a lab that may go to the trash, and the reasons to keep the others."""

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

    #: Runs to remove, newest first.
    remove: tuple[IndexedRun, ...]
    #: Reason -> number of runs kept for it; the first reason of each run counts.
    kept: Mapping[str, int]

    @property
    def freed_bytes(self) -> int:
        """Total size of the removed runs."""
        return sum(one.run.size_bytes or 0 for one in self.remove)

    @property
    def sizes(self) -> dict[str, int | None]:
        """Size in bytes of each removed run, by its id."""
        return {one.run.id: one.run.size_bytes for one in self.remove}

    def document(self, moved: Iterable[str], *, dry_run: bool) -> dict[str, object]:
        """Return as JSON the ``moved`` runs, or all runs that would be moved, and the kept runs."""
        sizes = self.sizes
        told = sizes if dry_run else {run: sizes[run] for run in moved}
        return {"remove": told, "kept": dict(self.kept), "dry_run": dry_run}


def compression_document(
    freed_bytes: Mapping[str, int | None], *, dry_run: bool
) -> dict[str, object]:
    """Return as JSON the bytes freed by compressing each run, or the runs to compress."""
    return {"compress": freed_bytes, "dry_run": dry_run}


def old_runs(
    runs: Path,
    repository: RunRepository,
    wanted: Filter,
    *,
    keep_last: int,
    protected: Mapping[str, str],
) -> Retention:
    """Choose the removable runs among the runs that match a filter.

    For each recipe on each board, the last ``keep_last`` runs with a good trial stay, and all runs
    after the first of these. A run also stays if it has a tag, a note, an import, damage or a
    controller, or is ``protected`` (id -> reason). Runs of other hosts are not considered.
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
    """Return the finished runs that are not recent and not compressed yet."""
    return [
        directory
        for one, directory, recent in _own_runs(runs, repository, wanted, keep_last)
        if one.run.state == "finished" and not recent and directory.is_compressible
    ]


def _own_runs(
    runs: Path, repository: RunRepository, wanted: Filter, keep_last: int
) -> Iterator[tuple[IndexedRun, RunDirectory, bool]]:
    """Yield the runs on this host that match a filter, newest first, each with True if recent."""
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
        "in progress": one.run.state in ("running", "interrupted") and directory.is_held(),
    }
    return protected.get(one.run.id) or next((why for why, holds in reasons.items() if holds), None)
