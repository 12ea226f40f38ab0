"""The server's own counters beside each load, as a second clock.

Counters are read at the begin of a stage (before the first request) and at its end (after the last
answer), gauges once a second. A server may count an answer a moment after it was received: then the
page is read again. All looks at a begin take at most a second together, and so do all looks at an
end; there are no looks after ``max_time``. A server that does not show its counters, or took
longer, is not asked again. Nothing here ends a load, or waits during a load; a page that is slow
during a load is read less often.

All looks must show the same process: with several servers behind one address, or after a restart,
the difference of two counters would count other requests. From then on, no counters are used.
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
#: A look that took longer than a tenth of this interval is repeated after this multiple of its
#: time.
_REST = 10.0
#: Number of consecutive failed looks after which a stage has no further look.
_MOST_FAILED = 3
#: Most seconds for all looks at one begin or end of a stage; pause between two looks.
_SETTLE_SECONDS, _SETTLE_PAUSE_SECONDS = 1.0, 0.05
#: Number of looks before the first load, to detect several servers behind one address.
_FIRST_LOOKS = 3


@dataclass(frozen=True)
class Own:
    """Numbers of this test: sent requests, answered requests, their answers, generated tokens.

    A request may have several answers (``n``); servers count each as a request.
    """

    sent: int
    answered: int
    answers: int
    tokens: int

    def __add__(self, more: "Own") -> "Own":
        """Return the sum of both."""
        return Own(
            self.sent + more.sent,
            self.answered + more.answered,
            self.answers + more.answers,
            self.tokens + more.tokens,
        )


_NOTHING = Own(0, 0, 0, 0)


class ServerClock:
    """Reads the counters of one server, for one stage after the other.

    ``until``: time of ``time.monotonic`` after which the page is not read; None: no limit.
    """

    def __init__(self, monitor: ServerMonitor, until: float | None = None):
        self._monitor = monitor
        self._until = math.inf if until is None else until
        #: The last counters that included all requests of this test so far, and the requests since
        #: then.
        self._clean: Snapshot | None = None
        self._own = _NOTHING
        self._may_wait = True
        self._newest: Snapshot | None = None
        self._has_page = True
        self.is_mixed = False
        #: Reason why the last look found nothing.
        self.trouble: CountersGap = "look-failed"

    async def open(self) -> None:
        """Look for the page before the first answer of this test."""
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
        """Begin a stage; return None if the server has no usable counters."""
        begin = self._newest
        if not self._has_page or begin is None or self._clean is None:
            return None
        if not self.is_mixed:
            begin = await self.settled(self._clean, self._own, waits=self._may_wait)
        if begin is None or not begin.figures:
            self._has_page = False
            return None
        self._has_page = not self.is_mixed  # if it is, this stage reports it, and is the last one
        own = self._own
        is_clean = _has_all(begin, self._clean, own) and (own.answered == own.sent or begin.is_idle)
        if is_clean:
            self._clean, self._own = begin, _NOTHING
        return StageClock(self, begin, may_count_earlier=not is_clean)

    async def look(self, seconds: float = LOOK_SECONDS) -> Snapshot | None:
        """Read the counters within some seconds; return None if the server does not show them."""
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
        """Return the time at which the current looks must be over."""
        return min(time.monotonic() + _SETTLE_SECONDS, self._until)

    async def settled(
        self, since: Snapshot | None, own: Own, *, waits: bool = True
    ) -> Snapshot | None:
        """Return the counters once they include all answers of this test, or after a second.

        None if the server does not show them. ``waits`` False: return them at once.
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
        if found is None or self.is_mixed:  # this stage reports the reason, and is the last one
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
        """Return the observed counters, even without the end."""
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
        # Some servers do not show a counter that has no value yet.
        return round((self._end.figures[figure] - self._begin.figures.get(figure, 0.0)) * unit)
