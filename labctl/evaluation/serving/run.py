"""One load test, from its recipe to its results."""

import asyncio
import importlib.metadata
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, cast

from labctl.config.lab import LabFile
from labctl.errors import ExitStatus, LabctlError, OutputNotUnderstood
from labctl.evaluation.datasets.load import load_dataset
from labctl.evaluation.endpoints import open_client
from labctl.evaluation.endpoints.base import EndpointClient, GenerationRequest, ServerIdentity
from labctl.evaluation.prompts import Prompt
from labctl.evaluation.question import Dataset
from labctl.evaluation.recipe_parts import EndpointSource
from labctl.evaluation.serving.directory import STAGES, LoadTestDirectory, RequestLog
from labctl.evaluation.serving.generator import (
    MOST_OUTSTANDING,
    LoadGenerator,
    RequestOptions,
    StagePlan,
)
from labctl.evaluation.serving.metrics import measure
from labctl.evaluation.serving.recipe import LoadTestRecipe
from labctl.evaluation.serving.results import LoadTestResults, judge, results_of
from labctl.evaluation.serving.served import Served, serving
from labctl.evaluation.serving.sweep import follows, sweep_rates
from labctl.evaluation.serving.workload import Workload, made_up, of_dataset, words_of_one_token
from labctl.records import (
    DatasetRecord,
    EndpointRecord,
    Failure,
    GateRecord,
    RequestRecord,
    RunEnd,
    ServingRecord,
    StageRecord,
    WorkloadRecord,
)
from labctl.runs.context import lab_revision
from labctl.runs.observer import Observer
from labctl.runs.record.directory import new_run_id

#: Further connections: looks whether the server is there.
_SPARE_CONNECTIONS = 4
_TICK_SECONDS = 0.5
#: A rate of requests that a single stream of a dead slow server has: one in 30 hours.
_LEAST_RATE = 1e-5


@dataclass(frozen=True)
class LoadProgress:
    """How far a stage is: requests that ended, of ``requests`` or within ``duration_s``."""

    stage: str
    ended: int
    requests: int | None
    elapsed_s: float
    duration_s: float | None


@dataclass(frozen=True)
class LoadTestOutcome:
    """End of a load test; ``error`` is what ended it early."""

    directory: LoadTestDirectory
    results: LoadTestResults
    state: Literal["finished", "failed", "interrupted"]
    gates: tuple[GateRecord, ...] = ()
    error: LabctlError | None = None

    @property
    def exit_status(self) -> int:
        """1 where a gate is missed or nothing was answered; 130 after an interrupt."""
        if self.state == "interrupted":
            return ExitStatus.INTERRUPTED
        if self.error is not None:
            return self.error.exit_status
        answered = any(one.metrics and one.metrics.completed for one in self.results.stages)
        missed = any(gate.passed is False for gate in self.gates)
        return ExitStatus.JOB if missed or not answered else ExitStatus.OK


def run_load_test(
    recipe: LoadTestRecipe,
    lab: LabFile,
    observer: Observer,
    progress: Callable[[LoadProgress], None],
) -> LoadTestOutcome:
    """Load the server of a recipe, and keep what is measured in a new run directory.

    An interrupt ends it, and keeps what was measured. Raises, before the first load, ConfigError,
    TryAgain for a server that is out of reach, and what starting one raises.
    """
    source = recipe.workload.dataset
    dataset = None if source is None else load_dataset(source, lab.root)
    directory = LoadTestDirectory(lab.root / "runs" / new_run_id(recipe.name))
    with ExitStack() as stack:
        served = stack.enter_context(serving(recipe, lab, directory, observer))
        test = _Test(recipe, lab, directory, dataset, served, progress, stack)
        error: LabctlError | None = None
        state: Literal["finished", "failed", "interrupted"] = "finished"
        try:
            asyncio.run(test.run())
        except KeyboardInterrupt:
            if not directory.is_planned:
                raise
            state = "interrupted"
        except LabctlError as failure:
            if not directory.is_planned:
                raise
            state, error = "failed", failure
        results = results_of(directory)
        gates = judge(results) if state == "finished" else ()
        directory.finish(
            RunEnd(
                state=state,
                failure=None if error is None else Failure.of(error),
                gates=gates,
                finished=datetime.now(UTC),
            )
        )
    return LoadTestOutcome(directory, results, state, gates, error)


