"""Times of one trial. All durations are in ns; ``None`` = not reported, never a default."""

from collections.abc import Sequence
from statistics import median
from typing import Literal, Self

from pydantic import Field

from labctl.records.base import Record

#: The agent's stamps are the board's monotonic clock; programs time themselves.
TokenClock = Literal["agent", "program", "both"]
StopReason = Literal["limit", "end-of-generation", "context-full", "unknown"]


class SpanCheck(Record):
    """Comparison of two independent clocks.

    The timeline's span from first to last token must agree with the program's own ``total - prompt
    eval``: the ratio was 0.987-0.998 in every run tried, native and emulated. In runs of a few fast
    tokens the span lies between this time and the decode time.
    """

    timeline_ns: int
    reported_ns: int = Field(description="total - prompt eval")
    ratio: float
    within: bool = Field(
        description="True if between decode time and reported time, with 2% tolerance"
    )
    applies: bool = Field(description="False below 5 ms a token, where chunks merge")


class ClockCheck(Record):
    """Time stamps of a program beside the agent's time stamps of the same tokens.

    A gap by the agent's clock is the program's gap + lateness of its end - lateness of its begin.
    """

    program_ns: tuple[int, ...] = Field(
        description="gaps between successive tokens by the program's stamps"
    )
    late_ns: tuple[int, ...] = Field(
        description="of each token: the agent's stamp after the program's, counted from the token"
        " for which that is the least"
    )


class BenchTest(Record):
    """One test of a benchmark, repeated in one process that had already loaded the model."""

    name: str = Field(description="pp512: a prompt of 512 tokens; tg128@d512: 128 tokens after 512")
    prompt_tokens: int
    generated_tokens: int
    depth: int = Field(description="positions of the context that were in use before")
    samples_ns: tuple[int, ...] = Field(description="the time of each repetition")
    p50_ns: int
    tokens_per_second: float = Field(description="tokens / median time")

    @classmethod
    def of(
        cls, *, prompt_tokens: int, generated_tokens: int, depth: int, samples_ns: Sequence[int]
    ) -> Self:
        """Return the record of a test from its repetitions; at least one, each above 0."""
        parts = [f"pp{prompt_tokens}"] if prompt_tokens else []
        parts += [f"tg{generated_tokens}"] if generated_tokens else []
        middle = median(samples_ns)
        return cls(
            name="+".join(parts) + (f"@d{depth}" if depth else ""),
            prompt_tokens=prompt_tokens,
            generated_tokens=generated_tokens,
            depth=depth,
            samples_ns=tuple(samples_ns),
            p50_ns=round(middle),
            tokens_per_second=(prompt_tokens + generated_tokens) / (middle / 1e9),
        )


class Measure(Record):
    """Another measurement of a program, in its base unit."""

    name: str = Field(description="perplexity, or the name in the recipe")
    unit: str = Field(description="ns, bytes, tokens, tokens/s, or 1 for a plain number")
    values: tuple[float, ...] = Field(description="one, or one for each time it was printed")
    value: float = Field(description="the median of the values; the program's own estimate")
    error: float | None = Field(None, description="standard error, as the program reports it")


class TimingRecord(Record):
    """Times of the parts of one generation; for a benchmark, the medians of its tests."""

    # reported by the program
    load_ns: int | None = Field(
        None,
        description="as the program reports it: until the first pass over the weights ended. That"
        " is the warm-up; without one it is the prompt, which is counted in"
        " prompt_eval_ns too, and newer llama.cpp then leaves the loading itself out"
        " (ttft_ns - prompt_eval_ns has it)",
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
    perf_format: str | None = Field(None, description="known format of the output that was read")
    program_version: str | None = Field(
        None, description="version that the program reports: its source's revision comes first"
    )
    memory_locked: bool | None = Field(
        None, description="True if the weights were locked in memory; None: not asked for"
    )
    tests: tuple[BenchTest, ...] = Field(
        (), description="tests of a benchmark, each with its samples"
    )
    measures: tuple[Measure, ...] = Field((), description="measures without a field here")

    token_clock: TokenClock | None = Field(
        None,
        description="clock of the token times below; both: the program's own times where the"
        " agent's stamps show none",
    )

    # measured by the board's clock
    generated_tokens: int | None = None
    counted_by: Literal["program", "recipe"] | None = Field(
        None, description="source of the count: the program's output, or a parameter of the recipe"
    )
    stop_reason: StopReason = "unknown"
    ttft_ns: int | None = Field(
        None, description="from process start to the first generated token, load included"
    )
    arrivals: int | None = Field(
        None,
        description="separate pieces of generated text; fewer than generated_tokens where tokens"
        " came together or printed nothing",
    )
    token_lines: int | None = Field(
        None, description="number of printed lines, where each is one token"
    )
    unseen_first: int | None = Field(
        None,
        description="tokens before the first arrival, or together with it; None = not known",
    )
    unseen_last: int | None = Field(
        None, description="tokens after the last arrival; None = not known"
    )
    token_ns: tuple[int, ...] = Field(
        (), description="gaps between successive token arrivals; first token excluded"
    )
    merged_chunks: tuple[int, ...] = Field(
        (),
        description="indexes of gaps that seem to hold more than one token; left out of p50..p99."
        " More than are needed for all tokens where it is not known which of them do",
    )
    p50_ns: int | None = None
    p90_ns: int | None = None
    p99_ns: int | None = None
    mean_ns: int | None = Field(
        None,
        description="span from the first arrival to the last / tokens made in it; None where it is"
        " not known how many those are",
    )
    tokens_per_second: float | None = Field(
        None,
        description="tokens made between the first arrival and the last / that span; of a benchmark"
        " that of its generation test",
    )
    span: SpanCheck | None = None
    clocks: ClockCheck | None = Field(
        None, description="None where the program did not stamp its tokens"
    )
