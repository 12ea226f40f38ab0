"""llama-bench: prompt (pp) and generation (tg) tests, repeated in one process.

It generates its own tokens, without a prompt. It prints each finished test as a line of JSON (``-o
jsonl``). Keys differ from version to version and are read by name (``test`` in
``tools/llama-bench/llama-bench.cpp``): unknown ones are ignored, missing ones are refused.
"""

from collections.abc import Collection
from dataclasses import replace
from statistics import fmean

from pydantic import ConfigDict, Field

from labctl.config.printed import FailFastModel, first_problem
from labctl.engines.base import (
    Engine,
    Inputs,
    MemoryNeed,
    RawOutput,
    Resolved,
    TokenCounts,
    Tool,
    lines_of,
)
from labctl.engines.llama_cpp import programs
from labctl.engines.llama_cpp.parameters import (
    CACHE_TYPE_PARAMETERS,
    ROLES,
    LlamaBenchParameters,
    memory_need,
    resolve_defaults,
)
from labctl.engines.progress import RUNNING, ProgramProgress, Seen
from labctl.errors import LabctlError, OutputNotUnderstood
from labctl.records.board import BoardFacts
from labctl.records.timing import BenchTest, TimingRecord
from labctl.records.trial import Check, JobStatus, ModelIdentity

PROGRAM = "llama-bench"
FORM = "llama-bench jsonl"
#: The program prints its mean as an integer.
_ROUNDING_NS = 1

#: A test of 10,000 repetitions has 200 kB.
_LONGEST_LINE = 1 << 20


class _Line(FailFastModel):
    """The fields of a test that labctl reads."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, defer_build=True)

    build_commit: str
    build_number: int
    n_batch: int
    n_ubatch: int
    n_threads: int
    type_k: str
    type_v: str
    cpu_strict: bool
    poll: int
    #: A number in newer versions: 0 is off, 1 on, -1 automatic.
    flash_attn: bool | int
    n_prompt: int = Field(ge=0)
    n_gen: int = Field(ge=0)
    n_depth: int = Field(ge=0)
    avg_ns: int = Field(gt=0)
    samples_ns: tuple[int, ...] = Field(min_length=1)


class LlamaBench(Engine[LlamaBenchParameters]):
    """Throughput tests with llama-bench."""

    name = "llama_cpp"
    task = "bench"
    product = "llama.cpp"
    parameters_model = LlamaBenchParameters
    roles = replace(ROLES, prompt_tokens="prompt_tokens")
    workload_parameters = ("depth", "repetitions")
    cache_types = CACHE_TYPE_PARAMETERS

    def for_version(self, tool: Tool, parameters: LlamaBenchParameters) -> LlamaBenchParameters:
        """Decide flash attention: on, in the classic version off."""
        return programs.for_version(tool, parameters)

    def resolve_defaults(
        self,
        parameters: LlamaBenchParameters,
        facts: BoardFacts,
        model: ModelIdentity,
        text_bytes: int | None = None,  # noqa: ARG002 - batches are full
    ) -> Resolved[LlamaBenchParameters]:
        """Use one thread for each core; warm-up and repacking only if the weights fit."""
        return resolve_defaults(parameters, facts, model, self.memory)

    def memory(
        self,
        parameters: LlamaBenchParameters,
        model: ModelIdentity,
        text_bytes: int | None = None,  # noqa: ARG002 - batches are full
    ) -> MemoryNeed:
        """Return weights, the cache of the longer test, and compute buffer."""
        return memory_need(parameters, model, context=parameters.context)

    def token_counts(self, parameters: LlamaBenchParameters, text_bytes: int) -> TokenCounts:  # noqa: ARG002 - it reads none
        """Count each repetition of both tests; a warm-up is a whole prompt and one token."""
        warm_up = parameters.warmup is not False
        prompts = parameters.repetitions + warm_up if parameters.prompt_tokens else 0
        tokens = parameters.tokens * parameters.repetitions + warm_up if parameters.tokens else 0
        return TokenCounts(prompts, parameters.prompt_tokens, tokens)

    def tool(self, available: Collection[str], *, offered: Collection[str]) -> Tool:
        """``llama-bench``, with the flags of its version."""
        return programs.choose(PROGRAM, self.task, available, offered)

    def command(self, tool: Tool, parameters: LlamaBenchParameters, inputs: Inputs) -> list[str]:
        """Return the argument vector. Raises ConfigError if a classic version must not repack."""
        argv = [*programs.start(tool, inputs), "-o", "jsonl"]
        argv += ["-p", str(parameters.prompt_tokens), "-n", str(parameters.tokens)]
        argv += ["-d", str(parameters.depth), "-r", str(parameters.repetitions)]
        return argv + programs.common_words(tool, parameters, inputs)

    def progress(self, seen: Seen, parameters: LlamaBenchParameters) -> ProgramProgress:
        """Return the progress: one line per finished test."""
        tests = (parameters.prompt_tokens > 0) + (parameters.tokens > 0)
        return ProgramProgress(RUNNING, min(seen.stdout.lines, tests), tests, "tests")

    def diagnose(self, job: JobStatus, raw: RawOutput) -> LabctlError | None:
        """Return the error from its last output and the job's end."""
        return programs.diagnose(job, raw)

    def parse(self, raw: RawOutput, parameters: LlamaBenchParameters) -> TimingRecord:
        """Parse the lines of all requested tests, with every repetition's time."""
        lines = _lines(raw.stdout)
        for line in lines:
            _require_consistent(line, parameters)
        wanted = [(parameters.prompt_tokens, 0), (0, parameters.tokens)]
        wanted = [shape for shape in wanted if any(shape)]
        shapes = [(line.n_prompt, line.n_gen) for line in lines]
        if sorted(shapes) != sorted(wanted):
            raise OutputNotUnderstood(
                f"llama-bench was asked for {_names(wanted)} but gave {_names(shapes)}",
                details=_shown(raw.stdout),
            )
        return _timing(lines)

    def checks(
        self, timing_record: TimingRecord, parameters: LlamaBenchParameters
    ) -> tuple[Check, ...]:
        """Check that every test has the requested number of repetitions."""
        counts = [len(test.samples_ns) for test in timing_record.tests]
        return (
            Check(
                name="repetitions",
                ok=set(counts) == {parameters.repetitions},
                detail=f"{', '.join(map(str, counts))} of {parameters.repetitions} a test",
            ),
        )


