"""Run the loads of one test, one after the other, and collect the facts of its record."""

import asyncio
import hashlib
import platform
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from pydantic import JsonValue

from labctl.config.lab import LabFile
from labctl.distribution import labctl_version
from labctl.errors import HostError, InfraError, OutputNotUnderstood
from labctl.evaluation.endpoints.base import (
    EndpointClient,
    Generation,
    GenerationRequest,
    ServerIdentity,
)
from labctl.evaluation.endpoints.errors import TryAgain
from labctl.evaluation.endpoints.opening import open_client, open_monitor
from labctl.evaluation.prompts import Prompt
from labctl.evaluation.question import Dataset
from labctl.evaluation.serving.directory import STAGES, LoadTestDirectory, RequestLog
from labctl.evaluation.serving.generator import (
    MOST_OUTSTANDING,
    LoadGenerator,
    RequestOptions,
    StagePlan,
)
from labctl.evaluation.serving.metrics import StageMetrics, measure
from labctl.evaluation.serving.preview import closed_loops, planned_stage
from labctl.evaluation.serving.recipe import LoadTestRecipe
from labctl.evaluation.serving.served import Served
from labctl.evaluation.serving.server_clock import Own, ServerClock
from labctl.evaluation.serving.sweep import follows, own_latency_ns, planned, sweep_rates
from labctl.evaluation.serving.workload import Workload, made_up, of_dataset, words_of_one_token
from labctl.records import events
from labctl.records.evaluation import DatasetRecord
from labctl.records.serving import RequestRecord, ServingRecord, StageRecord, WorkloadRecord
from labctl.retry import retry_async
from labctl.runs.context import lab_revision
from labctl.runs.observer import Observer, RunSession

T = TypeVar("T")

#: Further connections, to check that the server still answers.
_SPARE_CONNECTIONS = 4
_TICK_SECONDS = 0.5
#: Shortest wait between two checks of a server that is not ready.
_READY_PAUSE_SECONDS = 0.5


