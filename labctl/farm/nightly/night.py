"""A night: screen each row against the last good build, then confirm what was not excluded.

The journal decides everything: a killed night continues where it stopped. Rows of one board are
measured one after the other, the most valuable first; boards work in parallel.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from labctl.errors import Blame, ConfigError, HostError, InfraError, JobError, LabctlError
from labctl.farm.nightly.budget import LOOKS
from labctl.farm.nightly.executor import GOOD, HEAD, Built, Executor
from labctl.farm.nightly.judge import decided_look, excludes, finding, is_wild, slower
from labctl.farm.nightly.refusals import (
    Refusal,
    crashed,
    refusal,
    refused_build,
    refused_runs,
)
from labctl.farm.nightly.state import (
    CHECKS,
    MOST_FAILURES,
    SEARCHING,
    NightState,
    Place,
    RowState,
    by_board,
)
from labctl.records import Failure
from labctl.records.night import (
    NightEntry,
    NightFinding,
    NightRecord,
    NightVerdict,
    Stage,
)

_BUILD_ATTEMPTS = 3
#: Jobs of the queue, with what each is to run.
Jobs: TypeAlias = dict[str, Built]


class Night:
    """One night, from its plan to its findings."""

    def __init__(self, record: NightRecord, state: NightState, executor: Executor):
        self.record = record
        self.state = state
        self.executor = executor

    def run(self) -> tuple[NightFinding, ...]:
        """Measure as much as the time allows. Return a finding for each variant of each row.

        Raises HostError where the journal cannot be written; all else is in the findings.
        """
        self._build()
        self._screen()
        self._confirm()
        return self.findings()

    def findings(self) -> tuple[NightFinding, ...]:
        """Return what is known by now, in the order of the plan."""
        found = []
        for state in self.state.rows.values():
            for variant in state.row.variants:
                refused = self._refused(state)
                one = (
                    refusal(state, variant, *refused)
                    if refused
                    else finding(state, variant, self.state.confirming or 1)
                )
                found.append(self._trusted(one))
        return tuple(found)

    def _trusted(self, one: NightFinding) -> NightFinding:
        """Return a finding, without blame of the commit if only a suspected board shows it."""
        is_measured = one.verdict in (NightVerdict.SLOWER, NightVerdict.FAILS)
        if not is_measured or (why := self.executor.suspicion(one.board)) is None:
            return one
        reason = f"{one.reason}; only board {one.board} shows it, and it is suspected: {why}"
        update = {"verdict": NightVerdict.SUSPECTED, "blame": None, "reason": reason}
        return one.model_copy(update=update)

    def _build(self) -> None:
        for name in dict.fromkeys(row.build for row in self.record.rows):
            for side in (GOOD, HEAD):
                self.build_side(name, side)

    def build_side(self, name: str, side: str) -> Built | None:
        """Build a side once; None where it cannot be built."""
        for attempt in range(1, _BUILD_ATTEMPTS + 1):
            if (name, side) in self.state.unbuilt:
                return None
            if built := self.state.built.get((name, side)):
                return built
            now = self.executor.now()
            try:
                built = self.executor.build(name, side)
            except LabctlError as error:
                passing = isinstance(error, InfraError) and attempt < _BUILD_ATTEMPTS
                if not passing:
                    failure = Failure.of(error)
                    entry = NightEntry(
                        event="unbuilt",
                        at=now,
                        build=name,
                        side=side,
                        failure=failure,
                        source=error.source,
                    )
                    self.state.add(entry)
                continue
            self.state.add(
                NightEntry(
                    event="built",
                    at=now,
                    build=name,
                    side=side,
                    key=built.key,
                    version=built.version,
                    source=built.source,
                )
            )
        return self.state.built.get((name, side))

    def _refused(self, state: RowState) -> Refusal | None:
        """Return why a row has no measurements to judge; None: it has some, or can have some."""
        refused = refused_build(self.state, state.row.build)
        if (reason := state.row.unmonitored) and (
            refused is None or refused[0] is NightVerdict.GOOD
        ):
            return NightVerdict.NOT_MONITORED, None, reason
        return refused or refused_runs(state)

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
        return not state.has_pair(Stage.SCREEN, state.row.screen - 1)

    def _screen_row(self, state: RowState) -> None:
        board, row = state.board, state.row
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
        """Return the variants of a screened row whose slowdown is not excluded."""
        if self._needs_screening(state):
            return []
        return [
            variant
            for variant in state.row.variants
            if not excludes(*state.pairs(Stage.SCREEN, variant), state.row.find)
        ]

    def _confirm(self) -> None:
        self._until_settled(self._confirm_row, self._needs_confirming)

    def _needs_confirming(self, state: RowState) -> bool:
        if self._needs_screening(state):
            return bool(state.left)  # it came to another board: it is screened there
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
        if any(is_wild(state, variant) for variant in self._suspicious(state)):
            reason = (
                f"results on board {state.board} scatter far more than in its history:"
                " the board is suspected, not the commit"
            )
            self.executor.suspect(state.board, reason)
            failure = Failure(kind="BoardNotReady", blame=Blame.INFRA, message=reason)
            self._leave(state, failure, Stage.CONFIRM)
        elif any(slower(state, one, self.state.confirming or 1) for one in state.row.variants):
            self._leave_suspected(state, Stage.CONFIRM)

    def _leave_suspected(self, state: RowState, stage: Stage) -> None:
        """Take a row that blames the commit from a suspected board to an equal one, if any."""
        if state.next_board and (why := self.executor.suspicion(state.board)):
            reason = f"board {state.board} alone blames no commit: {why}"
            failure = Failure(kind="BoardNotReady", blame=Blame.INFRA, message=reason)
            self._leave(state, failure, stage)

    def _until_settled(
        self, work: Callable[[RowState], None], needed: Callable[[RowState], bool]
    ) -> None:
        """Do the work of all rows that need it, again for those that went to another board."""
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
                for state in boards[board]:
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
        """Measure both sides alternately. Return False if the row cannot continue on this board.

        The side that goes first alternates, so that a drift does not favour one. ``keep`` seconds
        before the deadline no pair begins.
        """
        order = sides if number % 2 == 0 else sides[::-1]
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

    def _may_begin(
        self, state: RowState, stage: Stage, places: Sequence[Place], keep: float
    ) -> bool:
        """Return True if runs of a pair may begin. Those that have begun take no further time."""
        jobs = [state.jobs.get(place) for place in places]
        new = sum(job is None or not self.executor.has_begun(job) for job in jobs)
        ends = self.executor.now(state.board) + keep + new * state.pair_seconds / 2
        if new and ends > self.record.deadline:
            self.executor.withdraw([job for job in jobs if job])
            return False
        if trouble := self.executor.trouble(state.board):
            failure = Failure(kind="BoardNotReady", blame=Blame.INFRA, message=trouble)
            self._leave(state, failure, stage)
            return False
        return True

    def withdraw(self) -> None:
        """Remove this night's jobs from the queue."""
        rows = self.state.rows.values()
        self.executor.withdraw([job for state in rows for job in state.jobs.values()])

    def _step(self, state: RowState, event: str, **facts: object) -> None:
        now = self.executor.now(state.board)
        step = {"event": event, "at": now, "row": state.row.name, "board": state.board, **facts}
        self.state.add(NightEntry.model_validate(step))

    def _queued(self, state: RowState, stage: Stage, number: int, order: Sequence[str]) -> Jobs:
        """Return the jobs of the next runs; the journal has them by then.

        Raises HostError if the night took back a run whose pair is half done.
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
        """Measure a place; ``order`` has all sides of its pair, which begins again if it fails.

        Return False if the row cannot continue on this board.
        """
        row, board = state.row, state.board
        stage, number, side = place
        built = self.state.built[row.build, side]
        where = {"stage": stage, "pair": number, "side": side}
        if stage in SEARCHING:
            if state.is_broken(side, searching=True):
                return False
        elif state.is_to_leave:
            self._leave(state, crashed(state), stage)
            return False
        elif HEAD in order and state.is_broken(HEAD):
            checks = [(Stage.CHECK, n, GOOD) for n in range(CHECKS)]
            if all(self._check(state, check) for check in checks):
                self._leave_suspected(state, stage)
            return False
        queued: Jobs = {}
        try:
            queued = self._queued(state, stage, number, order)
            found = self.executor.measure(
                row,
                board,
                built,
                began=lambda run: self._step(state, "running", run=run, **where),
                queued=queued,
            )
        except (InfraError, JobError, ConfigError) as error:
            failure = Failure.of(error)
            self.executor.withdraw([*queued])
            self._step(state, "failed", failure=failure, **where)
            if isinstance(error, ConfigError) or len(state.failures) >= MOST_FAILURES:
                self._leave(state, failure, stage)
                return False
            return True
        self._step(
            state,
            "measured",
            job=next(iter(queued)),
            run=found.run,
            values=dict(found.values),
            seconds=found.seconds,
            execution=found.execution,
            **where,
        )
        return True

    def _check(self, state: RowState, place: Place) -> bool:
        """Measure a run of the last good, until it comes to its end; as :meth:`_measure`."""
        while place not in state.done:
            if not self._measure(state, place, (GOOD,)):
                return False
        return True

    def _leave(self, state: RowState, failure: Failure, stage: Stage) -> None:
        """Take a row to an equal board; give it up where there is none.

        A search ends where it is: what was confirmed on this board stays so.
        """
        self.executor.withdraw(tuple(state.jobs.values()))
        now, name = self.executor.now(state.board), state.row.name
        if stage in SEARCHING:
            build, reason = state.row.build, failure.message
            self.state.add(NightEntry(event="gave-up", at=now, build=build, reason=reason))
            return
        other = None if failure.blame is Blame.CONFIG else state.next_board
        if other is None:
            entry = NightEntry(event="gave-up", at=now, row=name, failure=failure)
        else:
            entry = NightEntry(event="moved", at=now, row=name, board=other, reason=failure.message)
        self.state.add(entry)
