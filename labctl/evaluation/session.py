"""One controller's session of an evaluation: ask the missing questions, and report progress."""

import asyncio
import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from labctl.evaluation.asking import Asking
from labctl.evaluation.contact import open_endpoint
from labctl.evaluation.event_loop import run_async
from labctl.evaluation.grading import LiveGrader, RunningAccuracies
from labctl.evaluation.ledger import Ledger
from labctl.evaluation.plan import Key, Limit
from labctl.evaluation.recipe import EvaluationRecipe
from labctl.evaluation.servers.started import StartedEndpoint
from labctl.evaluation.work import Work
from labctl.progress import Throughput
from labctl.records.evaluation import GenerationRecord
from labctl.records.events import Answers
from labctl.runs.observer import Observer
from labctl.units import confidence, counted

#: Shortest interval between reports of progress.
_REPORT_SECONDS = 0.5
#: Longest interval between reports of progress.
_BEAT_SECONDS = 10.0
#: Most questions that a model may be ahead of another, unless more are asked at once.
_AHEAD = 10


class Session:
    """All steps from the first question to the last; use it only once.

    ``spent_s``: part of ``max_time`` spent by earlier sessions.
    """

    def __init__(self, work: Work, observer: Observer, *, spent_s: float = 0.0):
        self._spent_s = spent_s
        self._recipe, self._plan = work.recipe, work.plan
        self._work, self._observer = work, observer
        self._ledger = Ledger(self._plan)
        self._running = RunningAccuracies(self._plan)
        self._live = LiveGrader(work, self._graded)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asking: Asking | None = None
        self._is_known = False
        self._throughput = Throughput()
        self._reported = float("-inf")
        #: Reasons why questions were left out.
        self.notes: list[str] = []
        #: ``max_time`` ended the asking.
        self.out_of_time = False
        for record in work.directory.generations():
            self._ledger.add(record)
        # Failures of host or server are asked again.
        self._ledger.failed.clear()
        for ask in self._ledger.refused:
            self._leave_out_unanswered(ask.key)

    @property
    def answered(self) -> int:
        """Number of answers that are on disk."""
        return self._ledger.answered

    def run(self, started: dict[str, StartedEndpoint]) -> None:
        """Ask until all questions are answered, or a limit ends the session.

        Raises HostError if a model has no endpoint left, ConfigError if a server refuses every
        request.
        """
        run_async(self._run(started))

    async def _run(self, started: dict[str, StartedEndpoint]) -> None:
        recipe = self._recipe
        self._loop = asyncio.get_running_loop()
        endpoints = [open_endpoint(recipe, name, started.get(name)) for name in recipe.endpoints]
        try:
            asking = Asking(
                plan=self._plan,
                ledger=self._ledger,
                dataset=self._work.dataset,
                sampling=recipe.sampling,
                timeout_s=recipe.timeouts.answer,
                attempts=recipe.attempts,
                endpoints=endpoints,
                ahead=_ahead(recipe),
                directory=self._work.directory,
                note=self._observer.note,
                heard=self._heard,
            )
            self._asking = asking
            for record, limit in self._ledger.served(self._work.directory.generations()):
                self._live.add(record, [limit])
            self._report(force=True)
            until = None
            if recipe.max_time is not None:
                until = self._loop.time() + max(0.0, recipe.max_time - self._spent_s)
            beating = asyncio.create_task(self._beat())
            try:
                in_time = await asking.run(until)
            finally:
                beating.cancel()
        finally:
            for endpoint in endpoints:
                await endpoint.aclose()
        self._report(force=True)
        left = asking.left
        if not in_time:
            self.out_of_time = True
            missing = f"{counted(left, 'generation')} not asked for"
            counts = "only questions answered by every variant in the table count"
            resume = f"to ask the rest: labctl resume {self._work.directory.id}"
            self._leave_out(f"max_time is over: {missing}; {counts}; {resume}")
        elif self._is_known and left and (rule := recipe.stop_when):
            known = "every accuracy has the precision of stop_when"
            precision = f"± {100 * rule.half_width:g} points at {confidence(rule.level)}%"
            self._leave_out(f"{known} ({precision}): {counted(left, 'generation')} not asked for")

    async def _beat(self) -> None:
        """Report regularly, even if one answer takes minutes."""
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            self._report(force=True)

    def _leave_out(self, why: str) -> None:
        self.notes.append(why)
        self._observer.note(f"note: {why}")

    def _heard(self, record: GenerationRecord) -> None:
        if record.failure is None and record.check is None:
            key = Key(record.question, record.variant, record.sample)
            served = (
                limit
                for limit in self._plan.variant(record.variant).limits
                if self._ledger.serving(key, limit) == (record.max_tokens,)
            )
            self._live.add(record, served)
        elif record.failure is not None:
            self._leave_out_unanswered(Key(record.question, record.variant, record.sample))
        self._report()

    def _leave_out_unanswered(self, key: Key) -> None:
        """Let the stop rule not wait for questions that will not be answered."""
        if all(ask in self._ledger.failed for ask in self._ledger.missing(key)):
            for limit in self._plan.variant(key.variant).limits:
                if self._ledger.serving(key, limit) is None:
                    self._running.leave_out(key, limit)

    def _graded(self, key: Key, limit: Limit, right: bool) -> None:
        """Take a verdict in a thread of the pool, and hand it to the loop's thread."""
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop is closed, so all questions were asked
            self._loop.call_soon_threadsafe(self._noted, key, limit, right)

    def _noted(self, key: Key, limit: Limit, right: bool) -> None:
        self._running.note(key, limit, right=right)
        rule = self._recipe.stop_when
        if rule is None or self._is_known or self._asking is None:
            return
        if self._running.is_known(rule.half_width, rule.level, rule.min_questions):
            self._is_known = True
            assert self._loop is not None
            self._stopping = self._loop.create_task(self._asking.stop())

    def _report(self, *, force: bool = False) -> None:
        now = time.monotonic()
        if self._asking is None or (not force and now - self._reported < _REPORT_SECONDS):
            return
        self._reported = now
        done = self._ledger.answered
        planned = done + self._asking.left
        self._observer.tell(
            Answers(
                done=done,
                planned=planned,
                retries=self._asking.retries,
                remaining_s=self._throughput.remaining_s(now, done, planned),
                accuracies=self._running.accuracies(),
            )
        )


def spent_seconds(records: Iterable[GenerationRecord], began: Sequence[datetime]) -> float:
    """Return the seconds of all sessions, each from its first question to its last answer.

    ``began``: their start times, ascending; records before the first belong to no session.
    """
    first: dict[int, datetime] = {}
    last: dict[int, datetime] = {}
    for record in records:
        number = bisect_right(began, record.sent)
        done = record.sent + timedelta(microseconds=record.total_ns / 1000)
        first[number] = min(record.sent, first.get(number, record.sent))
        last[number] = max(done, last.get(number, done))
    return sum((last[one] - first[one]).total_seconds() for one in first if one)


def _ahead(recipe: EvaluationRecipe) -> int | None:
    """Return the number of questions that a model may be ahead of another; None: any number."""
    if recipe.max_time is None and recipe.stop_when is None:
        return None
    at_a_time = (
        sum(map(recipe.concurrency_of, recipe.endpoints_of(model)))
        for model in recipe.evaluated_models()
    )
    return max(_AHEAD, *at_a_time)
