"""The lab's view for the dashboard, from its state, its index and its run directories."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from labctl.board.status import BoardUsage, BoardUse
from labctl.config.lab import LabFile
from labctl.index.filters import Filter
from labctl.index.index import Index, IndexedRun
from labctl.runs.record.directory import RunDirectory, is_run_id
from labctl.runs.record.repository import RunRepository
from labctl.state.health import BoardHealth
from labctl.state.lease import StateLease
from labctl.state.reservations import Reservation
from labctl.state.state import LabState, lab_state
from labctl.units import natural_order
from labctl.web.live_runs import LiveRun
from labctl.web.run_filter import PAGE_RUNS


@dataclass(frozen=True)
class BoardView:
    """One board now, by the lab's state and the board's last contact."""

    name: str
    target: str
    tags: tuple[str, ...]
    description: str | None
    transport: str
    address: str
    health: BoardHealth
    lease: StateLease | None
    #: Its holds and reservations, by begin.
    kept: tuple[Reservation, ...]
    live: LiveRun | None

    @property
    def hold(self) -> Reservation | None:
        """The present hold or reservation."""
        now = time.time()
        return next((one for one in self.kept if one.is_between(now, now + 1)), None)

    @property
    def state(self) -> BoardUse:
        """Its state."""
        return BoardUsage(self.health, self.lease, self.hold).use or "idle"

    @property
    def contact_age(self) -> float | None:
        """Time (s) since the last contact; None if there was no contact yet."""
        at = self.health.contact_at
        return None if at is None else max(0.0, time.time() - at)


class LabView:
    """A lab for readers; safe for several threads."""

    def __init__(self, lab: LabFile, live: Callable[[], Sequence[LiveRun]] = lambda: ()):
        self.lab = lab
        self.live = live

    @cached_property
    def state(self) -> LabState:
        """The lab's state."""
        return lab_state(self.lab)

    @cached_property
    def repository(self) -> RunRepository:
        """The runs of the lab."""
        return RunRepository(self.runs_folder)

    @property
    def runs_folder(self) -> Path:
        """The folder of run directories."""
        return self.lab.root / "runs"

    def boards(self) -> list[BoardView]:
        """Return all boards, in the order of devices.yaml. Raises HostError."""
        leases = {one.board: one for one in self.state.leases.list()}
        healths = {one.board: one for one in self.state.health.list()}
        kept: dict[str, list[Reservation]] = {}
        for one in self.state.reservations.list():
            kept.setdefault(one.board, []).append(one)
        live = {one.board: one for one in self.live()}
        return [
            BoardView(
                name=board.name,
                target=board.target,
                tags=board.tags,
                description=board.description,
                transport=board.transport.kind,
                address=board.transport.location,
                health=healths.get(board.name) or BoardHealth(board.name),
                lease=leases.get(board.name),
                kept=tuple(kept.get(board.name, ())),
                live=live.get(board.name),
            )
            for board in self.lab.lab.boards.values()
        ]

    def board(self, name: str) -> BoardView | None:
        """Return one board; None for an unknown name."""
        return next((one for one in self.boards() if one.name == name), None)

    def runs(self, wanted: Filter, page: int = 1) -> tuple[list[IndexedRun], int]:
        """Return a page of runs, newest first, and the number of all runs. Raises HostError."""
        skip = (page - 1) * PAGE_RUNS
        repository = self.repository
        found = repository.answer(
            lambda index: (
                repository.runs_now(index, wanted, limit=PAGE_RUNS, skip=skip),
                index.count(repository.as_of_now(index, wanted)),
            )
        )
        return found or ([], 0)

    def executions(self) -> Mapping[str, str | None]:
        """Return the execution of each board that was measured: ``board``, ``emulated`` …"""
        known = self.repository.answer(Index.executions) or {}
        return {**known, **{one.board: one.execution for one in self.live()}}

    def names(self, table: str, column: str) -> list[str]:
        """Return the texts of a column of the index, in natural order, for a menu."""
        found = self.repository.answer(lambda index: index.names(table, column)) or []
        return sorted(found, key=natural_order)

    def run(self, name: str) -> tuple[IndexedRun | None, RunDirectory | None]:
        """Return a run of the index, and its directory if it is on this host.

        Only the id of a run is used to find a file.
        """
        if not is_run_id(name):
            return None, None
        found = self.repository.answer(
            lambda index: self.repository.runs_now(index, Filter(ids=(name,)))
        )
        directory = RunDirectory(self.runs_folder / name)
        there = directory.path.is_dir() and not directory.path.is_symlink()
        return next(iter(found or []), None), (directory if there else None)
