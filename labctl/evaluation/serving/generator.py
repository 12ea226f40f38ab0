"""The load generator: sends the requests of one stage, and records the times of the answers.

An open loop sends each request at its planned time, even if earlier requests have no answer yet. So
a stalled server gets the requests that real users would send meanwhile. A closed loop has several
streams; each waits for its answer before it asks again.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from labctl.errors import HostError, LabctlError
from labctl.evaluation.endpoints.base import EndpointClient, Generation, GenerationRequest
from labctl.evaluation.endpoints.errors import TryAgain
from labctl.evaluation.endpoints.monitor import ServerMonitor
from labctl.evaluation.serving.arrivals import arrival_times
from labctl.evaluation.serving.server_clock import Own, ServerClock
from labctl.evaluation.serving.workload import Asked, Workload
from labctl.records.serving import Arrivals, RequestRecord, ServerCounters, StageRecord, StageStop
from labctl.records.trial import Failure
from labctl.stats.describe import percentile

#: Number of unanswered requests from which a server is overloaded; each needs a connection.
MOST_OUTSTANDING = 512
#: Number of consecutive failures after which the server is asked for its identity.
_SUSPECT = 5
_PROBE_SECONDS = 5.0
#: Wait of a stream after a failure, to add no load to a server in trouble.
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 10.0
_LAG_SECONDS = 0.02
#: With fewer samples the largest lag counts, since a late process takes few samples.
_FEWEST_LAGS = 20


@dataclass(frozen=True)
class StagePlan:
    """One load: ``concurrency`` streams, or ``rate`` requests a second.

    ``requests`` and ``duration_s`` limit the measurement; the first one reached ends the sending.
    ``warm_up`` requests come before. An open loop stops sending once ``most_outstanding`` have no
    answer.
    """

    number: int
    seed: int
    warm_up: int
    requests: int | None
    duration_s: float | None
    concurrency: int | None = None
    rate: float | None = None
    arrivals: Arrivals = "poisson"
    most_outstanding: int = MOST_OUTSTANDING

    @property
    def name(self) -> str:
        """``concurrency 4``, ``rate 0.5``."""
        if self.rate is None:
            return f"concurrency {self.concurrency}"
        return f"rate {self.rate:.4g}"


@dataclass(frozen=True)
class RequestOptions:
    """Options common to all requests."""

    timeout_s: float
    temperature: float = 0.0
    stop: tuple[str, ...] = ()
    extra_body: dict[str, Any] = field(default_factory=dict)


class LoadGenerator:
    """Loads one server, one stage after the other.

    ``keep`` gets each finished request, in the event loop, so it must be quick. ``until``: the time
    of ``time.monotonic`` at which a stage is interrupted; None: never. ``monitor`` detects a dead
    server that still accepts requests; None: its ``/health`` cannot be trusted. ``clock`` reads the
    server's counters.
    """

    def __init__(
        self,
        client: EndpointClient,
        workload: Workload,
        options: RequestOptions,
        keep: Callable[[RequestRecord], None],
        *,
        until: float | None = None,
        monitor: ServerMonitor | None = None,
        clock: ServerClock | None = None,
    ):
        self._client = client
        self._workload = workload
        self._options = options
        self._keep = keep
        self._until = until
        self._monitor, self._clock = monitor, clock

    async def run(self, plan: StagePlan, ended: Callable[[StageRecord], None]) -> StageRecord:
        """Send all requests of a stage and wait for their answers.

        ``ended`` always gets the stage's record, even if this call is cancelled. Raises HostError
        if the server is lost.
        """
        clock = None if self._clock is None else await self._clock.stage()
        stage = _Stage(
            self._client, self._workload, self._options, self._keep, plan, monitor=self._monitor
        )
        lags: list[int] = []
        try:
            async with _lags(lags), clock.sampling() if clock else nullcontext():
                await stage.drive(self._until)
            if clock is not None and stage.lost is None:
                await clock.end(stage.own)
        finally:
            record = stage.record(lags, None if clock is None else clock.counters(stage.own))
            ended(record)
        if stage.lost is not None:
            raise stage.lost
        return record


class _Stage:
    """One running stage."""

    def __init__(
        self,
        client: EndpointClient,
        workload: Workload,
        options: RequestOptions,
        keep: Callable[[RequestRecord], None],
        plan: StagePlan,
        *,
        monitor: ServerMonitor | None,
    ):
        self._client, self._workload, self._options = client, workload, options
        self._keep, self._plan, self._monitor = keep, plan, monitor
        self._began = datetime.now(UTC)
        self._zero_ns = time.monotonic_ns()
        self._stop: StageStop = "done"
        #: Number of the last request, and start time of the first measured one.
        self._numbers = 0
        self._measuring_since: float | None = None
        self._outstanding: set[asyncio.Task[Any]] = set()
        self._measured_outstanding = 0
        self._failures = 0
        self._answered = self._answers = self._tokens = 0
        self._probing = False
        self._driver: asyncio.Task[None] | None = None
        self.lost: LabctlError | None = None

    async def drive(self, until: float | None) -> None:
        loop = asyncio.get_running_loop()
        closed = self._plan.rate is None
        self._driver = asyncio.create_task(self._closed() if closed else self._open())
        timer = None
        if until is not None:
            timer = loop.call_at(loop.time() + until - time.monotonic(), self._end, "max-time")
        try:
            await self._driver
        except asyncio.CancelledError:
            if self._stop == "done":  # cancelled from outside
                self._stop = "interrupted"
                raise
        finally:
            if timer is not None:
                timer.cancel()
            for task in self._outstanding:
                task.cancel()
            await asyncio.gather(*self._outstanding, return_exceptions=True)

    @property
    def own(self) -> Own:
        """Requests of this stage so far."""
        return Own(self._numbers, self._answered, self._answers, self._tokens)

    def record(self, lags: list[int], server: ServerCounters | None) -> StageRecord:
        plan = self._plan
        return StageRecord(
            number=plan.number,
            name=plan.name,
            loop="closed" if plan.rate is None else "open",
            concurrency=plan.concurrency,
            rate=plan.rate,
            arrivals=None if plan.rate is None else plan.arrivals,
            seed=plan.seed,
            requests=plan.requests,
            duration_s=plan.duration_s,
            warm_up=plan.warm_up,
            stop=self._stop,
            unfinished=self._measured_outstanding,
            began=self._began,
            client_lag_p99_ns=_p99(lags),
            failure=None if self.lost is None else Failure.of(self.lost),
            server=server,
        )

    async def _closed(self) -> None:
        streams = [self._spawn(self._stream()) for _ in range(self._plan.concurrency or 1)]
        await asyncio.gather(*streams)

    async def _stream(self) -> None:
        while (number := self._next(time.monotonic())) is not None:
            wait_s = await self._send(number, None)
            if wait_s:
                await asyncio.sleep(wait_s)

    async def _open(self) -> None:
        assert self._plan.rate is not None
        zero = self._zero_ns / 1e9
        sends: set[asyncio.Task[Any]] = set()
        for at in arrival_times(self._plan.rate, self._plan.arrivals, self._plan.seed):
            number = self._next(zero + at)
            if number is None:
                break
            if (early := zero + at - time.monotonic()) > 0:
                await asyncio.sleep(early)  # a late request is sent without a turn for the loop
            if len(self._outstanding) >= self._plan.most_outstanding:
                self._stop = "overloaded"
                return  # unfinished requests are cancelled: they do not belong to a steady load
            task = self._spawn(self._send(number, round(at * 1e9)))
            sends.add(task)
            task.add_done_callback(sends.discard)
        if sends:
            await asyncio.wait(sends)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._outstanding.add(task)
        task.add_done_callback(self._outstanding.discard)
        return task

    def _next(self, at: float) -> int | None:
        """Return the number of a request that starts ``at``; None if the stage has enough."""
        plan, number = self._plan, self._numbers + 1
        if number > plan.warm_up and self._measuring_since is None:
            self._measuring_since = at
        since = self._measuring_since
        if plan.requests is not None and number > plan.warm_up + plan.requests:
            return None
        if plan.duration_s is not None and since is not None and at >= since + plan.duration_s:
            return None
        self._numbers = number
        return number

    async def _send(self, number: int, intended_ns: int | None) -> float:
        """Send one request; return the seconds to wait after it."""
        plan, options = self._plan, self._options
        measured = number > plan.warm_up
        asked = self._workload(plan.seed, number)
        request = GenerationRequest(
            prompt=asked.prompt,
            max_tokens=asked.output_tokens,
            temperature=options.temperature,
            stop=options.stop,
            token_times=True,
            extra_body=options.extra_body,
        )
        self._measured_outstanding += measured
        begun = time.monotonic_ns()
        try:
            answer = await self._client.generate(request, timeout=options.timeout_s)
        except LabctlError as error:
            self._measured_outstanding -= measured
            row = self._row(number, asked, intended_ns, begun, time.monotonic_ns())
            self._keep(row.model_copy(update={"failure": Failure.of(error)}))
            await self._suspect()
            wanted = error.retry_after_s if isinstance(error, TryAgain) else None
            return min(wanted or _PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        self._measured_outstanding -= measured
        self._failures = 0
        self._answered += 1
        self._answers += answer.answers
        self._tokens += answer.completion_tokens or 0
        row = self._row(number, asked, intended_ns, answer.sent_ns, answer.done_ns)
        self._keep(row.model_copy(update=self._answer_fields(answer)))
        return 0.0

    def _row(
        self, number: int, asked: Asked, intended_ns: int | None, sent_ns: int, done_ns: int
    ) -> RequestRecord:
        return RequestRecord(
            stage=self._plan.number,
            number=number,
            warm_up=number <= self._plan.warm_up,
            intended_ns=intended_ns,
            sent_ns=sent_ns - self._zero_ns,
            done_ns=done_ns - self._zero_ns,
            asked_prompt_tokens=asked.prompt_tokens,
            asked_output_tokens=asked.output_tokens,
        )

    def _answer_fields(self, answer: Generation) -> dict[str, Any]:
        """Return the fields that an answer adds to the record of its request."""
        return {
            "arrivals_ns": tuple(stamp - self._zero_ns for stamp in answer.arrivals),
            "prompt_tokens": answer.prompt_tokens,
            "cached_tokens": answer.cached_tokens,
            "drafted_tokens": answer.drafted_tokens,
            "accepted_tokens": answer.accepted_tokens,
            "completion_tokens": answer.completion_tokens,
            "counted_by": answer.counted_by,
            "hidden_tokens": answer.hidden_tokens,
            "tokens_after_first": answer.tokens_after_first,
            "answers": answer.answers,
            "finish": answer.finish,
        }

    async def _suspect(self) -> None:
        """After several consecutive failures, end the stage unless the server still answers.

        vLLM lists its models even if its engine is dead, but its ``/health`` reports that. It is
        asked at the same time, and so does not shorten the time for the answer.
        """
        self._failures += 1
        if self._failures % _SUSPECT or self._probing:
            return
        self._probing = True
        trouble: str | None = None
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                if self._monitor is None:
                    await self._client.identify()
                else:
                    _, trouble = await self._monitor.beside(self._client.identify)
        except (TryAgain, TimeoutError) as error:
            trouble = str(error) or f"no answer in {_PROBE_SECONDS:g} s"
        except LabctlError:
            return  # it runs, though it refuses this request
        finally:
            self._probing = False
        if trouble is not None:
            self.lost = HostError(
                f"the server is gone: {self._failures} requests in a row failed, and then:"
                f" {trouble}",
                hint="check the server's log",
            )
            self._end("server-lost")

    def _end(self, stop: StageStop) -> None:
        self._stop = stop
        assert self._driver is not None
        self._driver.cancel()


@asynccontextmanager
async def _lags(lags: list[int]) -> AsyncIterator[None]:
    """Add the lateness of a timer of this process, in ns, while the block runs."""

    async def look() -> None:
        while True:
            due = time.monotonic_ns() + round(_LAG_SECONDS * 1e9)
            try:
                await asyncio.sleep(_LAG_SECONDS)
            finally:
                if (lag := time.monotonic_ns() - due) > 0:  # otherwise the timer ended early
                    lags.append(lag)

    task = asyncio.create_task(look())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _p99(lags: list[int]) -> int | None:
    if len(lags) < _FEWEST_LAGS:
        return max(lags, default=None)
    return round(percentile(lags, 99))
