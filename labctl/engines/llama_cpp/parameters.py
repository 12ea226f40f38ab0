"""Parameters of llama.cpp that a recipe may set, and their defaults."""

from typing import Literal, Self

from pydantic import Field, model_validator

from labctl.engines.base import EngineParameters, Roles

#: llama.cpp takes this seed as "choose one".
_RANDOM_SEED = 2**32 - 1
#: llama.cpp raises smaller contexts to this by itself.
_LEAST_CONTEXT = 8
#: The prompt must leave this many positions of the context free, or llama.cpp refuses it.
_CONTEXT_MARGIN = 4

_MOST_TOKENS = 1_000_000
_MOST_CONTEXT = 1 << 24

#: Types of the key-value cache, with their bytes for 32 values.
CACHE_TYPES = {
    "f32": 128, "f16": 64, "bf16": 64, "q8_0": 34, "q4_0": 18, "q4_1": 20, "q5_0": 22, "q5_1": 24,
    "iq4_nl": 18,
}  # fmt: skip
CacheType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"]


class LlamaParameters(EngineParameters):
    """Parameters common to all programs of llama.cpp."""

    threads: int | None = Field(
        None, ge=1, le=512, description="CPU threads (-t); default: one for each core of the board"
    )
    batch: int = Field(2048, ge=1, le=1 << 20, description="logical batch size (-b)")
    ubatch: int = Field(512, ge=1, le=1 << 20, description="physical batch size (-ub)")
    repack: bool | None = Field(
        None,
        description="let llama.cpp copy weights to a faster layout in memory that cannot be paged"
        " out; default: yes, if the copies fit in the board's memory",
    )


#: What those of a completion mean; of the other programs, too, as far as they have them.
ROLES = Roles(threads="threads", tokens="tokens", warm_up="warmup", batch="ubatch")


class TimedParameters(LlamaParameters):
    """Parameters common to the programs that measure time."""

    warmup: bool | None = Field(
        None,
        description="an extra pass over all weights before timing; default: yes, if they fit in"
        " the board's memory",
    )


class LlamaCppParameters(TimedParameters):
    """Parameters of a text completion."""

    tokens: int = Field(ge=1, le=_MOST_TOKENS, description="tokens to generate (-n)")
    context: int = Field(
        2048,
        ge=_LEAST_CONTEXT,
        le=_MOST_CONTEXT,
        description="positions for prompt and generated tokens (-c); always passed, because newer"
        " versions take the model's whole context otherwise",
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
        description="continue past the end of the text, so that exactly `tokens` are generated",
    )
    mlock: bool = Field(
        default=False,
        description="lock the weights in memory (--mlock, -lm mmap+mlock) as far as the board"
        " permits; the check `mlock` tells whether they were",
    )
    log_jsonl: bool = Field(
        default=False,
        description="print JSON in which llama.cpp stamps each token itself (--log-jsonl, newer"
        " versions only); the check `clocks` compares these stamps with the agent's",
    )

    @model_validator(mode="after")
    def _room_for_the_tokens(self) -> Self:
        if self.tokens + _CONTEXT_MARGIN > self.context:
            raise ValueError(
                f"context {self.context} has no room for {self.tokens} tokens and a prompt;"
                f" raise context above {self.tokens + _CONTEXT_MARGIN}"
            )
        return self


class LlamaBenchParameters(TimedParameters):
    """Parameters of llama-bench."""

    prompt_tokens: int = Field(
        512,
        ge=0,
        le=_MOST_TOKENS,
        description="length of the prompt test, pp (-p); 0: no such test",
    )
    tokens: int = Field(
        128,
        ge=0,
        le=_MOST_TOKENS,
        description="length of the generation test, tg (-n); 0: no such test",
    )
    depth: int = Field(
        0,
        ge=0,
        le=_MOST_CONTEXT,
        description="positions of the context that are filled before the test (-d)",
    )
    repetitions: int = Field(
        5, ge=1, le=1000, description="repetitions of each test in one process (-r)"
    )
    cache_type_k: CacheType = Field("f16", description="type of the cache's keys (-ctk)")
    cache_type_v: CacheType = Field("f16", description="type of the cache's values (-ctv)")
    mmap: bool = Field(default=True, description="map the model's file instead of reading it")

    @model_validator(mode="after")
    def _something_to_measure(self) -> Self:
        if self.prompt_tokens == self.tokens == 0:
            raise ValueError("prompt_tokens and tokens are both 0: there is nothing to measure")
        return self

    @property
    def context(self) -> int:
        """Positions that the longer of the tests needs."""
        return self.depth + max(self.prompt_tokens, self.tokens)


class LlamaServerParameters(TimedParameters):
    """Parameters of llama-server; what a question asks for comes with the question."""

    context: int = Field(
        2048,
        ge=_LEAST_CONTEXT,
        le=_MOST_CONTEXT,
        description="positions for a question and its answer (-c)",
    )


class LlamaPerplexityParameters(LlamaParameters):
    """Parameters of llama-perplexity."""

    context: int = Field(
        512, ge=_LEAST_CONTEXT, le=_MOST_CONTEXT, description="tokens of each chunk (-c)"
    )
    chunks: int | None = Field(
        None, ge=1, le=1_000_000, description="chunks to read at most (--chunks); default: all"
    )

    @property
    def sequences(self) -> int:
        """Chunks that are read side by side, as the program decides it from the batch."""
        return max(1, self.batch // self.context)
