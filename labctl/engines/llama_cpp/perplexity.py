"""llama-perplexity: how well a model predicts a text.

It prints the estimate so far after each chunk on stdout, ``[1]12.3456,[2]…``, and at the end
``Final estimate: PPL = 12.3456 +/- 0.12345`` on stderr, older versions on stdout (``perplexity`` in
``tools/perplexity/perplexity.cpp``). If the text is too short, it also ends with status 0.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from labctl.config.recipe_parts import Scalar
from labctl.engines.base import (
    TEXT_BYTES_PER_TOKEN,
    Engine,
    Inputs,
    MemoryNeed,
    RawOutput,
    Resolved,
    Roles,
    TokenCounts,
    Tool,
)
from labctl.engines.llama_cpp import programs
from labctl.engines.llama_cpp.parameters import (
    CACHE_TYPE_PARAMETERS,
    ChunkParameters,
    LlamaPerplexityParameters,
    memory_need,
    resolve_defaults,
)
from labctl.errors import ConfigError, LabctlError, OutputNotUnderstood
from labctl.records.board import BoardFacts
from labctl.records.timing import Measure, TimingRecord
from labctl.records.trial import Check, JobStatus, ModelIdentity

PROGRAM = "llama-perplexity"
#: Name of the recipe's file.
TEXT = "text"
MEASURE = "perplexity"

_CHUNK = re.compile(rb"\[([0-9]{1,10})\](-?[0-9]{1,30}\.[0-9]{1,10}|-?nan|-?inf),")
#: Printed when everything is loaded and the text is long enough.
_BEGUN = b"perplexity: calculating perplexity over "
#: The first chunk whose estimate is not a number, or such a final estimate.
_NAN = re.compile(
    rb"\[([0-9]{1,10})\]-?(?:nan|inf)\b|Final estimate: PPL = -?(?:nan|inf)\b", re.IGNORECASE
)
_FINAL = re.compile(
    rb"Final estimate: PPL = ([0-9]{1,30}\.[0-9]{1,10}) \+/- ([0-9]{1,30}\.[0-9]{1,10})"
)


ChunkT = TypeVar("ChunkT", bound=ChunkParameters)


class ChunkEngine(Engine[ChunkT]):
    """A task of llama-perplexity, which reads a text in chunks."""

    name = "llama_cpp"
    product = "llama.cpp"
    roles = Roles(threads="threads", batch="ubatch")
    workload_parameters = ("chunks", "context")
    cache_types = CACHE_TYPE_PARAMETERS
    uses_adapters = True
    chunk_parameter = "context"

    def of_one_chunk(self, values: Mapping[str, Scalar], tokens: int) -> dict[str, Scalar]:
        """Return parameters with which one chunk is read at a time, to save memory."""
        found = {**values, "context": tokens, "batch": tokens}
        if isinstance(physical := found.get("ubatch"), int):
            found["ubatch"] = min(physical, tokens)
        return found

    def for_version(self, tool: Tool, parameters: ChunkT) -> ChunkT:
        """Decide flash attention: on, in the classic version off."""
        return programs.for_version(tool, parameters)

    def resolve_defaults(
        self,
        parameters: ChunkT,
        facts: BoardFacts,
        model: ModelIdentity,
        text_bytes: int | None = None,  # noqa: ARG002 - batches are full
    ) -> Resolved[ChunkT]:
        """Use one thread for each core; repacking only if the copies fit."""
        return resolve_defaults(parameters, facts, model, self.memory)

    def memory(
        self,
        parameters: ChunkT,
        model: ModelIdentity,
        text_bytes: int | None = None,  # noqa: ARG002 - batches are full
    ) -> MemoryNeed:
        """Return weights, the caches of all chunks read in parallel, and compute buffer."""
        return memory_need(parameters, model, context=parameters.context * parameters.sequences)

    def tool(self, available: Collection[str], *, offered: Collection[str]) -> Tool:
        """Return ``llama-perplexity``, with the flags of its version."""
        return programs.choose(PROGRAM, self.task, available, offered)

    def _argv(
        self, tool: Tool, parameters: ChunkT, inputs: Inputs, words: Sequence[str]
    ) -> list[str]:
        argv = [*programs.start(tool, inputs), *words]
        argv += programs.common_words(tool, parameters, inputs)
        # A warm-up does not change the estimate; older versions always make one.
        return [*argv, "-fit", "off", "--no-warmup"] if tool.profile == programs.NEW else argv


class LlamaPerplexity(ChunkEngine[LlamaPerplexityParameters]):
    """The perplexity of a text."""

    task = "perplexity"
    parameters_model = LlamaPerplexityParameters
    files = (TEXT,)

    def token_counts(self, parameters: LlamaPerplexityParameters, text_bytes: int) -> TokenCounts:
        """Count each chunk as a prompt; the number of chunks is estimated from the text's bytes."""
        there = max(1, text_bytes // (TEXT_BYTES_PER_TOKEN * parameters.context))
        return TokenCounts(min(there, parameters.chunks or there), parameters.context, 0)

    def command(
        self, tool: Tool, parameters: LlamaPerplexityParameters, inputs: Inputs
    ) -> list[str]:
        """Return the argument vector.

        The text is read byte for byte, except that the program drops one newline at the end.
        """
        if TEXT not in inputs.files:
            raise ConfigError("llama-perplexity needs a text", hint="name it in files.text")
        words = ["-f", inputs.files[TEXT], "--no-escape", "-c", str(parameters.context)]
        words += ["--chunks", str(parameters.chunks or -1)]
        return self._argv(tool, parameters, inputs, words)

    def diagnose(self, job: JobStatus, raw: RawOutput) -> LabctlError | None:
        """Return the error from its last output: some failures also end with status 0.

        IntegrityError if its last output was lost; the trial is then retried.
        """
        if job.outcome == "exited" and (nan := _NAN.search(raw.stdout) or _NAN.search(raw.stderr)):
            return programs.not_a_number(raw, int(nan[1]) if nan[1] else None)
        failure = programs.diagnose(job, raw)
        if failure is not None or _FINAL.search(raw.stderr + raw.stdout):
            return failure
        if (found := programs.recognised(raw)) or _BEGUN not in raw.stderr:
            return found
        return programs.lost(raw, "its estimate")

    def parse(self, raw: RawOutput, parameters: LlamaPerplexityParameters) -> TimingRecord:
        """Parse the final estimate with its standard error, and the estimate after each chunk."""
        chunks = [(int(number), float(value)) for number, value in _CHUNK.findall(raw.stdout)]
        finals = _FINAL.findall(raw.stderr) + _FINAL.findall(raw.stdout)
        if [number for number, _ in chunks] != list(range(1, len(chunks) + 1)):
            raise not_understood("its chunks are not numbered 1, 2, 3 …", raw)
        if len(finals) != 1 or not chunks:
            raise not_understood(
                f"{len(chunks)} chunks and {len(finals)} final estimates were printed", raw
            )
        if parameters.chunks is not None and len(chunks) > parameters.chunks:
            raise not_understood(f"{len(chunks)} chunks, {parameters.chunks} were requested", raw)
        value, error = float(finals[0][0]), float(finals[0][1])
        running = [estimate for _, estimate in chunks]
        if not all(math.isfinite(estimate) and estimate >= 1 for estimate in [*running, value]):
            raise not_understood("an estimate is not a number of 1 or more", raw)
        if value != running[-1]:
            raise not_understood(
                f"the final estimate {value} is not the last running one, {running[-1]}", raw
            )
        measure = Measure(name=MEASURE, unit="1", values=tuple(running), value=value, error=error)
        return TimingRecord(perf_format=PROGRAM, measures=(measure,))

    def checks(
        self, timing_record: TimingRecord, parameters: LlamaPerplexityParameters
    ) -> tuple[Check, ...]:
        """Check the number of chunks."""
        read = len(timing_record.measures[0].values)
        return (
            Check(
                name="chunks",
                ok=None if parameters.chunks is None else read == parameters.chunks,
                detail=f"{read} of {parameters.chunks or 'all'} chunks",
            ),
        )


def not_understood(what: str, raw: RawOutput) -> OutputNotUnderstood:
    """Return the error for output of llama-perplexity in another format."""
    return OutputNotUnderstood(
        f"llama-perplexity's output is not understood: {what}",
        hint="labctl may not know this version",
        details=(raw.stdout[-1000:] + b"\n" + raw.stderr[-1000:]).decode(errors="replace"),
    )
