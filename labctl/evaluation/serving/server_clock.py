"""The server's own counters beside each load, as a second clock.

At the begin and the end of a stage the counters are read, and once a second the gauges. The begin
comes before the first request, the end after the last answer. A server may count an answer a moment
after it was received: then the page is read again, for at most a second. Each look may take 2 s.
Nothing here ends a load, or waits while one runs; a server that does not show its counters is not
asked again.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from labctl.errors import OutputNotUnderstood
from labctl.evaluation.endpoints import ServerMonitor
from labctl.evaluation.endpoints.errors import TryAgain
from labctl.evaluation.endpoints.server_metrics import GAUGES, Figure, Snapshot
from labctl.records import ServerCounters

#: Time (s) between two looks, and before the first one, for short loads.
_EVERY_SECONDS, _FIRST_SECONDS = 1.0, 0.25
#: Consecutive looks that failed, after which a stage has no more.
_MOST_FAILED = 3
_SETTLE_SECONDS, _SETTLE_PAUSE_SECONDS = 1.0, 0.05


@dataclass(frozen=True)
class Own:
    """Requests of this test: sent, answers to them, and the generated tokens of these.

    A request may have several answers (``n``); servers count each as a request.
    """

    sent: int
    answers: int
    tokens: int


class ServerClock:
    """Reads the counters of one server, for one stage after the other."""

    def __init__(self, monitor: ServerMonitor):
        self._monitor = monitor
        self._before: Snapshot | None = None
        self._has_page = True

    async def open(self) -> None:
        """Look for the page, before the first answer of this test."""
        self._before = await self.look()
        self._has_page = self._before is not None

    async def stage(self, before: Own) -> "StageClock | None":
        """Begin a stage; None if the server has no counters.

        ``before``: the requests of this test since the last stage, or since :meth:`open`.
        """
        if not self._has_page:
            return None
        self._before = await self.settled(self._before, before)
        self._has_page = bool(self._before)
        return StageClock(self, self._before) if self._before else None

    async def look(self) -> Snapshot | None:
        """Return the counters now; None if the server does not show them."""
        try:
            return await self._monitor.metrics()
        except (TryAgain, OutputNotUnderstood):
            return None

    async def settled(self, since: Snapshot | None, own: Own) -> Snapshot | None:
        """Return the counters when they have all answers of this test; after a second as they are.

        None if the server does not show them.
        """
        until = time.monotonic() + _SETTLE_SECONDS
        while True:
            now = await self.look()
            if now is None or since is None or _has_all(now, since, own):
                return now
            if time.monotonic() >= until:
                return now
            await asyncio.sleep(_SETTLE_PAUSE_SECONDS)


def _has_all(now: Snapshot, since: Snapshot, own: Own) -> bool:
    wanted: tuple[tuple[Figure, int], ...] = (
        ("requests", own.answers),
        ("generated_tokens", own.tokens),
    )
    for figure, least in wanted:
        if figure in now:
            return now[figure] - since.get(figure, 0) >= least
    return True


class StageClock:
    """The counters of one stage, from its begin on."""

    def __init__(self, clock: ServerClock, begin: Snapshot):
        self._clock, self._begin = clock, begin
        self._last: Snapshot | None = begin
        self._newest = begin
        self._samples: list[Snapshot] = []
        self._is_partial = self._has_restarted = self._is_ended = False

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
        while failed < _MOST_FAILED:
            due = time.monotonic() + _EVERY_SECONDS
            found = await self._clock.look()
            self._take(found)
            failed = failed + 1 if found is None else 0
            if found is not None:
                self._samples.append(found)
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def end(self, own: Own) -> None:
        """Read the counters at the end of the stage."""
        self._last = await self._clock.settled(self._begin, own)
        self._take(self._last)
        self._is_ended = self._last is not None

    def _take(self, found: Snapshot | None) -> None:
        if found is None:
            self._is_partial = True
            return
        counters = [figure for figure in self._newest if figure not in GAUGES]
        if any(found.get(figure, 0) < self._newest[figure] for figure in counters):
            self._has_restarted = True
        self._newest = found

    def counters(self, own: Own) -> ServerCounters:
        """Return what was seen, also without the end."""
        running, waiting, usage = (
            [sample[figure] for sample in self._samples if figure in sample] for figure in GAUGES
        )
        return ServerCounters(
            is_partial=self._is_partial or self._has_restarted or not self._is_ended,
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
        if not self._is_ended or self._has_restarted or figure not in self._newest:
            return None
        # A counter without a value yet is not on the page of some servers.
        return round((self._newest[figure] - self._begin.get(figure, 0.0)) * unit)
