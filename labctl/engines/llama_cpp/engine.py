"""The text completion of llama.cpp."""

from collections.abc import Collection

from labctl.engines.base import (
    TEXT_BYTES_PER_TOKEN,
    Engine,
    Inputs,
    MemoryNeed,
    Passes,
    RawOutput,
    Settled,
    Tool,
)
from labctl.engines.headway import LOADING, PROMPT, Headway, Seen, generated
from labctl.engines.llama_cpp import failures, programs, timing
from labctl.engines.llama_cpp.memory import memory_need
from labctl.engines.llama_cpp.parameters import LlamaCppParameters
from labctl.engines.llama_cpp.settling import settle
from labctl.errors import LabctlError
from labctl.records import BoardFacts, Check, JobStatus, ModelIdentity, TimingRecord

#: The last line before the prompt is read, in all versions (``tools/completion/completion.cpp``).
_GENERATE = "generate: n_ctx = "


class LlamaCpp(Engine[LlamaCppParameters]):
    """Text completion with llama.cpp."""

    name = "llama_cpp"
    intent = "completion"
    product = "llama.cpp"
    parameters_model = LlamaCppParameters
    uses_prompt = True

    def settle(
        self, parameters: LlamaCppParameters, facts: BoardFacts, model: ModelIdentity
    ) -> Settled[LlamaCppParameters]:
        """One thread for each core; warm-up and repacking only where the weights fit."""
        return settle(parameters, facts, model, self.memory)

    def memory(self, parameters: LlamaCppParameters, model: ModelIdentity) -> MemoryNeed:
        """Mapped and repacked weights, key-value cache, compute buffer."""
        return memory_need(parameters, model, context=parameters.context)

    def passes(self, parameters: LlamaCppParameters, text_bytes: int) -> Passes:
        """The prompt, whose pass gives the first token, and a pass for each of the others."""
        warm_up = parameters.warmup is not False
        return Passes(1, 1 + text_bytes // TEXT_BYTES_PER_TOKEN, parameters.tokens - 1 + warm_up)

    def tool(self, available: Collection[str], *, offered: Collection[str]) -> Tool:
        """``llama-completion`` where the version has it; its ``llama-cli`` only chats."""
        return programs.choose_completion(available, offered)

    def command(self, tool: Tool, parameters: LlamaCppParameters, inputs: Inputs) -> list[str]:
        """The prompt's bytes arrive as they are: no escapes, no chat template, no echo."""
        return programs.complete(tool, parameters, inputs)

    def headway(self, seen: Seen, parameters: LlamaCppParameters) -> Headway:
        """Each piece of stdout is a token; it says `generate:` when model and context are ready."""
        before = PROMPT if _GENERATE in seen.stderr_end else LOADING
        return generated(seen.stdout, seen.stdout.pieces, parameters.tokens, before)

    def locks_memory(self, parameters: LlamaCppParameters) -> bool:
        """With ``--mlock``."""
        return parameters.mlock

    def diagnose(self, job: JobStatus, raw: RawOutput) -> LabctlError | None:
        """What llama.cpp's last words and the job's end mean.

        IntegrityError, after which a trial is begun again, where its last words were lost.
        """
        failure = failures.diagnose(job, raw)
        if failure is None and timing.is_cut(raw):
            return failures.lost(raw, "all of its output")
        return failure

    def parse(self, raw: RawOutput, parameters: LlamaCppParameters) -> TimingRecord:
        """Performance lines and the timeline of stdout."""
        return timing.parse(raw, parameters)

    def checks(
        self, timing_record: TimingRecord, parameters: LlamaCppParameters
    ) -> tuple[Check, ...]:
        """Tokens asked for and made, arrivals seen, and both clocks against each other."""
        return timing.checks(timing_record, parameters)
