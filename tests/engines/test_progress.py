"""How far a program is, from what it has printed so far."""

import pytest

from labctl.engines.base import ProgramSource
from labctl.engines.command.engine import Command
from labctl.engines.command.schema import TokenStream
from labctl.engines.llama_cpp.bench import LlamaBench
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.engines.llama_cpp.perplexity import LlamaPerplexity
from labctl.engines.progress import ProgramProgress, Seen
from labctl.records.telemetry import StreamSoFar

SECOND = 1_000_000_000
NOTHING = StreamSoFar(pieces=0, lines=0, bytes=0)
#: The end of the log of both versions when the prompt is about to be read.
CLASSIC = "-ext -> dist \ngenerate: n_ctx = 512, n_batch = 2048, n_predict = 16, n_keep = 0\n\n"
NEW = "0.00.161.870 I generate: n_ctx = 512, n_batch = 2048, n_keep = 0\n0.00.161.870 I \n"


def stream(pieces: int, lines: int = 0, last_s: float = 0, first_s: float = 0) -> StreamSoFar:
    return StreamSoFar(
        pieces=pieces,
        lines=lines,
        bytes=5 * pieces,
        first_ns=round(first_s * SECOND),
        last_ns=round(last_s * SECOND),
    )


def command(tokens: TokenStream | None, *arguments: str) -> Command:
    return Command(ProgramSource(board="/x"), arguments, (), tokens)


@pytest.mark.parametrize(
    ("stdout", "said", "phase", "done"),
    [
        (NOTHING, "", "loading", 0),
        (NOTHING, "0.00.2 W warning: something about the model\n", "loading", 0),
        (NOTHING, CLASSIC, "reading the prompt", 0),
        (NOTHING, NEW, "reading the prompt", 0),
        (stream(1), CLASSIC, "generating", 1),
        (stream(7), "", "generating", 7),
        # Two newlines end the output, in a piece of their own.
        (stream(17), "llama_perf_context_print: ...", "generating", 16),
    ],
)
def test_a_completion_has_phases_and_tokens(
    stdout: StreamSoFar, said: str, phase: str, done: int
) -> None:
    engine = LlamaCpp()
    seen = engine.progress(Seen(stdout, NOTHING, said), engine.parameters({"tokens": 16}))
    assert (seen.phase, seen.done, seen.total, seen.unit) == (phase, done, 16, "tokens")


def test_the_rate_is_that_of_the_tokens_after_the_first() -> None:
    engine = LlamaCpp()
    seen = Seen(stream(5, first_s=100, last_s=108), NOTHING)
    progress = engine.progress(seen, engine.parameters({"tokens": 8}))
    assert progress.per_second == 0.5
    # Three tokens of two seconds each, the first of them begun half a second ago.
    assert progress.remaining_s(round(108.5 * SECOND)) == 5.5
    # Later than expected is not over.
    assert progress.remaining_s(200 * SECOND) == 0


@pytest.mark.parametrize(
    "progress",
    [
        ProgramProgress("x", 0, 8, "tokens"),
        ProgramProgress("x", 1, 8, "tokens", 5, 5),
        ProgramProgress("x", 2, 8, "tokens", 5, 5),
        ProgramProgress("x", 3, 8, "tokens", None, 9),
    ],
)
def test_before_two_of_them_there_is_no_rate(progress: ProgramProgress) -> None:
    assert progress.per_second is None
    assert progress.remaining_s(10) is None


def test_a_program_shows_tokens_where_its_recipe_says() -> None:
    seen = Seen(stream(6, lines=2), stream(9, lines=4))
    lines = command(TokenStream(stream="stderr", each="line"), "{tokens}")
    progress = lines.progress(seen, lines.parameters({"tokens": 5}))
    assert (progress.done, progress.total, progress.unit) == (4, 5, "tokens")
    chunks = command(TokenStream())
    progress = chunks.progress(seen, chunks.parameters({}))
    assert (progress.phase, progress.done, progress.total) == ("generating", 6, None)
    assert chunks.progress(Seen(NOTHING, NOTHING), chunks.parameters({})).phase == "running"


def test_without_tokens_what_was_printed_is_counted() -> None:
    engine = command(None)
    parameters = engine.parameters({})
    lines = engine.progress(Seen(stream(6, lines=3), NOTHING), parameters)
    assert (lines.done, lines.unit, lines.total) == (3, "lines", None)
    errors = engine.progress(Seen(NOTHING, stream(6, lines=2)), parameters)
    assert (errors.done, errors.unit) == (2, "lines")
    bare = engine.progress(Seen(stream(2), NOTHING), parameters)
    assert (bare.done, bare.unit, bare.per_second) == (10, "bytes", None)


def test_benchmarks_count_tests_and_a_perplexity_what_it_prints() -> None:
    bench = LlamaBench()
    both = bench.progress(Seen(stream(1, lines=1), NOTHING), bench.parameters({}))
    assert (both.done, both.total, both.unit) == (1, 2, "tests")
    one = bench.progress(Seen(NOTHING, NOTHING), bench.parameters({"prompt_tokens": 0}))
    assert (one.done, one.total) == (0, 1)
    perplexity = LlamaPerplexity()
    seen = perplexity.progress(Seen(stream(3), NOTHING), perplexity.parameters({}))
    assert (seen.done, seen.unit) == (15, "bytes")
