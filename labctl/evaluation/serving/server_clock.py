"""The server's own counters beside each load, as a second clock.

At the begin and the end of a stage the counters are read, and once a second the gauges. The begin
comes before the first request, the end after the last answer. A server may count an answer a moment
after it was received: then the page is read again. The looks at an end take at most a second
together, and so do those at a begin; none is made after the end of ``max_time``. A server that does
not show its counters, or took longer, is not asked again. Nothing here ends a load, or waits while
one runs; a page that is slow while a load runs is read more rarely.

The looks must be of one process: with several servers behind one address, or after a restart, the
difference of two counters would be of other requests. Then nothing is used from then on.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from labctl.errors import OutputNotUnderstood
from labctl.evaluation.endpoints.errors import TryAgain
from labctl.evaluation.endpoints.monitor import LOOK_SECONDS, ServerMonitor
from labctl.evaluation.endpoints.server_metrics import GAUGES, Figure, Snapshot
from labctl.records.serving import CountersGap, ServerCounters

#: Time (s) between two looks, and before the first one, for short loads.
_EVERY_SECONDS, _FIRST_SECONDS = 1.0, 0.25
#: A look that took longer than a tenth of that is repeated after this multiple of its time.
_REST = 10.0
#: Consecutive looks that failed, after which a stage has no more.
_MOST_FAILED = 3
#: Most seconds for all looks at one begin, or one end, of a stage; and the pause between two.
_SETTLE_SECONDS, _SETTLE_PAUSE_SECONDS = 1.0, 0.05
#: Looks before the first load: servers that take turns behind one address show themselves.
_FIRST_LOOKS = 3


@dataclass(frozen=True)
class Own:
    """Requests of this test: sent, answered, answers to them, and the generated tokens of these.

    A request may have several answers (``n``); servers count each as a request.
    """

    sent: int
    answered: int
    answers: int
    tokens: int

    def __add__(self, more: "Own") -> "Own":
        """Return both together."""
        return Own(
            self.sent + more.sent,
            self.answered + more.answered,
            self.answers + more.answers,
            self.tokens + more.tokens,
        )


_NOTHING = Own(0, 0, 0, 0)


class ServerClock:
    """Reads the counters of one server, for one stage after the other.

    ``until``: the time of ``time.monotonic`` after which no look is made; None: any time.
    """

    def __init__(self, monitor: ServerMonitor, until: float | None = None):
        self._monitor = monitor
        self._until = math.inf if until is None else until
        #: The last counters by which all requests of this test were over and counted, and the
        #: requests since then.
        self._clean: Snapshot | None = None
        self._own = _NOTHING
        self._may_wait = True
        self._newest: Snapshot | None = None
        self._has_page = True
        self.is_mixed = False
        #: Why the last look found nothing.
        self.trouble: CountersGap = "look-failed"

    async def open(self) -> None:
        """Look for the page, before the first answer of this test."""
        until = self._most()
        for _ in range(_FIRST_LOOKS):
            found = await self.look(until - time.monotonic())
            self._clean = self._clean or found
            if found is None or not found.figures:
                break
        self._has_page = self._clean is not None

    def asked(self, own: Own) -> None:
        """Add requests of this test."""
        self._own += own

    async def stage(self) -> "StageClock | None":
        """Begin a stage; None if the server has no counters that can be used."""
        begin = self._newest
        if not self._has_page or begin is None or self._clean is None:
            return None
        if not self.is_mixed:
            begin = await self.settled(self._clean, self._own, waits=self._may_wait)
        if begin is None or not begin.figures:
            self._has_page = False
            return None
        self._has_page = not self.is_mixed  # if it is, this stage says so, and is the last one
        own = self._own
        is_clean = _has_all(begin, self._clean, own) and (own.answered == own.sent or begin.is_idle)
        if is_clean:
            self._clean, self._own = begin, _NOTHING
        return StageClock(self, begin, may_count_earlier=not is_clean)

    async def look(self, seconds: float = LOOK_SECONDS) -> Snapshot | None:
        """Return the counters now, in at most so many seconds; None if the server does not."""
        if seconds <= 0:
            self.trouble = self._slow
            return None
        try:
            found = await self._monitor.metrics(min(seconds, LOOK_SECONDS))
        except (TryAgain, OutputNotUnderstood) as error:
            is_slow = isinstance(error.__cause__, TimeoutError)
            self.trouble = self._slow if is_slow else "look-failed"
            return None
        if self._newest is not None and not self._newest.is_of_same_process(found):
            self.is_mixed = True
        self._newest = found
        return found

    @property
    def _slow(self) -> CountersGap:
        return "max-time" if time.monotonic() >= self._until else "slow"

    def _most(self) -> float:
        """Return when the looks of now must be over."""
        return min(time.monotonic() + _SETTLE_SECONDS, self._until)

    async def settled(
        self, since: Snapshot | None, own: Own, *, waits: bool = True
    ) -> Snapshot | None:
        """Return the counters when they have all answers of this test; after a second as they are.

        None if the server does not show them. ``waits`` False: as they are now.
        """
        until, found = self._most(), None
        while True:
            now = await self.look(until - time.monotonic())
            found = now or found
            if now is None or since is None or _has_all(now, since, own):
                return found
            if self.is_mixed or not waits:
                return found
            await asyncio.sleep(_SETTLE_PAUSE_SECONDS)

    async def ended(self, begin: Snapshot, own: Own) -> Snapshot | None:
        """Return the counters at the end of a stage; None if the server does not show them."""
        self._may_wait = False
        self.asked(own)
        found = None if self.is_mixed else await self.settled(begin, own)
        if found is None or self.is_mixed:  # this stage says why, and is the last one
            self._has_page = False
        return found


def _has_all(now: Snapshot, since: Snapshot, own: Own) -> bool:
    wanted: tuple[tuple[Figure, int], ...] = (
        ("requests", own.answers),
        ("generated_tokens", own.tokens),
    )
    for figure, least in wanted:
        if figure in now.figures:
            return now.figures[figure] - since.figures.get(figure, 0) >= least
    return True


class StageClock:
    """The counters of one stage, from its begin on."""

    def __init__(self, clock: ServerClock, begin: Snapshot, *, may_count_earlier: bool):
        self._clock, self._begin = clock, begin
        self._may_count_earlier = may_count_earlier
        self._end: Snapshot | None = None
        self._gap: CountersGap = "no-end"
        self._samples: list[Snapshot] = []
        self._failed: CountersGap | None = None

    @asynccontextmanager
    async def sampling(self) -> AsyncIterator[None]:
        """Look once a second while the block runs."""
        task = asyncio.create_task(self._sample())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _sample(self) -> None:
        await asyncio.sleep(_FIRST_SECONDS)
        failed = 0
        while failed < _MOST_FAILED and not self._clock.is_mixed:
            began = time.monotonic()
            found = await self._clock.look()
            took = time.monotonic() - began
            failed = failed + 1 if found is None else 0
            if found is None:
                self._failed = self._clock.trouble
            else:
                self._samples.append(found)
            await asyncio.sleep(max(_EVERY_SECONDS - took, _REST * took))

    async def end(self, own: Own) -> None:
        """Read the counters at the end of the stage."""
        self._end = await self._clock.ended(self._begin, own)
        if self._end is None:
            self._gap = self._clock.trouble

    def _found_gap(self) -> CountersGap | None:
        if self._clock.is_mixed:
            return "another-process"
        if self._end is None:
            return self._gap
        if self._begin.is_rounded or self._end.is_rounded:
            return "rounded"
        return self._failed

    def counters(self, own: Own) -> ServerCounters:
        """Return what was seen, also without the end."""
        gap = self._found_gap()
        if gap == "another-process":
            return ServerCounters(gap=gap, samples=0, requests_sent=own.sent)
        running, waiting, usage = (
            [sample.figures[figure] for sample in self._samples if figure in sample.figures]
            for figure in GAUGES
        )
        return ServerCounters(
            gap=gap,
            may_count_earlier=self._may_count_earlier,
            samples=len(self._samples),
            running_max=round(max(running)) if running else None,
            running_mean=sum(running) / len(running) if running else None,
            waiting_max=round(max(waiting)) if waiting else None,
            waiting_mean=sum(waiting) / len(waiting) if waiting else None,
            cache_usage_max=max(usage, default=None),
            requests_sent=own.sent,
            requests_finished=self._since_begin("requests"),
            ttft_sum_ns=self._since_begin("ttft_s", 1e9),
            ttft_count=self._since_begin("ttft_count"),
            latency_sum_ns=self._since_begin("latency_s", 1e9),
            latency_count=self._since_begin("latency_count"),
            generated_tokens=self._since_begin("generated_tokens"),
            prompt_tokens=self._since_begin("prompt_tokens"),
            cached_prompt_tokens=self._since_begin("cached_tokens"),
            preemptions=self._since_begin("preemptions"),
        )

    def _since_begin(self, figure: Figure, unit: float = 1) -> int | None:
        if self._end is None or self._begin.is_rounded or figure not in self._end.figures:
            return None
        # A counter without a value yet is not on the page of some servers.
        return round((self._end.figures[figure] - self._begin.figures.get(figure, 0.0)) * unit)
