"""What the dashboard shows of a lab, gathered from its state, its index and its run directories."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from labctl.config.lab import LabFile
from labctl.errors import ConfigError
from labctl.index import Filter, Index, IndexedRun
from labctl.runs.record.directory import RunDirectory, is_run_id
from labctl.runs.record.repository import RunRepository
from labctl.state import BoardHealth, LabState, lab_state
from labctl.state.leases import StateLease
from labctl.state.reservations import Reservation
from labctl.web.live_runs import LiveRun

PAGE_RUNS = 50


@dataclass(frozen=True)
class BoardView:
    """One board now. ``state`` is apart from its health."""

    name: str
    target: str
    tags: tuple[str, ...]
    description: str | None
    address: str
    state: str
    health: BoardHealth
    lease: StateLease | None
    #: Times for which it is kept, by their begin.
    kept: tuple[Reservation, ...]
    live: LiveRun | None

    @property
    def hold(self) -> Reservation | None:
        """The hold or reservation that is in force."""
        now = time.time()
        return next((one for one in self.kept if one.begins <= now < one.ends), None)


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

    @property
    def index(self) -> Index | None:
        """The index as the watcher left it; None where there is no run yet."""
        return self.repository.known

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
                address=board.transport.location,
                state=_state(leases.get(board.name), healths.get(board.name)),
                health=healths.get(board.name) or BoardHealth(board.name),
                lease=leases.get(board.name),
                kept=tuple(kept.get(board.name, ())),
                live=live.get(board.name),
            )
            for board in self.lab.lab.boards.values()
        ]

    def board(self, name: str) -> BoardView | None:
        """Return one board; None if the lab has none of that name."""
        return next((one for one in self.boards() if one.name == name), None)

    def runs(self, wanted: Filter, page: int = 1) -> tuple[list[IndexedRun], int]:
        """Return a page of runs, newest first, and the number of all. Raises HostError."""
        index = self.index
        if index is None:
            return [], 0
        skip = (page - 1) * PAGE_RUNS
        return index.runs(wanted, limit=PAGE_RUNS, skip=skip), index.count(wanted)

    def run(self, name: str) -> tuple[IndexedRun | None, RunDirectory | None]:
        """Return a run of the index, and its directory where it is on this host.

        Nothing but the id of a run leads to a file.
        """
        if not is_run_id(name):
            return None, None
        index = self.index
        found = index.runs(Filter(ids=(name,))) if index else []
        directory = RunDirectory(self.runs_folder / name)
        there = directory.path.is_dir() and not directory.path.is_symlink()
        return (found[0] if found else None), (directory if there else None)


def _state(lease: StateLease | None, health: BoardHealth | None) -> str:
    if lease is not None:
        return "leased"
    return "offline" if health is not None and health.state == "offline" else "idle"


def page_number(text: str | None) -> int:
    """Return the number of a page. Raises ConfigError."""
    if text is None:
        return 1
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 8 and int(text) > 0):
        raise ConfigError("page must be a number from 1 on")
    return int(text)


def pages(count: int) -> int:
    """Return how many pages so many runs have."""
    return max(1, -(-count // PAGE_RUNS))


def filter_words(wanted: Iterable[tuple[str, str]]) -> Filter:
    """Return the filter of a query, with the names that `labctl runs` has. Raises ConfigError."""
    from labctl.index.filters import KINDS, STATES, VERDICTS, parse_moment

    single = ("recipe", "board", "model", "quantization", "build", "verdict", "kind")
    chosen: dict[str, object] = {}
    states: list[str] = []
    tags: list[str] = []
    parameters: list[tuple[str, str]] = []
    for name, value in wanted:
        if not value or name in ("page", "lang"):
            continue
        if len(value) > 200:
            raise ConfigError(f"{name}: at most 200 characters")
        if name in single:
            chosen[name] = value
        elif name in ("since", "until"):
            try:
                chosen[name] = parse_moment(value)
            except ValueError as error:
                raise ConfigError(f"{name}: {error}") from None
        elif name == "state":
            states.append(value)
        elif name == "tag":
            tags.append(value)
        elif name == "param":
            key, equals, text = value.partition("=")
            if not (key.strip() and equals):
                raise ConfigError(f"param: {value!r}: must be NAME=VALUE, such as threads=4")
            parameters.append((key.strip(), text.strip()))
        else:
            raise ConfigError(f"unknown filter {name!r}")
    for name, known, given in (
        ("state", STATES, states),
        ("verdict", VERDICTS, [chosen.get("verdict")]),
        ("kind", KINDS, [chosen.get("kind")]),
    ):
        for one in given:
            if one is not None and one not in known:
                raise ConfigError(f"{name}: {one!r} is none of {', '.join(known)}")
    if max(len(states), len(tags), len(parameters)) > 20:
        raise ConfigError("at most 20 of each filter")
    return Filter(
        states=tuple(states),
        tags=tuple(tags),
        parameters=tuple(parameters),
        **chosen,  # type: ignore[arg-type]
    )
