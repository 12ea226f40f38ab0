"""What a recipe may set for llama.cpp, and what labctl decides when it does not."""

from typing import Self

from pydantic import Field, model_validator

from labctl.engines.base import EngineParameters, Settled
from labctl.records import BoardFacts, ModelIdentity

#: llama.cpp takes this seed as "choose one".
_RANDOM_SEED = 2**32 - 1
#: llama.cpp raises smaller contexts to this by itself.
_LEAST_CONTEXT = 8
#: The prompt must leave this many positions of the context free, or llama.cpp refuses it.
_CONTEXT_MARGIN = 4

#: Weights of these types are copied to anonymous memory in an order that the CPU likes better.
#: Source: ``ggml/src/ggml-cpu/repack.cpp``, checked with the log's ``buffer size`` lines.
REPACKED_TYPES = frozenset({"Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL"})


class LlamaCppParameters(EngineParameters):
    """Parameters of a text completion."""

    tokens: int = Field(ge=1, le=1_000_000, description="tokens to generate (-n)")
    context: int = Field(
        2048,
        ge=_LEAST_CONTEXT,
        le=1 << 24,
        description="positions for prompt and generated tokens (-c); always passed, because newer"
        " versions take the model's whole context otherwise",
    )
    threads: int | None = Field(
        None, ge=1, le=512, description="CPU threads (-t); default: one for each core of the board"
    )
    seed: int = Field(1, ge=0, lt=_RANDOM_SEED, description="random seed (--seed)")
    temperature: float = Field(
        0.0,
        ge=0,
        le=10,
        description="sampling temperature (--temp); 0 = always the likeliest token",
    )
    ignore_eos: bool = Field(
        default=True,
        description="go on past the end of the text, so that exactly `tokens` are generated",
    )
    batch: int = Field(2048, ge=1, le=1 << 20, description="logical batch size (-b)")
    ubatch: int = Field(512, ge=1, le=1 << 20, description="physical batch size (-ub)")
    warmup: bool | None = Field(
        None,
        description="an extra pass over all weights before timing; default: yes, if they fit in"
        " the board's memory",
    )
    repack: bool | None = Field(
        None,
        description="let llama.cpp copy weights to a faster layout in memory that cannot be paged"
        " out; default: yes, if the copies fit in the board's memory",
    )

    @model_validator(mode="after")
    def _room_for_the_tokens(self) -> Self:
        if self.tokens + _CONTEXT_MARGIN > self.context:
            raise ValueError(
                f"context {self.context} has no room for {self.tokens} tokens and a prompt;"
                f" raise context above {self.tokens + _CONTEXT_MARGIN}"
            )
        return self


def settle(
    parameters: LlamaCppParameters, facts: BoardFacts, model: ModelIdentity
) -> Settled[LlamaCppParameters]:
    """Replace every ``None``; what cannot be decided stays with llama.cpp and is told."""
    decided: dict[str, object] = {}
    notes = []
    if parameters.threads is None:
        if facts.cores:
            decided["threads"] = facts.cores
        else:
            notes.append("the board does not tell its cores: llama.cpp chooses the threads")
    available = facts.memory_available_bytes
    copied = sum(mix.bytes for mix in model.tensors if mix.type in REPACKED_TYPES)
    if available is None and None in (parameters.warmup, parameters.repack):
        notes.append("the board does not tell its free memory: weights are taken to fit")
    if parameters.repack is None:
        fits = available is None or model.tensor_bytes + copied <= available
        decided["repack"] = fits
        if not fits:
            notes.append(f"{model.key}: no repacking, the copied weights would not fit in memory")
    if parameters.warmup is None:
        fits = available is None or model.tensor_bytes <= available
        decided["warmup"] = fits
        if not fits:
            notes.append(f"{model.key}: no warm-up pass, the weights do not fit in memory")
    return Settled(parameters.model_copy(update=decided), tuple(notes))
