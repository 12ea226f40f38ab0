"""The text completion of llama.cpp."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from labctl.engines.base import (
    TEXT_BYTES_PER_TOKEN,
    Engine,
    Inputs,
    MemoryNeed,
    RawOutput,
    Resolved,
    TokenCounts,
    Tool,
)
from labctl.engines.llama_cpp import programs, timing
from labctl.engines.llama_cpp.arrivals import READY, as_text
from labctl.engines.llama_cpp.parameters import (
    CACHE_TYPE_PARAMETERS,
    ROLES,
    LlamaCppParameters,
    memory_need,
    resolve_defaults,
)
from labctl.engines.llama_cpp.tuning import built_in_space
from labctl.engines.progress import LOADING, PROMPT, ProgramProgress, Seen, generated
from labctl.errors import LabctlError
from labctl.records.board import BoardFacts
from labctl.records.timing import TimingRecord
from labctl.records.trial import Check, JobStatus, ModelIdentity

#: Lines of the log before the first token (2026-10), with warm-up and without.
_LINES_BEFORE = 11


class LlamaCpp(Engine[LlamaCppParameters]):
    """Text completion with llama.cpp."""

    name = "llama_cpp"
    task = "completion"
    product = "llama.cpp"
    parameters_model = LlamaCppParameters
    roles = ROLES
    workload_parameters = ("context", "ignore_eos", "log_jsonl", "seed", "temperature")
    cache_types = CACHE_TYPE_PARAMETERS
    uses_prompt = True
    uses_adapters = True
    shows_text = True
    guard_task = "kl_divergence"

    def for_version(self, tool: Tool, parameters: LlamaCppParameters) -> LlamaCppParameters:
        """Decide flash attention: on, in the classic version off."""
        return programs.for_version(tool, parameters)

    def resolve_defaults(
        self,
        parameters: LlamaCppParameters,
        facts: BoardFacts,
        model: ModelIdentity,
        text_bytes: int | None = None,
    ) -> Resolved[LlamaCppParameters]:
        """Use one thread for each core; warm-up and repacking only if the weights fit."""

        def need(changed: LlamaCppParameters, of: ModelIdentity) -> MemoryNeed:
            return self.memory(changed, of, text_bytes)

        return resolve_defaults(parameters, facts, model, need)

    def memory(
        self,
        parameters: LlamaCppParameters,
        model: ModelIdentity,
        text_bytes: int | None = None,
    ) -> MemoryNeed:
        """Return the memory: mapped and repacked weights, KV cache, used part of compute buffers.

        Locked weights are not dropped, so all of them count.
        """
        short = text_bytes is not None and not parameters.mlock
        prompt_tokens = _prompt_tokens(text_bytes or 0) if short else None
        return memory_need(
            parameters,
            model,
            context=parameters.context,
            prompt_tokens=prompt_tokens,
            locked=parameters.mlock,
        )

    def token_counts(self, parameters: LlamaCppParameters, text_bytes: int) -> TokenCounts:
        """Count the prompt, whose pass gives the first token, and a pass for each further token."""
        warm_up = parameters.warmup is not False
        return TokenCounts(
            1, _prompt_tokens(text_bytes), parameters.tokens - 1 + warm_up, int(warm_up)
        )

    def tool(self, available: Collection[str], *, offered: Collection[str]) -> Tool:
        """Return ``llama-completion`` if the version has it; the newer ``llama-cli`` only chats."""
        return programs.choose_completion(available, offered)

    def command(self, tool: Tool, parameters: LlamaCppParameters, inputs: Inputs) -> list[str]:
        """Pass the prompt's bytes unchanged: no escapes, no chat template, no echo."""
        return programs.complete(tool, parameters, inputs)

    def progress(self, seen: Seen, parameters: LlamaCppParameters) -> ProgramProgress:
        """Count each piece of stdout as a token; `generate:` marks a ready model and context.

        With ``log_jsonl``, each line after the log before the prompt counts as a token, also
        warnings. The first line is not a token, so there is no rate.
        """
        if parameters.log_jsonl:
            done = max(0, seen.stdout.lines - _LINES_BEFORE)
            before = PROMPT if seen.stdout.lines == _LINES_BEFORE else LOADING
            counted = seen.stdout.model_copy(update={"first_ns": None})
            return generated(counted, done, parameters.tokens, before)
        before = PROMPT if READY in seen.stderr_end else LOADING
        return generated(seen.stdout, seen.stdout.pieces, parameters.tokens, before)

    def effective(self, parameters: LlamaCppParameters, text_bytes: int) -> LlamaCppParameters:
        """Limit the batches to the prompt, whose length in tokens is known within a factor of 2."""
        batch = min(parameters.batch, 2 * _prompt_tokens(text_bytes))
        return parameters.model_copy(
            update={"batch": batch, "ubatch": min(parameters.ubatch, batch)}
        )

    def tunable(
        self, facts: BoardFacts, objectives: Collection[str]
    ) -> Mapping[str, Sequence[Any]]:
        """Return the built-in space of the parameters that this program has."""
        return built_in_space(self.parameters_model.model_fields, facts, objectives)

    def answer(self, raw: RawOutput) -> bytes | None:
        """Return the text, the same for both formats of output."""
        return as_text(raw).stdout

    def locks_memory(self, parameters: LlamaCppParameters) -> bool:
        """Return True with ``--mlock``."""
        return parameters.mlock

    def diagnose(self, job: JobStatus, raw: RawOutput) -> LabctlError | None:
        """Return the error from llama.cpp's last output and the job's end.

        IntegrityError if its last output was lost; the trial is then retried.
        """
        raw = as_text(raw)
        failure = programs.diagnose(job, raw)
        if failure is None and timing.is_cut(raw):
            return programs.lost(raw, "all of its output")
        return failure

    def parse(self, raw: RawOutput, parameters: LlamaCppParameters) -> TimingRecord:
        """Parse performance lines and the timeline of stdout."""
        return timing.parse(raw, parameters)

    def checks(
        self, timing_record: TimingRecord, parameters: LlamaCppParameters
    ) -> tuple[Check, ...]:
        """Check the number of tokens, the arrivals seen, and both clocks against each other."""
        return timing.checks(timing_record, parameters)


def _prompt_tokens(text_bytes: int) -> int:
    return 1 + text_bytes // TEXT_BYTES_PER_TOKEN
