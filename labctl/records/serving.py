"""One load test of a server: its requests, their answers, and their times.

Times of a request are in ns since the beginning of its stage, by the client's monotonic clock.
"""

from typing import Literal

from pydantic import Field, JsonValue

from labctl.records.base import FileRecord, Moment, NumberedRecord, Record
from labctl.records.evaluation import DatasetRecord, EndpointRecord, FinishReason, TokenCounter
from labctl.records.trial import Failure, ModelIdentity

#: Loop of a stage: each stream waits for its answer before its next request (closed), or requests
#: come at planned times, independent of the server (open).
Loop = Literal["closed", "open"]
#: Times between the requests of an open loop: exponential, or all equal.
Arrivals = Literal["poisson", "constant"]
#: Reason for the end of a stage.
StageStop = Literal["done", "max-time", "overloaded", "server-lost", "interrupted"]


class LengthRange(Record):
    """Requested lengths in tokens, drawn evenly from ``low`` to ``high``."""

    low: int
    high: int


class LatencyLimits(Record):
    """Limits of a good request, each inclusive; None = no such limit."""

    ttft_ns: int | None = None
    tpot_ns: int | None = None
    latency_ns: int | None = Field(None, description="of the whole answer")


class WorkloadRecord(Record):
    """The requests of a load test, before they are sent."""

    dataset: DatasetRecord | None = Field(None, description="None: made-up texts")
    prompt_tokens: LengthRange | None = Field(
        None, description="of made-up texts; None: as the data set has them"
    )
    exact_lengths: bool | None = Field(
        None, description="True if the server's tokenizer measured each made-up text"
    )
    output_tokens: LengthRange
    ignore_eos: bool = Field(description="True if the server was asked to continue past the end")
    prompt_cache: Literal["off", "as-served"] = Field(
        description="off: the server was asked to use no cache; as-served: it was not asked"
    )
    temperature: float = 0.0
    extra_body: dict[str, JsonValue] = Field(
        default_factory=dict, description="further keys of each request"
    )


class ServingRecord(NumberedRecord, FileRecord):
    """``serving.json``: written before the first request is sent."""

    id: str
    recipe: str
    recipe_resolved: dict[str, JsonValue]
    settings: tuple[str, ...] = Field((), description="changes on the command line")
    endpoint: EndpointRecord
    model: ModelIdentity | None = Field(
        None, description="None: neither a file nor the recipe has it"
    )
    workload: WorkloadRecord
    limits: LatencyLimits = LatencyLimits()
    seed: int
    request_timeout_s: float
    labctl_version: str
    lab_revision: str | None = None
    host: str = Field(description="computer that sent the requests")
    job: str | None = Field(None, description="id of the run's job in the queue")
    started: Moment


CountersGap = Literal["another-process", "rounded", "slow", "look-failed", "max-time", "no-end"]


class ServerCounters(Record):
    """The server's own counters (``/metrics``) in one stage, for all its clients, with warm-up.

    None: not reported by the server, or missing for the reason in ``gap``.
    """

    gap: CountersGap | None = Field(
        description="why something is missing. `another-process`: two looks were not of the same"
        " process (several servers behind one address, or a restart), so nothing is used;"
        " `rounded`: the server rounds its counters; `slow`, `look-failed`: a look took too long,"
        " or failed; `max-time`, `no-end`: no look at the end. None: nothing is missing"
    )
    may_count_earlier: bool = Field(
        default=False,
        description="True if the server may count requests of earlier loads here: requests that"
        " had no answer, or were not counted yet",
    )
    samples: int = Field(description="number of looks while requests ran, one a second")
    running_max: int | None = Field(None, description="requests that it worked on, in a look")
    running_mean: float | None = None
    waiting_max: int | None = Field(None, description="requests in its queue, in a look")
    waiting_mean: float | None = None
    cache_usage_max: float | None = Field(None, description="share of its cache, 0 to 1")
    requests_sent: int = Field(
        description="requests of this test, with failed ones and ones that were cut off"
    )
    requests_finished: int | None = None
    ttft_sum_ns: int | None = Field(None, description="from its receipt to the first token")
    ttft_count: int | None = None
    latency_sum_ns: int | None = Field(None, description="from its receipt to the end")
    latency_count: int | None = None
    generated_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_prompt_tokens: int | None = None
    preemptions: int | None = Field(None, description="requests that it put back for others")


class StageRecord(FileRecord):
    """A line of ``stages.jsonl``: one load from its first request to its last answer."""

    number: int = Field(description="from 1, in the order in which they ran")
    name: str = Field(description="`concurrency 4`, `rate 0.5`")
    loop: Loop
    concurrency: int | None = Field(None, description="closed: number of streams")
    rate: float | None = Field(None, description="open: planned requests per second")
    arrivals: Arrivals | None = Field(None, description="open: times between them")
    seed: int = Field(description="of lengths, texts and arrivals")
    requests: int | None = Field(None, description="planned number to measure")
    duration_s: float | None = Field(None, description="planned time of sending")
    warm_up: int = Field(description="number of requests before, not counted in any result")
    stop: StageStop
    unfinished: int = Field(
        0, description="measured requests that were sent and cut off by the end: they have no row"
    )
    began: Moment
    client_lag_p99_ns: int | None = Field(
        None,
        description="99th percentile of the lateness of a timer in the client's process: its stamps"
        " can be this late; of fewer than 20 looks the largest; None: too few looks",
    )
    failure: Failure | None = Field(None, description="reason why it ended early")
    server: ServerCounters | None = Field(
        None, description="the server's own counters; None: it has none, or was not asked"
    )


class RequestRecord(FileRecord):
    """A line of ``requests.jsonl``: one request of a stage, with the client's own time stamps."""

    stage: int
    number: int = Field(description="from 1, in the order in which they were to be sent")
    warm_up: bool = False
    intended_ns: int | None = Field(
        None, description="open loop: planned time of sending; None: closed loop"
    )
    sent_ns: int
    arrivals_ns: tuple[int, ...] = Field(
        (), description="one for each piece with tokens, also without text; it may hold several"
    )
    done_ns: int = Field(description="end of the answer, or of the attempt")
    asked_prompt_tokens: int | None = None
    asked_output_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = Field(
        None,
        description="prompt tokens from a cache; None: the server does not report it",
    )
    drafted_tokens: int | None = Field(
        None, description="tokens that speculative decoding guessed; None: not reported"
    )
    accepted_tokens: int | None = Field(None, description="guessed tokens that were right")
    completion_tokens: int | None = None
    counted_by: TokenCounter | None = None
    hidden_tokens: int = Field(
        0, description="tokens of thoughts, counted and not sent, before the first piece"
    )
    tokens_after_first: int | None = Field(
        None, description="tokens that came after the first piece; None: not known"
    )
    answers: int = Field(
        1,
        description="number of answers to this request (`n`): completion_tokens counts all of them,"
        " and arrivals_ns are the pieces of the first",
    )
    finish: FinishReason = "unknown"
    failure: Failure | None = Field(None, description="None: it was answered")
