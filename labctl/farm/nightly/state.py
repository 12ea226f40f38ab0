"""State of a night: a pure function of its journal, so a night survives any crash."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from threading import Lock

from labctl.errors import Blame
from labctl.farm.nightly.executor import GOOD, HEAD, Built
from labctl.records.night import AcceptedChange, CommitSearch, NightEntry, NightRow, Stage
from labctl.records.trial import Failure
from labctl.runs.record.journal import JournalLines

JOURNAL = "night.jsonl"
#: After this number of failures in sequence on a board that answers, the row leaves it.
MOST_FAILURES = 3
#: Number of a program's failures in sequence; fewer may be chance.
MOST_CRASHES = 3
#: Number of runs of the last good that must all finish after head failed.
CHECKS = 2
#: Stages of the search for the commit of a slowdown.
SEARCHING = (Stage.BISECT, Stage.PROVE)
#: Stage, number of the pair, side.
Place = tuple[Stage, int, str]
#: The run of head whose gates are judged.
GATE_RUN: Place = (Stage.GATE, 0, HEAD)


@dataclass
class RowState:
    """Progress of a row. All measurements are from its present board."""

    row: NightRow
    board: str
    #: Source of the last good tonight; None if it is not built.
    good_source: str | None = None
    done: dict[Place, NightEntry] = field(default_factory=dict)
    #: Jobs of runs that have not ended, as far as known.
    jobs: dict[Place, str] = field(default_factory=dict)
    #: Failures of infrastructure since the last complete pair, each after the board had answered.
    failures: list[Failure] = field(default_factory=list)
    #: Its board has answered since the last failure.
    answered: bool = False
    #: Failures of programs, by side and by whether a commit was being searched.
    crashes: dict[tuple[str, bool], list[Failure]] = field(default_factory=dict)
    #: The last good failed on this board.
    shaky: bool = False
    #: The last good ran tonight, on this board or on another.
    good_ran: bool = False
    #: Boards that the row left, with the reason.
    left: dict[str, str] = field(default_factory=dict)
    gave_up: NightEntry | None = None
    runs: list[str] = field(default_factory=list)

    def pairs(
        self, stage: Stage, variant: str, sides: tuple[str, str] = (GOOD, HEAD)
    ) -> tuple[list[float], list[float]]:
        """Return the values of both sides of all complete pairs, the reference first.

        Head's values are without an accepted slowdown.
        """
        is_judged = sides == (GOOD, HEAD) and stage is not Stage.SAME
        accepted = self.accepted(variant) if is_judged else None
        level = 1 / accepted.ratio if accepted else 1.0
        found = [
            (first.values[variant], second.values[variant] * level)
            for first, second in self._whole(stage, sides)
            if first.values and second.values
        ]
        return [one for one, _ in found], [other for _, other in found]

    def accepted(self, variant: str) -> AcceptedChange | None:
        """Return the accepted slowdown of a variant; None for another last good."""
        found = self.row.accepted.get(variant)
        return found if found and found.good == self.good_source else None

    def _whole(self, stage: Stage, sides: tuple[str, str]) -> list[tuple[NightEntry, NightEntry]]:
        """Return both measurements of all complete pairs, in the order of the pairs."""
        numbers = sorted({number for at, number, _ in self.done if at is stage})
        places = [[(stage, number, side) for side in sides] for number in numbers]
        return [
            (self.done[one], self.done[other])
            for one, other in places
            if one in self.done and other in self.done
        ]

    def turns(self, stage: Stage, variant: str) -> list[tuple[float, float]]:
        """Return the logarithms of both runs of each complete pair, in the order of the runs.

        Head's median difference from the last good is subtracted.
        """
        good, head = self.pairs(stage, variant)
        if not good:
            return []
        logs = [[math.log(value) for value in side] for side in (good, head)]
        differs = median(b - a for a, b in zip(*logs, strict=True))
        pairs = zip(self._whole(stage, (GOOD, HEAD)), *logs, strict=True)
        return [
            (a, b - differs) if first.turn == 1 else (b - differs, a) for (first, _), a, b in pairs
        ]

    def has_pair(self, stage: Stage, number: int) -> bool:
        """Return True if both sides of a pair are measured."""
        return all((stage, number, side) in self.done for side in (GOOD, HEAD))

    def is_broken(self, side: str, *, searching: bool = False) -> bool:
        """Return True if a side's program fails again and again."""
        return len(self.crashes.get((side, searching), ())) >= MOST_CRASHES

    @property
    def has_failed(self) -> bool:
        """True if a run failed on the row's board, with no complete pair since."""
        return bool(self.failures or self.crashes)

    @property
    def is_to_leave(self) -> bool:
        """True if not only head fails on its board: no commit is to blame."""
        return self.is_broken(GOOD) or (self.shaky and self.is_broken(HEAD))

    @property
    def fails(self) -> Failure | None:
        """The failure of head, if the last good ran after it on the same board."""
        is_proven = self.is_broken(HEAD) and (Stage.CHECK, CHECKS - 1, GOOD) in self.done
        return self.crashes[HEAD, False][-1] if is_proven else None

    @property
    def pair_seconds(self) -> float:
        """The expected time of a pair of runs: tonight's mean, else the plan's."""
        took = [one.seconds for one in self.done.values() if one.seconds is not None]
        return 2 * (sum(took) / len(took) if took else self.row.seconds)

    @property
    def execution(self) -> str | None:
        """The kind of machine of the last measurement."""
        kinds = [one.execution for one in self.done.values()]
        return kinds[-1] if kinds else None

    @property
    def next_board(self) -> str | None:
        """An equal board that the row was not on; None if no such board is left."""
        others = (self.row.board, *self.row.equals)
        return next((b for b in others if b != self.board and b not in self.left), None)


