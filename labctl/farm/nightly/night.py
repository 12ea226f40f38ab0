"""A night: screen each row against the last good build, then confirm slowdowns not excluded.

The order of each pair is drawn separately. So a board whose speed changes in a rhythm favours no
side; the tests of :mod:`labctl.farm.nightly.judge` rely on this.

The journal decides everything: a killed night continues where it stopped. Rows of one board are
measured one after the other, the most valuable first; boards work in parallel.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import TypeAlias

from labctl.errors import (
    Blame,
    BoardBusy,
    ConfigError,
    HostError,
    InfraError,
    JobError,
    LabctlError,
    ServiceAway,
    ToolMissing,
)
from labctl.farm.nightly.budget import LOOKS, SAME_PAIRS
from labctl.farm.nightly.executor import GOOD, HEAD, Built, Executor, Measured
from labctl.farm.nightly.judge import (
    decided_look,
    finding,
    is_suspicious,
    is_wild,
    rhythm_of,
    rhythm_text,
    same_finding,
    slower,
)
from labctl.farm.nightly.refusals import (
    Refusal,
    crashed,
    gated_finding,
    refusal,
    refused_build,
    refused_runs,
)
from labctl.farm.nightly.state import (
    CHECKS,
    GATE_RUN,
    MOST_FAILURES,
    SEARCHING,
    NightState,
    Place,
    RowState,
    by_board,
)
from labctl.farm.nightly.times import enough_time
from labctl.farm.nightly.waits import BACK_SECONDS, FIRST_SECONDS, HOST_BACK_SECONDS, Waits
from labctl.records.night import (
    NightEntry,
    NightFinding,
    NightRecord,
    NightRow,
    NightVerdict,
    Stage,
)
from labctl.records.trial import Failure

#: Jobs of the queue, each with the build to run.
Jobs: TypeAlias = dict[str, Built]


class Night:
    """One night, from its plan to its findings."""

    def __init__(self, record: NightRecord, state: NightState, executor: Executor):
        self.record = record
        self.state = state
        self.executor = executor
        self.waits = Waits(executor, record.deadline)
        self._building = Lock()

    def run(self) -> tuple[NightFinding, ...]:
        """Measure as much as the time allows. Return a finding for each variant of each row.

        Raises HostError if the journal cannot be written; all other errors are in the findings.
        """
        self._build()
        self._screen()
        self._confirm()
        return self.findings()

    def findings(self) -> tuple[NightFinding, ...]:
        """Return the findings so far, in the order of the plan."""
        found = []
        for state in self.state.rows.values():
            found += [self._finding(state, variant) for variant in state.row.variants]
        return tuple(found)

    def _finding(self, state: RowState, variant: str) -> NightFinding:
        refused = self._refused(state)
        if refused and not (state.gave_up and self._is_judged(state, variant)):
            return self._trusted(refusal(state, variant, *refused))
        if self.state.is_same(state.row.build):
            return same_finding(state, variant)
        if state.row.gated:
            return gated_finding(state)
        found = finding(state, variant, self.state.confirming or 1)
        search = self.state.searches.get(state.row.build)
        is_own = search is not None and (search.row, search.variant) == (found.row, variant)
        is_over = is_own and found.verdict is NightVerdict.SLOWER
        if search is not None and is_over and search.outcome == "none":
            reason = f"{found.reason}; {search.reason}"
            update = {"verdict": NightVerdict.SUSPECTED, "blame": None, "reason": reason}
            return found.model_copy(update=update)
        return self._trusted(self._with_time(state, found))

    def _is_judged(self, state: RowState, variant: str) -> bool:
        """Return True if a variant has its verdict, even if another variant of the row has none."""
        if self._needs_screening(state) or is_wild(state, variant):
            return False
        confirming = self.state.confirming or 1
        suspicious = is_suspicious(state, variant)
        return not suspicious or slower(state, variant, confirming) is not None

    def _with_time(self, state: RowState, one: NightFinding) -> NightFinding:
        """Return a finding; if time ran out before a verdict, add the time that would suffice."""
        is_late = one.verdict is NightVerdict.NOT_MONITORED and self._needs_screening(state)
        if state.row.unmonitored or not is_late:
            return one
        rows = [
            other.row.model_copy(update={"seconds": other.pair_seconds / 2, "board": other.board})
            for other in self.state.rows.values()
        ]
        mine = next(row for row in rows if row.name == state.row.name)
        enough = enough_time(mine, rows)
        return one.model_copy(update={"reason": f"{one.reason}; {enough}"}) if enough else one

    def _trusted(self, one: NightFinding) -> NightFinding:
        """Return a finding; do not blame the commit if only a suspected board shows it."""
        is_measured = one.verdict in (NightVerdict.SLOWER, NightVerdict.FAILS)
        if not is_measured or (why := self._suspicion(one.board)) is None:
            return one
        reason = f"{one.reason}; only board {one.board} shows it, and it is suspected: {why}"
        update = {"verdict": NightVerdict.SUSPECTED, "blame": None, "reason": reason}
        return one.model_copy(update=update)

    def _suspicion(self, board: str) -> str | None:
        return self.waits.patiently(board, partial(self.executor.suspicion, board))

    def _build(self) -> None:
        """Build all sources that can be fetched now; rows wait for the others."""
        for name in dict.fromkeys(row.build for row in self.record.rows):
            away = self._try_builds(name)
            if not self._rows_of(name):  # nothing waits for it
                self._give_up_builds(name, away)

    def _rows_of(self, name: str) -> list[NightRow]:
        """Return the rows of a build that have time in this night."""
        return [row for row in self.record.rows if row.build == name and not row.unmonitored]

    def build_side(self, name: str, side: str) -> Built | None:
        """Build a side once; return None if it cannot be built.

        Waits for a source that cannot be fetched, as long as its rows can still be measured then.
        """
        since = self.executor.now()
        needed = min((2 * row.seconds for row in self._rows_of(name)), default=0.0)
        while error := self._try_to_build(name, side):
            if not self.waits.pause(None, since, needed, error.message):
                self._give_up_builds(name, {side: error})
        return self.state.built.get((name, side))

    def _try_builds(self, name: str) -> dict[str, LabctlError]:
        """Build both sides; return the error of each side that must be retried."""
        tried = {side: self._try_to_build(name, side) for side in (GOOD, HEAD)}
        return {side: error for side, error in tried.items() if error}

    def _try_to_build(self, name: str, side: str) -> LabctlError | None:
        """Build a side unless the journal has its end; return the error if it must be retried."""
        if self._is_decided(name, side):
            return None
        with self._building:
            if self._is_decided(name, side):  # by another board's thread
                return None
            now = self.executor.now()
            try:
                built = self.executor.build(name, side)
            except LabctlError as error:
                if isinstance(error, InfraError) and not isinstance(error, ToolMissing):
                    return error
                self._give_up_builds(name, {side: error})
                return None
            self.state.add(
                NightEntry(
                    event="built",
                    at=now,
                    build=name,
                    side=side,
                    key=built.key,
                    program=built.program,
                    version=built.version,
                    source=built.source,
                )
            )
            return None

    def _is_decided(self, name: str, side: str) -> bool:
        return (name, side) in self.state.built or (name, side) in self.state.unbuilt

    def _give_up_builds(self, name: str, why: Mapping[str, LabctlError]) -> None:
        for side, error in why.items():
            now, failure = self.executor.now(), Failure.of(error)
            entry = NightEntry(
                event="unbuilt",
                at=now,
                build=name,
                side=side,
                failure=failure,
                source=error.source,
            )
            self.state.add(entry)

    def _as_built(self, board: str, states: Sequence[RowState]) -> Iterator[RowState]:
        """Yield the rows whose builds exist, the others as soon as their sources can be fetched."""
        waiting, since = list(states), self.executor.now(board)
        while waiting:
            away: dict[str, dict[str, LabctlError]] = {}
            for state in list(waiting):
                name = state.row.build
                if name not in away and not (errors := self._try_builds(name)):
                    waiting.remove(state)
                    if not self._refused(state):
                        yield state
                        since = self.executor.now(board)
                elif name not in away:
                    away[name] = errors
            if not waiting:
                return
            needed = min(2 * state.row.seconds * state.row.screen for state in waiting)
            why = next(error.message for errors in away.values() for error in errors.values())
            if not self.waits.pause(board, since, needed, why):
                for name, errors in away.items():
                    self._give_up_builds(name, errors)

    def _refused(self, state: RowState) -> Refusal | None:
        """Return why a row has no measurements to judge; None if it has or may get some."""
        if refused := refused_build(self.state, state.row.build):
            return refused
        if self.state.is_same(state.row.build):
            return None
        if reason := state.row.unmonitored:
            return NightVerdict.NOT_MONITORED, None, reason
        return refused_runs(state)

    def _open_rows(self) -> list[RowState]:
        return [state for state in self.state.rows.values() if not self._refused(state)]

    def _screen(self) -> None:
        if self.state.confirming is not None:
            return
        self._until_settled(self._screen_row, self._needs_screening)
        count = sum(len(self._suspicious(state)) for state in self._open_rows())
        entry = NightEntry(event="confirming", at=self.executor.now(), count=count)
        self.state.add(entry)

    def _needs_screening(self, state: RowState) -> bool:
        if state.row.gated:
            return not self.state.is_same(state.row.build) and GATE_RUN not in state.done
        if self.state.is_same(state.row.build):
            is_open = not state.has_failed and not state.row.unmonitored
            return is_open and not state.has_pair(Stage.SAME, SAME_PAIRS - 1)
        return not state.has_pair(Stage.SCREEN, state.row.screen - 1)

    def _screen_row(self, state: RowState) -> None:
        board, row = state.board, state.row
        if row.gated:
            while GATE_RUN not in state.done and self._may_begin(state, Stage.GATE, [GATE_RUN], 0):
                if not self._measure(state, GATE_RUN, (HEAD,)):
                    return
            return
        if self.state.is_same(row.build):  # its pairs only judge the method of nights
            all(self.measure_pair(state, Stage.SAME, number) for number in range(SAME_PAIRS))
            return
        # Rows that already look slow on this board keep their time for the confirmation.
        kept = sum(
            LOOKS * other.row.look * other.pair_seconds
            for other in self.state.rows.values()
            if other.board == board and other is not state and self._suspicious(other)
        )
        for number in range(row.screen):
            if not self.measure_pair(state, Stage.SCREEN, number, keep=kept):
                return

    def _suspicious(self, state: RowState) -> list[str]:
        """Return the variants of a screened row that need the confirmation."""
        if state.row.gated or self._needs_screening(state) or self.state.is_same(state.row.build):
            return []
        return [variant for variant in state.row.variants if is_suspicious(state, variant)]

    def _confirm(self) -> None:
        self._until_settled(self._confirm_row, self._needs_confirming)

    def _needs_confirming(self, state: RowState) -> bool:
        if self.state.is_same(state.row.build):
            return False
        if self._needs_screening(state):
            return bool(state.left)  # it moved to another board: it is screened there
        confirming = self.state.confirming or 1
        return any(
            not decided_look(state, variant, confirming) for variant in self._suspicious(state)
        )

    def _confirm_row(self, state: RowState) -> None:
        if self._needs_screening(state):
            self._screen_row(state)
        for number in range(LOOKS * state.row.look):
            if not self._needs_confirming(state) or self._needs_screening(state):
                break
            if not self.measure_pair(state, Stage.CONFIRM, number):
                return
        suspicious = self._suspicious(state)
        rhythms = [found for one in suspicious if (found := rhythm_of(state, one))]
        if rhythms and state.next_board:
            reason = f"runs on board {state.board} have a {rhythm_text(rhythms[0])}"
            failure = Failure(kind="BoardNotReady", blame=Blame.INFRA, message=reason)
            self._leave(state, failure, Stage.CONFIRM)
        elif rhythms:
            return
        elif any(is_wild(state, variant) for variant in suspicious):
            reason = (
                f"results on board {state.board} scatter far more than in its history:"
                " the board is suspected, not the commit"
            )
            self.executor.suspect(state.board, reason)
            failure = Failure(kind="BoardNotReady", blame=Blame.INFRA, message=reason)
            self._leave(state, failure, Stage.CONFIRM)
        elif any(slower(state, one, self.state.confirming or 1) for one in suspicious):
            self._leave_suspected(state, Stage.CONFIRM)

    def _leave_suspected(self, state: RowState, stage: Stage) -> None:
        """Move a row that blames the commit from a suspected board to an equal board, if any."""
        if state.next_board and (why := self._suspicion(state.board)):
            reason = f"board {state.board} alone blames no commit: {why}"
            failure = Failure(kind="BoardNotReady", blame=Blame.INFRA, message=reason)
            self._leave(state, failure, stage)

    def _until_settled(
        self, work: Callable[[RowState], None], needed: Callable[[RowState], bool]
    ) -> None:
        """Do the work of all rows that need it; repeat it for rows that moved to another board."""
        tried: set[tuple[str, str]] = set()
        while True:
            boards = by_board(
                state
                for state in self._open_rows()
                if needed(state) and (state.row.name, state.board) not in tried
            )
            if not boards:
                return
            tried |= {(one.row.name, one.board) for rows in boards.values() for one in rows}

            def serve(board: str, boards: dict[str, list[RowState]] = boards) -> None:
                for state in self._as_built(board, boards[board]):
                    work(state)

            self.executor.each(serve, list(boards))

    def measure_pair(
        self,
        state: RowState,
        stage: Stage,
        number: int,
        sides: tuple[str, str] = (GOOD, HEAD),
        *,
        keep: float = 0.0,
    ) -> bool:
        """Measure both sides. Return False if the row cannot continue on this board.

        The first side is drawn. No pair begins in the last ``keep`` seconds before the deadline.
        """
        order = self._drawn_order(state, stage, number, sides)
        places = [(stage, number, side) for side in order]
        begun = False
        while missing := [place for place in places if place not in state.done]:
            begun = begun and len(missing) < len(places)
            kept = keep if len(missing) == len(places) else 0.0
            if not begun and not self._may_begin(state, stage, missing, kept):
                return False
            begun = True
            if not self._measure(state, missing[0], order):
                return False
        return True

    def _drawn_order(
        self, state: RowState, stage: Stage, number: int, sides: tuple[str, str]
    ) -> tuple[str, str]:
        """Draw the order of a pair; a resumed night draws the same order."""
        words = (self.record.id, state.row.name, state.board, stage, str(number))
        is_kept = hashlib.sha256("\0".join(words).encode()).digest()[0] & 1
        return sides if is_kept else sides[::-1]

    def _may_begin(
        self, state: RowState, stage: Stage, places: Sequence[Place], keep: float
    ) -> bool:
        """Return True if runs of a pair may begin. Runs that have begun need no further time."""
        try:
            return self._is_ready(state, stage, places, keep)
        except ServiceAway as error:  # after waiting until no time was left
            self._leave(state, Failure.of(error), stage, to_other=False)
            return False

    def _is_ready(
        self, state: RowState, stage: Stage, places: Sequence[Place], keep: float
    ) -> bool:
        """Do as :meth:`_may_begin`. Raises ServiceAway."""
        board, since = state.board, self.executor.now(state.board)
        while True:
            jobs = [state.jobs.get(place) for place in places]
            new = sum(job is None or not self._has_begun(state, job) for job in jobs)
            needed = keep + new * state.pair_seconds / 2
            if new and self.executor.now(board) + needed > self.record.deadline:
                self.executor.withdraw([job for job in jobs if job])
                if (silent := self.state.silent.get(board)) and silent.failure:
                    self._leave(state, silent.failure, stage, to_other=False)
                return False
            trouble = self.waits.patiently(board, partial(self.executor.trouble, board), needed)
            if trouble is None:
                return True
            waits = trouble.passes and stage is not Stage.SAME and not _may_move(state, stage)
            if not waits or not self.waits.pause(board, since, needed, trouble.reason):
                failure = Failure(kind="BoardNotReady", blame=Blame.INFRA, message=trouble.reason)
                self._leave(state, failure, stage)
                return False

    def _has_begun(self, state: RowState, job: str) -> bool:
        ask = partial(self.executor.has_begun, job)
        return self.waits.patiently(state.board, ask, state.pair_seconds)

    def withdraw(self) -> None:
        """Remove this night's jobs from the queue."""
        rows = self.state.rows.values()
        self.executor.withdraw([job for state in rows for job in state.jobs.values()])

    def _step(self, state: RowState, event: str, **facts: object) -> None:
        now = self.executor.now(state.board)
        step = {"event": event, "at": now, "row": state.row.name, "board": state.board, **facts}
        self.state.add(NightEntry.model_validate(step))

    def _queued(self, state: RowState, stage: Stage, number: int, order: Sequence[str]) -> Jobs:
        """Return the jobs of the next runs, after writing them to the journal.

        Raises HostError if the night withdrew a run whose pair is half done.
        """
        jobs: Jobs = {}
        is_begun = any((stage, number, side) in state.done for side in order)
        for side in order:
            place = (stage, number, side)
            if place in state.done:
                continue
            known = state.jobs.get(place)
            job = self.executor.job(known)
            if job != known and is_begun:
                raise HostError("hours may lie between the runs of this pair")
            if job != known:
                self._step(state, "queued", stage=stage, pair=number, side=side, job=job)
            jobs[job] = self.state.built[state.row.build, side]
        return jobs

    def _measure(self, state: RowState, place: Place, order: Sequence[str]) -> bool:
        """Measure a place; ``order`` has all sides of its pair, which restarts if it fails.

        Return False if the row cannot continue on this board.
        """
        row, board = state.row, state.board
        stage, number, side = place
        built = self.state.built[row.build, side]
        where = {"stage": stage, "pair": number, "side": side}
        if self._is_over(state, stage, side, order):
            return False
        queued: Jobs = {}

        def measured() -> Measured:
            queued.clear()
            queued.update(self._queued(state, stage, number, order))
            return self.executor.measure(
                row,
                board,
                built,
                began=lambda run: self._step(state, "running", run=run, **where),
                queued=queued,
            )

        try:
            found = self.waits.patiently(board, measured, state.pair_seconds / 2)
        except (InfraError, JobError, ConfigError) as error:
            failure = Failure.of(error)
            self.executor.withdraw([*queued])
            self._step(state, "failed", failure=failure, **where)
            if stage is Stage.SAME:
                return False
            if isinstance(error, JobError) or self._waits_for_board(state, stage, error):
                return True
            self._leave(state, failure, stage, to_other=not isinstance(error, ServiceAway))
            return False
        self._step(
            state,
            "measured",
            job=next(iter(queued)),
            turn=order.index(side) + 1,
            run=found.run,
            values=dict(found.values),
            seconds=found.seconds,
            execution=found.execution,
            **where,
        )
        return True

    def _is_over(self, state: RowState, stage: Stage, side: str, order: Sequence[str]) -> bool:
        """Return True if a row failed so often that no run of this stage may begin here."""
        if stage is Stage.SAME:
            return state.has_failed
        if stage in SEARCHING:
            return state.is_broken(side, searching=True)
        if state.is_to_leave:
            self._leave(state, crashed(state), stage)
            return True
        if HEAD in order and state.is_broken(HEAD):
            checks = [(Stage.CHECK, n, GOOD) for n in range(CHECKS)]
            if all(self._check(state, check) for check in checks):
                self._leave_suspected(state, stage)
            return True
        return False

    def _waits_for_board(self, state: RowState, stage: Stage, error: LabctlError) -> bool:
        """Wait for a board after a failure; return False if the row must leave it.

        A board that is away for a minute or two keeps its rows, and longer if no other board can
        replace it. A board that answers and fails repeatedly loses its rows.
        """
        failures, now = len(state.failures), self.executor.now(state.board)
        if isinstance(error, ConfigError | ServiceAway | ToolMissing) or failures >= MOST_FAILURES:
            return False
        back_seconds = HOST_BACK_SECONDS if error.is_of_host else BACK_SECONDS
        silent = self.state.silent.get(state.board)
        if silent is None:  # it answered: the last attempt comes after a restart of the board
            since = now - (FIRST_SECONDS if failures < MOST_FAILURES - 1 else BACK_SECONDS)
        elif _may_move(state, stage) and (
            isinstance(error, BoardBusy) or now - silent.at >= back_seconds
        ):
            return False
        else:
            since = silent.at
        why = f"{state.row.name}: {error.message}"
        return self.waits.pause(state.board, since, state.pair_seconds, why)

    def _check(self, state: RowState, place: Place) -> bool:
        """Measure a run of the last good until it finishes; returns as :meth:`_measure`."""
        while place not in state.done:
            if not self._measure(state, place, (GOOD,)):
                return False
        return True

    def _leave(
        self, state: RowState, failure: Failure, stage: Stage, *, to_other: bool = True
    ) -> None:
        """Move a row to an equal board; give it up without such a board or without ``to_other``.

        A search ends instead: a slowdown confirmed on this board stays confirmed.
        """
        self.executor.withdraw(tuple(state.jobs.values()))
        now, name = self.executor.now(state.board), state.row.name
        if stage is Stage.SAME:  # nothing is lost
            return
        if stage in SEARCHING:
            build, reason = state.row.build, failure.message
            self.state.add(NightEntry(event="gave-up", at=now, build=build, reason=reason))
            return
        is_movable = to_other and failure.blame is not Blame.CONFIG
        other = state.next_board if is_movable else None
        if other is None:
            entry = NightEntry(event="gave-up", at=now, row=name, failure=failure)
        else:
            entry = NightEntry(event="moved", at=now, row=name, board=other, reason=failure.message)
        self.state.add(entry)


def _may_move(state: RowState, stage: Stage) -> bool:
    """Return True if an equal board can replace the board of a row; a search does not move."""
    return stage not in SEARCHING and state.next_board is not None