class _Test:
    """One load test under way."""

    def __init__(
        self,
        recipe: LoadTestRecipe,
        lab: LabFile,
        directory: LoadTestDirectory,
        dataset: Dataset | None,
        served: Served,
        progress: Callable[[LoadProgress], None],
        stack: ExitStack,
    ):
        self._recipe, self._lab, self._directory = recipe, lab, directory
        self._dataset, self._served, self._progress = dataset, served, progress
        self._stack = stack
        self._until = None if recipe.max_time is None else time.monotonic() + recipe.max_time
        self._stages = 0
        self._rows: list[RequestRecord] = []

    async def run(self) -> None:
        client = open_client(
            api=self._served.api,
            address=self._served.address,
            key_env=self._served.key_env,
            served_name=self._served.served_name,
            connections=MOST_OUTSTANDING + _SPARE_CONNECTIONS,
        )
        try:
            identity = await client.identify()
            workload, exact = await self._workload(client)
            extra = self._extra_body(identity)
            server = await self._check(client, workload, extra)
            self._begin(identity, server, exact, extra)
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

            generator = LoadGenerator(client, workload, options, keep, until=self._until)
            async with log.open():
                await self._loads(generator)
        finally:
            await client.aclose()

    @property
    def _prompt(self) -> Prompt:
        """The way to put a request; by default a chat where the API has one."""
        given = self._recipe.workload
        if "prompt" in given.model_fields_set or self._served.api == "openai-chat":
            return given.prompt
        return Prompt(layout="plain")

    async def _workload(self, client: EndpointClient) -> tuple[Workload, bool | None]:
        source = self._recipe.workload
        output = source.output_tokens.range
        if self._dataset is not None:
            return of_dataset(self._dataset, self._prompt, output), None
        assert source.prompt_range is not None
        words, exact = await words_of_one_token(client)
        return made_up(words, self._prompt, source.prompt_range, output), exact

    def _extra_body(self, identity: ServerIdentity) -> dict[str, object]:
        source = self._recipe.workload
        extra: dict[str, object] = dict(source.extra_body)
        if source.ignore_eos:
            extra.setdefault("ignore_eos", True)
        is_llama = self._served.api == "llama-server" or "llama.cpp" in (identity.server or "")
        if is_llama and not source.prompt_cache:
            extra.setdefault("cache_prompt", False)
        return extra

    async def _check(
        self, client: EndpointClient, workload: Workload, extra: dict[str, object]
    ) -> str | None:
        """Ask once, so that a wrong address, key or name fails here; return the server's name."""
        asked = workload(self._recipe.seed, 0)
        request = GenerationRequest(
            prompt=asked.prompt,
            max_tokens=1,
            stop=self._prompt.stop_words,
            extra_body=cast("dict[str, None]", extra),
        )
        answer = await client.generate(request, timeout=self._recipe.timeout)
        if not answer.arrivals and answer.completion_tokens is None:
            raise OutputNotUnderstood(
                f"{self._served.address} answered without a text and without a count of tokens",
                hint=f"is it a server of {self._served.api}?",
            )
        return answer.server

    def _begin(
        self,
        identity: ServerIdentity,
        server: str | None,
        exact: bool | None,
        extra: dict[str, object],
    ) -> None:
        recipe, source = self._recipe, self._recipe.workload
        if not self._directory.path.exists():
            self._directory.begin()
        self._stack.enter_context(self._directory.held())
        said = identity.server or server
        record = ServingRecord(
            id=self._directory.path.name,
            recipe=recipe.name,
            recipe_resolved=recipe.resolved(),
            settings=recipe.settings,
            endpoint=self._served.record.model_copy(
                update={"server": self._served.record.server or said}
            ),
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
            labctl_version=importlib.metadata.version("labctl"),
            lab_revision=lab_revision(self._lab.root),
            host=platform.node(),
            started=datetime.now(UTC),
        )
        self._directory.open_test(record, recipe.as_written)

    async def _loads(self, generator: LoadGenerator) -> None:
        recipe = self._recipe
        single: float | None = None
        wanted = [1] if recipe.sweep and 1 not in recipe.concurrency else []
        for streams in (*wanted, *recipe.concurrency):
            record = await self._load(generator, concurrency=streams)
            if streams == 1:
                single = self._rate_of(record)
        for rate in recipe.rates:
            await self._load(generator, rate=rate)
        if recipe.sweep and single is not None:
            await self._sweep(generator, single)

    def _rate_of(self, stage: StageRecord) -> float | None:
        found = measure([row for row in self._rows if row.stage == stage.number], self._limits)
        return found.requests_per_second if found and found.completed else None

    @property
    def _limits(self) -> "LatencyLimits":
        return self._recipe.limits.record

    async def _sweep(self, generator: LoadGenerator, single: float) -> None:
        """Try rates; one stream alone is never faster than a server that serves one."""
        rates = sweep_rates(max(_LEAST_RATE, single / 2))
        rate = next(rates)
        while not self._is_over:
            stage = await self._load(generator, rate=rate)
            metrics = measure([row for row in self._rows if row.stage == stage.number], self._limits)
            try:
                rate = rates.send(follows(stage, metrics))
            except StopIteration:
                return

    @property
    def _is_over(self) -> bool:
        return self._until is not None and time.monotonic() >= self._until
