"""llama-server: the HTTP server of llama.cpp.

``GET /health`` answers 503 while the model loads, then 200; ``POST /completion`` continues a text
and reports its times (``tools/server/README.md``). ``/v1/models`` and each answer contain the
model's ``--alias``.
"""

from collections.abc import Collection
from typing import Literal, TypeVar

from pydantic import ConfigDict, Field

from labctl.config.printed import FailFastModel, Milliseconds, first_problem
from labctl.engines.base import Inputs, MemoryNeed, RawOutput, Resolved, Roles, Tool
from labctl.engines.llama_cpp import programs
from labctl.engines.llama_cpp.parameters import (
    CACHE_TYPE_PARAMETERS,
    WITH_DRAFT,
    LlamaServerParameters,
    memory_need,
    resolve_defaults,
)
from labctl.engines.server import (
    Answer,
    Endpoint,
    Question,
    Reply,
    ServerEngine,
    ServerIdentity,
)
from labctl.errors import ConfigError, LabctlError, OutputNotUnderstood, ProgramFailed
from labctl.records.board import BoardFacts
from labctl.records.timing import StopReason
from labctl.records.trial import DraftedModel, JobStatus, ModelIdentity

M = TypeVar("M", bound=FailFastModel)

PROGRAM = "llama-server"
_STOPPED: dict[str, StopReason] = {"limit": "limit", "eos": "end-of-generation"}


class _Timings(FailFastModel):
    model_config = ConfigDict(extra="ignore", strict=True, defer_build=True, allow_inf_nan=False)

    prompt_ms: Milliseconds
    predicted_ms: Milliseconds
    draft_n: int | None = Field(None, ge=0)
    draft_n_accepted: int | None = Field(None, ge=0)


class _Completion(FailFastModel):
    """The fields of an answer that labctl reads."""

    model_config = ConfigDict(extra="ignore", strict=True, defer_build=True)

    model: str
    content: str
    tokens_predicted: int = Field(ge=0)
    tokens_evaluated: int = Field(ge=0)
    stop_type: Literal["limit", "eos"]
    truncated: Literal[False]
    timings: _Timings


class _Properties(FailFastModel):
    """The fields of ``GET /props`` that labctl reads."""

    model_config = ConfigDict(extra="ignore", strict=True, defer_build=True)

    build_info: str | None = None
    chat_template: str | None = None


class _Model(FailFastModel):
    model_config = ConfigDict(extra="ignore", strict=True, defer_build=True)

    id: str


class _Models(FailFastModel):
    """Models that the server offers."""

    model_config = ConfigDict(extra="ignore", strict=True, defer_build=True)

    data: list[_Model]


