"""What a recipe may set for llama.cpp, and what labctl decides when it does not."""

from typing import Self

from pydantic import Field, model_validator

from labctl.engines.base import EngineParameters

#: llama.cpp takes this seed as "choose one".
_RANDOM_SEED = 2**32 - 1
#: llama.cpp raises smaller contexts to this by itself.
_LEAST_CONTEXT = 8
#: The prompt must leave this many positions of the context free, or llama.cpp refuses it.
_CONTEXT_MARGIN = 4


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