def _lines(stdout: bytes) -> list[_Line]:
    lines = []
    for number, text in enumerate(lines_of(stdout), 1):
        try:
            # Read only numbers and plain words from a line; names may contain other bytes.
            lines.append(_Line.of_json(text.decode(errors="replace"), most_bytes=_LONGEST_LINE))
        except ValueError as error:
            raise OutputNotUnderstood(
                f"line {number} of llama-bench's output: {first_problem(error)}",
                hint="labctl may not know this version",
                details=_shown(text),
            ) from error
    return lines


def _require_consistent(line: _Line, parameters: LlamaBenchParameters) -> None:
    """Refuse a test that differs from the request, or whose numbers contradict each other."""
    expected = {
        "depth": line.n_depth,
        "batch": line.n_batch,
        "ubatch": line.n_ubatch,
        "threads": line.n_threads,
        "cache_type_k": line.type_k,
        "cache_type_v": line.type_v,
        "cpu_strict": line.cpu_strict,
        "poll": line.poll,
        "flash_attention": line.flash_attn != 0,
    }
    for name, value in expected.items():
        asked = getattr(parameters, name)
        if asked is not None and asked != value:
            raise OutputNotUnderstood(f"llama-bench used {name} {value} instead of {asked}")
    if min(line.samples_ns) <= 0:
        raise OutputNotUnderstood("llama-bench measured a time of 0 or less")
    mean = fmean(line.samples_ns)
    if abs(mean - line.avg_ns) > _ROUNDING_NS + mean * 1e-9:
        raise OutputNotUnderstood(
            f"llama-bench's mean, {line.avg_ns} ns, is not that of its samples, {mean:.0f} ns"
        )


def _timing(lines: list[_Line]) -> TimingRecord:
    tests = tuple(
        BenchTest.of(
            prompt_tokens=line.n_prompt,
            generated_tokens=line.n_gen,
            depth=line.n_depth,
            samples_ns=line.samples_ns,
        )
        for line in lines
    )
    prompt = next((test for test in tests if test.prompt_tokens), None)
    decode = next((test for test in tests if test.generated_tokens), None)
    return TimingRecord(
        perf_format=FORM,
        program_version=f"{lines[0].build_commit} ({lines[0].build_number})",
        prompt_tokens=prompt.prompt_tokens if prompt else None,
        prompt_eval_ns=prompt.p50_ns if prompt else None,
        eval_runs=decode.generated_tokens if decode else None,
        eval_ns=decode.p50_ns if decode else None,
        mean_ns=round(decode.p50_ns / decode.generated_tokens) if decode else None,
        generated_tokens=decode.generated_tokens * len(decode.samples_ns) if decode else None,
        tokens_per_second=decode.tokens_per_second if decode else None,
        stop_reason="limit",
        tests=tests,
    )


def _names(shapes: list[tuple[int, int]]) -> str:
    return ", ".join(f"pp{prompt}" if prompt else f"tg{gen}" for prompt, gen in shapes) or "nothing"


def _shown(raw: bytes) -> str | None:
    return raw[-2000:].decode(errors="replace") or None