class NightState:
    """The journal of a night and the resulting state."""

    def __init__(self, folder: Path, rows: Sequence[NightRow]):
        self._lines = JournalLines(folder / JOURNAL, NightEntry)
        self._lock = Lock()
        self.rows = {row.name: RowState(row, row.board) for row in rows}
        self.built: dict[tuple[str, str], Built] = {}
        self.unbuilt: dict[tuple[str, str], Failure] = {}
        #: Number of variants in the confirmation; None until the screening is over.
        self.confirming: int | None = None
        self.searches_ended: dict[str, str] = {}
        self.searches: dict[str, CommitSearch] = {}
        #: Board -> the first failure since it answered.
        self.silent: dict[str, NightEntry] = {}
        for entry in self._lines.entries:
            self._apply(entry)

    @property
    def entries(self) -> Sequence[NightEntry]:
        """All steps so far."""
        return self._lines.entries

    def add(self, entry: NightEntry) -> None:
        """Write a step durably, then apply it. Raises HostError."""
        with self._lock:
            self._lines.add(entry)
            self._apply(entry)

    def is_same(self, build: str) -> bool:
        """Return True if both sides of a build are the same program, byte for byte."""
        sides = self.sides(build)
        if GOOD not in sides or HEAD not in sides:
            return False
        good, head = sides[GOOD], sides[HEAD]
        return good.key == head.key or (good.program == head.program != "")

    def sides(self, build: str) -> dict[str, Built]:
        """Return the sides of a build that exist."""
        return {side: built for (name, side), built in self.built.items() if name == build}

    def _apply(self, entry: NightEntry) -> None:
        match entry.event:
            case "built" if entry.build and entry.side:
                facts = (entry.key, entry.version, entry.source, entry.program, entry.side)
                built = Built(*(fact or "" for fact in facts))
                self.built[entry.build, entry.side] = built
                if entry.side == GOOD:
                    for state in self.rows.values():
                        if state.row.build == entry.build:
                            state.good_source = built.source
            case "unbuilt" if entry.build and entry.side and entry.failure:
                self.unbuilt[entry.build, entry.side] = entry.failure
            case "confirming":
                self.confirming = entry.count
            case "gave-up" if entry.row is None and entry.build:
                self.searches_ended[entry.build] = entry.reason or ""
            case "searched" if entry.search:
                self.searches[entry.search.build] = entry.search
            case _ if entry.row in self.rows:
                self._apply_to_board(self.rows[entry.row], entry)
                _apply_to_row(self.rows[entry.row], entry)

    def _apply_to_board(self, state: RowState, entry: NightEntry) -> None:
        if entry.board is None or entry.event not in ("running", "measured", "failed"):
            return
        is_infra = entry.failure is not None and entry.failure.blame is Blame.INFRA
        if entry.event != "failed":
            state.answered = True
            self.silent.pop(entry.board, None)
        elif is_infra and not state.answered:
            self.silent.setdefault(entry.board, entry)


def _apply_to_row(state: RowState, entry: NightEntry) -> None:
    if entry.event == "moved" and entry.board:
        state.left[state.board] = entry.reason or ""
        state.board = entry.board
        state.done.clear()
        state.jobs.clear()
        state.failures.clear()
        state.crashes.clear()
        state.shaky = state.answered = False
        return
    if entry.event == "gave-up":
        state.gave_up = entry
        return
    if entry.stage is not None and entry.pair is not None and entry.side is not None:
        _apply_to_place(state, entry, (entry.stage, entry.pair, entry.side))


def _apply_to_place(state: RowState, entry: NightEntry, place: Place) -> None:
    stage, _, side = place
    match entry.event:
        case "queued" if entry.job:
            state.jobs[place] = entry.job
        case "measured":
            state.jobs.pop(place, None)
            state.done[place] = entry
            if stage is Stage.CHECK or sum(one[:2] == place[:2] for one in state.done) > 1:
                state.failures.clear()
            state.crashes.pop((side, stage in SEARCHING), None)
            state.runs += [entry.run] if entry.run else []
            state.good_ran |= side == GOOD
        case "failed" if entry.failure:
            for one in [one for one in state.jobs if one[:2] == place[:2]]:
                del state.jobs[one]
            for one in [one for one in state.done if one[:2] == place[:2]]:
                if run := state.done.pop(one).run:
                    state.runs.remove(run)
            if entry.failure.blame is Blame.JOB:
                key = (side, stage in SEARCHING)
                state.crashes.setdefault(key, []).append(entry.failure)
                state.shaky |= side == GOOD
            elif state.answered:
                state.failures.append(entry.failure)
                state.answered = False


def by_board(states: Iterable[RowState]) -> dict[str, list[RowState]]:
    """Return rows by their present board, the most valuable first."""
    found: dict[str, list[RowState]] = {}
    for state in sorted(states, key=lambda one: (-one.row.value, one.row.name)):
        found.setdefault(state.board, []).append(state)
    return found