class LoadTest:
    """A running load test. ``session`` holds its run directory from the first load on."""

    def __init__(
        self,
        recipe: LoadTestRecipe,
        lab: LabFile,
        directory: LoadTestDirectory,
        *,
        dataset: Dataset | None,
        served: Served,
        observer: Observer,
        session: RunSession,
        job: str | None,
    ):
        self._recipe, self._lab, self._directory = recipe, lab, directory
        self._dataset, self._served, self._job = dataset, served, job
        self._observer, self._session = observer, session
        self._until = None if recipe.max_time is None else time.monotonic() + recipe.max_time
        self._stages: list[StageRecord] = []
        self._measured: list[tuple[StageRecord, StageMetrics | None]] = []
        self._rows: list[RequestRecord] = []
        self._checks = 0

    async def run(self) -> None:
        """Measure all loads. Before the first load, raises the errors of a missing server.

        Later, raises HostError if the server is lost; then ``serving.json`` is already written.
        """
        client = open_client(
            api=self._served.api,
            address=self._served.address,
            key_env=self._served.key_env,
            served_name=self._served.served_name,
            connections=MOST_OUTSTANDING + _SPARE_CONNECTIONS,
        )
        monitor = open_monitor(address=self._served.address, key_env=self._served.key_env)
        clock = ServerClock(monitor, self._until) if self._recipe.server_metrics else None
        try:
            ready_by = time.monotonic() + self._recipe.ready_within
            identify = partial(monitor.beside, client.identify)
            identity, _ = await self._ready(identify, ready_by)
            if clock is not None:
                await clock.open()
            workload, exact = await self._workload(client)
            extra = self._extra_body(identity)
            check = partial(monitor.beside, partial(self._check, client, workload, extra))
            answer, complaint = await self._ready(check, ready_by)
            if complaint is not None:
                self._observer.note(f"note: the server answers, although it says {complaint}")
            if clock is not None:
                clock.asked(Own(self._checks, 1, answer.answers, answer.completion_tokens or 0))
            self._begin(identity, answer.server, exact, extra)
            log = RequestLog(self._directory)
            options = RequestOptions(
                timeout_s=self._recipe.timeout,
                temperature=self._recipe.workload.temperature,
                stop=self._prompt.stop_words,
                extra_body=extra,
            )

            def keep(row: RequestRecord) -> None:
                log.keep(row)
                self._rows.append(row)

            generator = LoadGenerator(
                client,
                workload,
                options,
                keep,
                until=self._until,
                monitor=None if complaint else monitor,
                clock=clock,
            )
            async with log.open():
                await self._loads(generator)
        finally:
            await client.aclose()
            await monitor.aclose()

    async def _ready(self, ask: Callable[[], Awaitable[T]], ready_by: float) -> T:
        """Repeat a first request until the server is ready. Raises its error after the limit."""

        def wait_s(attempt: int, error: InfraError) -> float:
            named = error.retry_after_s if isinstance(error, TryAgain) else None
            wait = max(named or 0.0, _READY_PAUSE_SECONDS)
            if time.monotonic() + wait > ready_by:
                raise error
            if attempt == 1:
                within = f"at most {self._recipe.ready_within:g} s"
                self._observer.note(
                    f"waiting for the server, {within} (ready_within): {error.message}"
                )
            return wait

        most = round(self._recipe.ready_within / _READY_PAUSE_SECONDS) + 1
        return await retry_async(ask, on=(TryAgain,), attempts=most, wait_s=wait_s)

    @property
    def _prompt(self) -> Prompt:
        """Return the prompt of the requests; by default a chat if the API has one."""
        is_chat = self._served.api == "openai-chat"
        return self._recipe.workload.prompt or Prompt(layout="chat" if is_chat else "plain")

    async def _workload(self, client: EndpointClient) -> tuple[Workload, bool | None]:
        source = self._recipe.workload
        output = source.output_tokens.range
        if self._dataset is not None:
            return of_dataset(self._dataset, self._prompt, output), None
        assert source.prompt_range is not None
        words, exact = await words_of_one_token(client)
        return made_up(words, self._prompt, source.prompt_range, output), exact

    def _extra_body(self, identity: ServerIdentity) -> dict[str, JsonValue]:
        source = self._recipe.workload
        extra: dict[str, JsonValue] = dict(source.extra_body)
        if source.ignore_eos:
            extra.setdefault("ignore_eos", True)
        named = (identity.server or "").replace(".", "")
        if self._served.api == "llama-server" or "llamacpp" in named:
            extra.setdefault("cache_prompt", source.prompt_cache)
        return extra

    async def _check(
        self, client: EndpointClient, workload: Workload, extra: dict[str, JsonValue]
    ) -> Generation:
        """Send one request like the loads, so that a refusal shows here."""
        self._checks += 1
        asked = workload(self._recipe.seed, 0)
        request = GenerationRequest(
            prompt=asked.prompt,
            max_tokens=asked.output_tokens,
            temperature=self._recipe.workload.temperature,
            stop=self._prompt.stop_words,
            token_times=True,
            extra_body=extra,
        )
        answer = await client.generate(request, timeout=self._recipe.timeout)
        if not answer.arrivals and not answer.completion_tokens:
            raise OutputNotUnderstood(
                f"{self._served.address} answered with neither text nor a token count",
                hint=f"check that it serves {self._served.api}",
            )
        return answer

    def _begin(
        self,
        identity: ServerIdentity,
        server: str | None,
        exact: bool | None,
        extra: dict[str, JsonValue],
    ) -> None:
        recipe, source = self._recipe, self._recipe.workload
        if self._directory.path.exists():  # it has the log of the started server
            self._directory.take_number()
        else:
            self._directory.begin()
        self._session.begin(self._directory)
        template, own = identity.template, self._served.record
        measured = {
            "server": own.server or identity.server or server,
            "template_sha256": own.template_sha256
            or (template and hashlib.sha256(template.encode()).hexdigest()),
        }
        record = ServingRecord(
            id=self._directory.path.name,
            recipe=recipe.name,
            recipe_resolved=recipe.resolved(),
            settings=recipe.settings,
            endpoint=own.model_copy(update=measured),
            model=self._served.model,
            workload=WorkloadRecord(
                dataset=_dataset_record(self._dataset),
                prompt_tokens=source.prompt_range,
                exact_lengths=exact,
                output_tokens=source.output_tokens.range,
                ignore_eos=source.ignore_eos,
                prompt_cache="off" if extra.get("cache_prompt") is False else "as-served",
                temperature=source.temperature,
                extra_body=extra,
            ),
            limits=recipe.limits.record,
            seed=recipe.seed,
            request_timeout_s=recipe.timeout,
            labctl_version=labctl_version(),
            lab_revision=lab_revision(self._lab.root),
            host=platform.node(),
            job=self._job,
            started=datetime.now(UTC),
        )
        self._directory.open_test(record, recipe.as_written)
        self._observer.tell(events.LoadTest(run=record.id, recipe=record.recipe))

    async def _loads(self, generator: LoadGenerator) -> None:
        recipe = self._recipe
        single = 0.0
        for streams in closed_loops(recipe):
            if self._is_over:
                return
            metrics = await self._load(generator, concurrency=streams)
            if streams == 1 and metrics is not None:
                single = metrics.requests_per_second
        for rate in recipe.rates:
            if self._is_over:
                return
            await self._load(generator, rate=rate)
        if not recipe.sweep or not single:
            return
        rates = sweep_rates(single / 2)
        rate = next(rates)
        while not self._is_over:
            await self._load(generator, rate=rate, judged=True)
            verdict = follows(*self._measured[-1], own_latency_ns(self._measured))
            if verdict is None:
                return
            try:
                rate = rates.send(verdict)
            except StopIteration:
                return

    @property
    def _is_over(self) -> bool:
        return self._until is not None and time.monotonic() >= self._until

    async def _load(
        self,
        generator: LoadGenerator,
        *,
        concurrency: int | None = None,
        rate: float | None = None,
        judged: bool = False,
    ) -> StageMetrics | None:
        """Measure one load. Return its figures, or None if nothing was measured.

        ``judged``: make it long enough for a verdict.
        """
        recipe, number = self._recipe, len(self._stages) + 1
        plan = planned_stage(recipe, number, concurrency=concurrency, rate=rate)
        if judged and rate is not None:
            latency = own_latency_ns(self._measured)
            requests, duration_s = planned(rate, latency, plan.requests, plan.duration_s)
            plan = replace(plan, requests=requests, duration_s=duration_s)
        self._rows = []
        async with self._ticking(plan):
            try:
                await generator.run(plan, self._ended)
            except HostError:
                self._served.check()  # raises the reason for a server that labctl started
                raise
        stage = self._stages[-1]
        metrics = measure(self._rows, recipe.limits.record, stage.unfinished)
        self._measured.append((stage, metrics))
        return metrics

    def _ended(self, stage: StageRecord) -> None:
        self._directory.append(STAGES, [stage])
        self._stages.append(stage)

    @asynccontextmanager
    async def _ticking(self, plan: StagePlan) -> AsyncIterator[None]:
        """Report progress while the block runs."""
        began = time.monotonic()

        async def tick() -> None:
            while True:
                await asyncio.sleep(_TICK_SECONDS)
                ended = sum(not row.warm_up for row in self._rows)
                elapsed = time.monotonic() - began
                warming = not ended and plan.warm_up > 0
                self._observer.tell(
                    events.Load(
                        load=plan.name,
                        done=ended,
                        total=plan.requests,
                        is_warming_up=warming,
                        elapsed_s=elapsed,
                        duration_s=plan.duration_s,
                    )
                )

        task = asyncio.create_task(tick())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _dataset_record(dataset: Dataset | None) -> DatasetRecord | None:
    if dataset is None:
        return None
    return DatasetRecord(
        name=dataset.name,
        source=dataset.source,
        sha256=dataset.sha256,
        split=dataset.split,
        size=dataset.size,
        questions=tuple(question.id for question in dataset.questions),
        subset_seed=dataset.subset_seed,
        shots=len(dataset.examples),
    )
