"""The llama.cpp engine."""

from collections.abc import Collection

from pydantic import JsonValue

from labctl.engines.base import Engine, MemoryNeed, RawOutput, Settled, Tool
from labctl.engines.llama_cpp import failures, programs, timing
from labctl.engines.llama_cpp.memory import memory_need
from labctl.engines.llama_cpp.parameters import LlamaCppParameters
from labctl.engines.llama_cpp.settling import settle
from labctl.errors import LabctlError
from labctl.records import BoardFacts, Check, JobStatus, ModelIdentity, TimingRecord


class LlamaCpp(Engine[LlamaCppParameters]):
    """Text completion with llama.cpp."""

    name = "llama_cpp"
    product = "llama.cpp"
    intents = programs.INTENTS
    parameters_model = LlamaCppParameters

    def settle(
        self, parameters: LlamaCppParameters, facts: BoardFacts, model: ModelIdentity
    ) -> Settled[LlamaCppParameters]:
        """One thread for each core; warm-up and repacking only where the weights fit."""
        return settle(parameters, facts, model)

    def memory(self, parameters: LlamaCppParameters, model: ModelIdentity) -> MemoryNeed:
        """Mapped and repacked weights, key-value cache, compute buffer."""
        return memory_need(parameters, model)

    def wanted_tools(self, intent: str) -> tuple[str, ...]:
        """``llama-completion``, before build 7348 ``llama-cli``."""
        return programs.wanted_tools(intent)

    def tool(self, intent: str, available: Collection[str], *, offered: Collection[str]) -> Tool:
        """``llama-completion`` where the version has it; its ``llama-cli`` only chats."""
        return programs.choose(intent, available, offered)

    def command(
        self,
        tool: Tool,
        parameters: LlamaCppParameters,
        *,
        program: str,
        model: str,
        prompt: str,
    ) -> list[str]:
        """The prompt's bytes arrive as they are: no escapes, no chat template, no echo."""
        return programs.command(tool, parameters, program=program, model=model, prompt=prompt)

    def conditions(self, tool: Tool, parameters: LlamaCppParameters) -> dict[str, JsonValue]:
        """Program and every parameter."""
        return {"engine": self.name, "tool": tool.name, **parameters.model_dump(mode="json")}

    def diagnose(self, job: JobStatus, raw: RawOutput) -> LabctlError | None:
        """What llama.cpp's last words and the job's end mean."""
        return failures.diagnose(job, raw)

    def parse(self, raw: RawOutput, parameters: LlamaCppParameters) -> TimingRecord:
        """Performance lines and the timeline of stdout."""
        return timing.parse(raw, parameters)

    def checks(
        self, timing_record: TimingRecord, parameters: LlamaCppParameters
    ) -> tuple[Check, ...]:
        """Tokens asked for and made, arrivals seen, and both clocks against each other."""
        return timing.checks(timing_record, parameters)