class LlamaServer(ServerEngine[LlamaServerParameters]):
    """Completion of many texts by one server, which loads the model once."""

    name = "llama_cpp"
    task = "serve"
    product = "llama.cpp"
    parameters_model = LlamaServerParameters
    roles = Roles(threads="threads", warm_up="warmup", batch="ubatch")
    workload_parameters = ("context",)
    cache_types = CACHE_TYPE_PARAMETERS
    uses_adapters = True

    def for_version(self, tool: Tool, parameters: LlamaServerParameters) -> LlamaServerParameters:
        """Decide flash attention (on, in the classic version off) and the draft's length."""
        decided = programs.for_version(tool, parameters)
        if decided.speculation != WITH_DRAFT:
            return decided
        most = 3 if decided.draft_max is None else decided.draft_max
        return decided.model_copy(update={"draft_max": most, "draft_min": decided.draft_min or 0})

    def resolve_defaults(
        self,
        parameters: LlamaServerParameters,
        facts: BoardFacts,
        model: ModelIdentity,
        text_bytes: int | None = None,  # noqa: ARG002 - questions have any length
    ) -> Resolved[LlamaServerParameters]:
        """Use one thread for each core; warm-up and repacking only if the weights fit."""
        return resolve_defaults(parameters, facts, model, self.memory)

    def memory(
        self,
        parameters: LlamaServerParameters,
        model: ModelIdentity,
        text_bytes: int | None = None,  # noqa: ARG002 - questions have any length
    ) -> MemoryNeed:
        """Return weights, the caches of all questions, and compute buffers; also of the draft."""
        context = parameters.context * parameters.parallel
        need = memory_need(parameters, model, context=context)
        if not isinstance(model, DraftedModel):
            return need
        # Its cache has the default types.
        usual = {"cache_type_k": "f16", "cache_type_v": "f16"}
        draft = parameters.model_copy(update=usual)
        return need.beside(memory_need(draft, model.draft, context=context))

    def tool(self, available: Collection[str], *, offered: Collection[str]) -> Tool:
        """Return ``llama-server``, with the flags of its version."""
        return programs.choose(PROGRAM, self.task, available, offered)

    def command(self, tool: Tool, parameters: LlamaServerParameters, inputs: Inputs) -> list[str]:
        """Listen only on the loopback; download and store nothing.

        An answer is the model's whole text, without a separate field for its reasoning. Both
        versions know ``--metrics``: counters for load tests.
        """
        if inputs.listen is None:
            raise ConfigError("llama-server got no port")
        argv = [
            *programs.start(tool, inputs),
            "--host",
            "127.0.0.1",
            "--port",
            str(inputs.listen.port),
        ]
        argv += ["--alias", inputs.listen.name, "-np", str(parameters.parallel)]
        argv += ["-c", str(parameters.context * parameters.parallel)]
        argv += ["--no-context-shift", "--metrics"]
        argv += programs.common_words(tool, parameters, inputs)
        argv += _speculation(tool, parameters, inputs.draft)
        if tool.profile == programs.NEW:
            argv += ["-fit", "off", "--offline", "--no-kv-unified"]
            argv += ["--no-cache-prompt", "--cache-ram", "0", "--reasoning-format", "none"]
        return argv

    def diagnose(self, job: JobStatus, raw: RawOutput) -> LabctlError | None:
        """Return the error from its last output and its end."""
        return programs.diagnose(job, raw)

    def is_ready(self, server: Endpoint) -> bool:
        """Return True if it is healthy and is the server that was started."""
        if server.get("/health").status != 200:
            return False
        names = [model.id for model in _read(_Models, server.get("/v1/models")).data]
        if server.name not in names:
            raise OutputNotUnderstood(f"another server answers at {server.address}: {names}")
        return True

    def identify(self, server: Endpoint) -> ServerIdentity:
        """Read its version and the model's chat template."""
        found = _read(_Properties, server.get("/props"))
        version = found.build_info
        return ServerIdentity(version and f"{PROGRAM} {version}", found.chat_template or None)

    def ask(self, server: Endpoint, question: Question) -> Answer:
        """Continue a text, without the cache of earlier questions."""
        reply = server.post(
            "/completion",
            {
                "prompt": question.prompt,
                "n_predict": question.most_tokens,
                "seed": question.seed,
                "temperature": question.temperature,
                "cache_prompt": False,
            },
        )
        if reply.status != 200:
            raise ProgramFailed(
                f"llama-server refused the question: {_reason(reply)}", details=reply.shown
            )
        completion = _read(_Completion, reply)
        if completion.model != server.name:
            raise OutputNotUnderstood(f"another server answered: {completion.model}")
        return Answer(
            text=completion.content,
            generated_tokens=completion.tokens_predicted,
            prompt_tokens=completion.tokens_evaluated,
            stop_reason=_STOPPED[completion.stop_type],
            prompt_eval_ns=round(completion.timings.prompt_ms * 1e6),
            eval_ns=round(completion.timings.predicted_ms * 1e6),
            drafted_tokens=completion.timings.draft_n,
            accepted_tokens=completion.timings.draft_n_accepted,
        )


def _speculation(tool: Tool, parameters: LlamaServerParameters, draft: str | None) -> list[str]:
    """Return the flags of speculative decoding. Raises ConfigError."""
    kind = parameters.speculation
    if (kind == WITH_DRAFT) != (draft is not None):
        raise ConfigError(
            f"parameters: speculation {WITH_DRAFT} and a draft go together;"
            f" {'the draft' if draft is None else 'the parameter'} is missing",
            hint="name a smaller model with the same vocabulary in the endpoint's draft",
        )
    if kind is None:
        return []
    if tool.profile != programs.NEW:
        raise ConfigError(
            "parameters: speculation: this version of llama-server decodes without",
            hint="leave it out, or use a version that has llama-completion",
        )
    words = ["--spec-type", kind]
    if draft is None:
        return words
    words += ["-md", draft, "--spec-draft-n-max", str(parameters.draft_max)]
    return [*words, "--spec-draft-n-min", str(parameters.draft_min)]


def _read(model: type[M], reply: Reply) -> M:
    try:
        return model.of_json(reply.body)
    except ValueError as error:
        raise OutputNotUnderstood(
            f"llama-server's answer: {first_problem(error)}",
            hint="labctl may not know this version",
            details=reply.shown,
        ) from error


def _reason(reply: Reply) -> str:
    """Return the text of its ``error``, if it has the usual form."""
    document = reply.json()
    error = document.get("error") if isinstance(document, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return str(message or f"status {reply.status}")
