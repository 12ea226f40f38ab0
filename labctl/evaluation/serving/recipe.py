"""Recipes of load tests: their server, requests and loads.

A recipe with an ``endpoint`` and without ``engine`` and ``dataset`` is of this kind.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, JsonValue, model_validator

from labctl.config.recipe_parts import check_bounds
from labctl.config.types import Duration, Line, RunTime
from labctl.config.yaml.document import StrictModel, refuse
from labctl.config.yaml.loader import Path as DocumentPath
from labctl.evaluation.datasets.source import DatasetSource
from labctl.evaluation.prompts import Prompt
from labctl.evaluation.recipe_parts import EndpointSource, ServedRecipe
from labctl.evaluation.serving.figures import FIGURES, OF_THE_TEST
from labctl.evaluation.serving.generator import MOST_OUTSTANDING
from labctl.records.serving import Arrivals, LatencyLimits, LengthRange
from labctl.suggestions import did_you_mean, listed, unknown

#: Name of the server in records.
ENDPOINT = "endpoint"
#: Longest run time of a server if its test has no `max_time`.
_MAX_SECONDS = 24 * 3600.0
_MOST_TOKENS = 10_000_000
_DEFAULT_PROMPT, _DEFAULT_OUTPUT = 128, 64
_DEFAULT_REQUESTS = 100


class Lengths(StrictModel):
    """Lengths in tokens, drawn uniformly."""

    min: int = Field(ge=1, le=_MOST_TOKENS)
    """Smallest length."""
    max: int = Field(ge=1, le=_MOST_TOKENS)
    """Largest length."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise refuse(f"min {self.min} is above max {self.max}", "min")
        return self

    @property
    def range(self) -> LengthRange:
        """Lengths in the form of records."""
        return LengthRange(low=self.min, high=self.max)


def _lengths(value: object) -> object:
    """Read a plain number as one length."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"min": value, "max": value}
    return value


WrittenLengths = Annotated[Lengths, BeforeValidator(_lengths)]


class WorkloadSource(StrictModel):
    """The requests: made-up texts of a given length, or the questions of a data set."""

    dataset: DatasetSource | None = None
    """Questions to ask, in order, starting again after the last; by default texts are made up, each
    with a different beginning."""
    prompt: Prompt | None = None
    """Prompt for a question, or a made-up text; by default a chat if the API has one, else the text
    alone."""
    prompt_tokens: WrittenLengths | None = None
    """Length of made-up texts, not counting the prompt and the server's template: a number, or
    `min` and `max`. By default 128."""
    output_tokens: WrittenLengths = Lengths(min=_DEFAULT_OUTPUT, max=_DEFAULT_OUTPUT)
    """Limit of the generated tokens of each request: a number, or `min` and `max`."""
    ignore_eos: bool = False
    """True: ask the server to generate up to the limit (`ignore_eos`, which llama-server, vLLM and
    SGLang know), so that all answers have the requested length."""
    prompt_cache: bool = False
    """True: let the server reuse its cache of a prompt. False: forbid it to llama-server; other
    servers get no such option. The share of cached tokens is recorded if the server reports it."""
    temperature: float = Field(default=0.0, ge=0, le=100)
    """0 takes the likeliest token each time."""
    extra_body: dict[str, JsonValue] = Field(default_factory=dict)
    """Further keys of each request, in the server's own form."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if self.dataset is not None and self.prompt_tokens is not None:
            raise refuse("goes with made-up texts, not with dataset", "prompt_tokens")
        if self.prompt is not None and self.prompt.choose_by == "probability":
            raise refuse("a load test needs choose_by: generation", "prompt", "choose_by")
        return self

    @property
    def prompt_range(self) -> LengthRange | None:
        """Lengths of made-up texts; None for a data set."""
        if self.dataset is not None:
            return None
        if self.prompt_tokens is None:
            return LengthRange(low=_DEFAULT_PROMPT, high=_DEFAULT_PROMPT)
        return self.prompt_tokens.range


class Limits(StrictModel):
    """Limits of a good request, each inclusive. Goodput counts the requests that meet all."""

    ttft: Duration | None = None
    """Time to the first piece with a token."""
    tpot: Duration | None = None
    """Time per token after the first, the mean of one answer."""
    latency: Duration | None = None
    """Time of the whole answer."""

    @property
    def record(self) -> LatencyLimits:
        """The limits in the form of records."""
        given = {f"{name}_ns": getattr(self, name) for name in ("ttft", "tpot", "latency")}
        return LatencyLimits(**{k: None if v is None else round(v * 1e9) for k, v in given.items()})


class LoadGate(StrictModel):
    """A bound for a figure; a test with a missed gate ends with status 1."""

    metric: Line
    """Bounded figure: `ttft_p99_ms`, `output_tokens_per_second`, `knee_rate` …"""
    min: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Smallest allowed value."""
    max: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Largest allowed value."""
    concurrency: int | None = Field(default=None, ge=1)
    """Load that it applies to; by default all."""
    rate: Annotated[float, Field(gt=0)] | None = None
    """Load that it applies to; by default all."""

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.metric not in FIGURES:
            near = did_you_mean(self.metric, FIGURES) or f"; known are {listed(FIGURES)}"
            raise refuse(f"no metric {self.metric!r}{near}", "metric")
        check_bounds(self.min, self.max)
        if self.concurrency is not None and self.rate is not None:
            raise refuse("concurrency is given too: write two gates", "rate")
        if self.metric in OF_THE_TEST and (self.concurrency or self.rate):
            key = "concurrency" if self.concurrency else "rate"
            raise refuse(f"{self.metric} is a figure of the whole test, not of one load", key)
        return self


