"""The timing of one trial. All durations are ns; ``None`` = not reported, never a default."""

from typing import Literal

from pydantic import Field

from labctl.records.base import Record

StopReason = Literal["limit", "end-of-generation", "context-full", "unknown"]


class SpanCheck(Record):
    """Two independent clocks held against each other.

    The timeline's span from first to last token must agree with the program's own
    ``total - prompt eval``: it was within 0.987-0.998 in every run tried, native and emulated,
    except in runs of a few fast tokens, where it lies between that and the decode time.
    """

    timeline_ns: int
    reported_ns: int = Field(description="total - prompt eval")
    ratio: float
    within: bool = Field(description="between decode time and reported time, give or take 2 %")
    applies: bool = Field(description="False below 5 ms a token, where chunks merge")


class TimingRecord(Record):
    """How long the parts of one generation took."""

    # what the program says of itself
    load_ns: int | None = Field(
        None,
        description="as the program says it: until the first pass over the weights ended. That is"
        " the warm-up; without one it is the prompt, which is counted in prompt_eval_ns too, and"
        " newer llama.cpp then leaves the loading itself out (ttft_ns - prompt_eval_ns has it)",
    )
    prompt_eval_ns: int | None = None
    prompt_tokens: int | None = None
    eval_ns: int | None = None
    eval_runs: int | None = Field(
        None,
        description="passes counted as eval: generated tokens - 1; a prompt of one token adds one",
    )
    sampling_ns: int | None = None
    total_ns: int | None = None
    perf_format: str | None = Field(None, description="which known form of perf lines was read")

    # what the board's clock saw
    generated_tokens: int | None = None
    stop_reason: StopReason = "unknown"
    ttft_ns: int | None = Field(
        None, description="from process start to the first generated token, load included"
    )
    arrivals: int | None = Field(
        None,
        description="separate pieces of generated text; fewer than generated_tokens where tokens"
        " came together or printed nothing",
    )
    token_ns: tuple[int, ...] = Field(
        (), description="gaps between successive token arrivals; first token excluded"
    )
    merged_chunks: tuple[int, ...] = Field(
        (),
        description="indexes of gaps that seem to hold more than one token; left out of p50..p99",
    )
    p50_ns: int | None = None
    p90_ns: int | None = None
    p99_ns: int | None = None
    mean_ns: int | None = Field(None, description="span from first to last token / (tokens - 1)")
    tokens_per_second: float | None = Field(
        None, description="(tokens - 1) / span from first to last token"
    )
    span: SpanCheck | None = None