class LoadTestRecipe(ServedRecipe):
    """One load test: loads on one server, one after the other."""

    kind = "load-test"

    endpoint: EndpointSource
    """The server."""
    workload: WorkloadSource = WorkloadSource()
    """The requests."""
    concurrency: Annotated[
        tuple[Annotated[int, Field(ge=1, le=MOST_OUTSTANDING)], ...], Field(max_length=100)
    ] = ()
    """Closed loops: numbers of streams, each of which waits for its answer before it asks again."""
    rates: Annotated[
        tuple[Annotated[float, Field(gt=0, le=10_000)], ...], Field(max_length=100)
    ] = ()
    """Open loops: requests a second, which come whatever the server does."""
    sweep: bool = False
    """True: search for the highest rate that the server can follow."""
    arrivals: Arrivals = "poisson"
    """Times between the requests of open loops: `poisson`, random as with independent users;
    `constant`, all equal."""
    requests: int | None = Field(default=None, ge=1, le=1_000_000)
    """Number of measured requests of each load; by default 100, or without limit if `duration` is
    given."""
    duration: Duration | None = None
    """Time in which requests are sent at each load; after that labctl waits for all answers."""
    warm_up: int = Field(default=5, ge=0, le=10_000)
    """Number of requests at the beginning of each load that are not counted, at least one for each
    stream of a closed loop."""
    limits: Limits = Limits()
    """Limits of a good request, for goodput."""
    seed: int = Field(default=1, ge=0)
    """Seed of lengths, made-up texts and arrivals; the same seed gives the same."""
    timeout: Duration = 600.0
    """Time-out of one answer."""
    ready_within: Duration = 60.0
    """Longest wait for a server that is busy, loading or not there yet, before the first load."""
    server_metrics: bool = True
    """True: read the server's own counters (`/metrics`) beside each load, once a second. False:
    never, as this may disturb a small server."""
    max_time: RunTime | None = None
    """Longest time of the test: loads not measured by then are left out."""
    max_failed: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Largest share of failed requests of each load; with more, the test ends with status 1. A gate
    of `failed_share` replaces it."""
    gates: tuple[LoadGate, ...] = ()
    """Bounds for the figures."""

    def problems(self) -> Iterable[tuple[DocumentPath, str]]:
        """Yield the keys that contradict other ones, each with a sentence."""
        if not self.concurrency and not self.rates and not self.sweep:
            yield (), "give the loads: concurrency: [1, 2, 4], rates: [0.5, 1], or sweep: true"
        for key, values in (("concurrency", self.concurrency), ("rates", self.rates)):
            for index, value in enumerate(values):
                if value in values[:index]:
                    yield (key, index), "this load is given twice"
        if problem := self.endpoint.draft_problem(self.models):
            yield ("endpoint", "draft"), problem
        if self.endpoint.model not in self.models:
            yield ("endpoint", "model"), unknown("model", self.endpoint.model, self.models)
        elif self.endpoint.start and self.models[self.endpoint.model].declared:
            yield ("endpoint", "start"), "a server that labctl starts needs the model's file"
        chat = self.endpoint.api in (None, "openai-chat")
        prompt = self.workload.prompt
        if prompt is not None and prompt.is_chat and not chat:
            problem = f"a chat needs api openai-chat, not {self.endpoint.api}"
            yield ("workload", "prompt", "layout"), problem
        for index, gate in enumerate(self.gates):
            if gate.concurrency is not None and gate.concurrency not in self.concurrency:
                problem = f"no load of this recipe has concurrency {gate.concurrency}"
                yield ("gates", index, "concurrency"), problem
            if gate.rate is not None and gate.rate not in self.rates:
                yield ("gates", index, "rate"), f"no load of this recipe has rate {gate.rate:g}"

    @property
    def questions(self) -> DatasetSource | None:
        """Data set of the recipe; None: made-up texts."""
        return self.workload.dataset

    @property
    def servers(self) -> Mapping[str, EndpointSource]:
        """The server, by name."""
        return {ENDPOINT: self.endpoint}

    @property
    def longest_seconds(self) -> float:
        """Longest run time of its server, in s."""
        return _MAX_SECONDS if self.max_time is None else 2 * self.max_time

    def changed_on_board(self, **changes: str) -> Self:
        """Return the recipe with these keys of its server, if labctl starts it on a board."""
        return self.model_copy(update={"endpoint": self.endpoint.changed_on_board(changes)})

    @property
    def measured_requests(self) -> int | None:
        """Number of requests of each load; None if only `duration` ends it."""
        if self.requests is None and self.duration is None:
            return _DEFAULT_REQUESTS
        return self.requests
