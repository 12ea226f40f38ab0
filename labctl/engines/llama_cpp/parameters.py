"""Parameters of llama.cpp in a recipe: labctl's defaults and the memory that they need.

The memory was checked with the ``buffer size`` lines of llama.cpp's log (``-lv 4``) of new and
classic versions with SmolLM2-135M: the key-value cache to the byte, the compute buffer within 4 %.
The total was checked in booted ARM64 Linux systems with little memory.
"""

from collections.abc import Callable
from typing import Annotated, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from labctl.engines.base import EngineParameters, MemoryNeed, Resolved, Roles
from labctl.errors import ConfigError
from labctl.records.board import BoardFacts
from labctl.records.trial import ModelIdentity
from labctl.stats.roofline import UNSURE, near_border, surely_fits
from labctl.units import size

#: llama.cpp treats this seed as "choose one".
_RANDOM_SEED = 2**32 - 1
#: llama.cpp increases smaller contexts to this by itself.
_LEAST_CONTEXT = 8
#: Positions of the context that the prompt must leave free; otherwise llama.cpp refuses it.
_CONTEXT_MARGIN = 4

_MOST_TOKENS = 1_000_000
_MOST_CONTEXT = 1 << 24

#: Types of the key-value cache -> bytes of 32 values.
CACHE_TYPES = {
    "f32": 128, "f16": 64, "bf16": 64, "q8_0": 34, "q4_0": 18, "q4_1": 20, "q5_0": 22, "q5_1": 24,
    "iq4_nl": 18,
}  # fmt: skip
CacheType = Annotated[
    Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"],
    BeforeValidator(lambda name: name.lower() if isinstance(name, str) else name),
]


#: Types of which a value is not a float: llama.cpp reads such values (V) only in flash attention.
_QUANTIZED = frozenset(CACHE_TYPES) - {"f32", "f16", "bf16"}


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
    mmap: bool = Field(
        default=True,
        description="map the model's file (-lm mmap); false reads it into memory that cannot be"
        " paged out (-lm none, --no-mmap)",
    )
    cache_type_k: CacheType = Field("f16", description="type of the cache's keys (-ctk)")
    cache_type_v: CacheType = Field(
        "f16",
        description="type of the cache's values (-ctv); a quantized one needs flash_attention",
    )
    flash_attention: bool | None = Field(
        None,
        description="flash attention (-fa); default: that of the version: on, in the classic"
        " version off",
    )
    cpu_strict: bool = Field(
        default=False,
        description="bind each thread to its own CPU (-C, --cpu-strict), of the CPUs that the"
        " program may use",
    )
    poll: int = Field(
        50, ge=0, le=100, description="how long a thread spins for work before it sleeps (--poll)"
    )
    prio: int = Field(
        0,
        ge=0,
        le=3,
        description="priority of the threads (--prio): 0 normal to 3 real time; above 0 needs root",
    )

    @model_validator(mode="after")
    def _values_that_can_be_read(self) -> Self:
        if self.cache_type_v in _QUANTIZED and not self.flash_attention:
            raise ValueError(
                f"cache_type_v {self.cache_type_v} needs flash attention; set flash_attention: true"
            )
        return self


class BatchThreads(LlamaParameters):
    """Parameters of the programs that may read a prompt with another number of threads."""

    threads_batch: int | None = Field(
        None, ge=1, le=512, description="CPU threads for prompts (-tb); default: `threads`"
    )


#: Roles of the parameters of a completion; other programs have some of them.
ROLES = Roles(threads="threads", tokens="tokens", warm_up="warmup", batch="ubatch")
#: Default types of keys and values: llama.cpp's own if a program has no such parameter.
CACHE_TYPE_PARAMETERS = {"cache_type_k": "f16", "cache_type_v": "f16"}


class TimedParameters(LlamaParameters):
    """Parameters common to the programs that measure time."""

    warmup: bool | None = Field(
        None,
        description="an extra pass over all weights before timing; default: yes, if they fit in"
        " the board's memory",
    )


class LlamaCppParameters(TimedParameters, BatchThreads):
    """Parameters of a text completion."""

    tokens: int = Field(ge=1, le=_MOST_TOKENS, description="tokens to generate (-n)")
    context: int = Field(
        2048,
        ge=_LEAST_CONTEXT,
        le=_MOST_CONTEXT,
        description=(
            "positions for prompt and generated tokens (-c); always passed,"
            " because newer versions otherwise use the model's whole context"
        ),
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
        " permits; the check `mlock` shows the result",
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
                f"context {self.context} is too small for {self.tokens} tokens and a prompt;"
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

    @model_validator(mode="after")
    def _something_to_measure(self) -> Self:
        if self.prompt_tokens == self.tokens == 0:
            raise ValueError("prompt_tokens and tokens are both 0: nothing to measure")
        return self

    @property
    def context(self) -> int:
        """Positions that the longer test needs."""
        return self.depth + max(self.prompt_tokens, self.tokens)


#: The kind of speculation that needs a draft model.
WITH_DRAFT = "draft-simple"
#: Kinds that need no model made for them; source: ``common/speculative.cpp``.
Speculation = Literal[
    "draft-simple", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"
]


class LlamaServerParameters(TimedParameters, BatchThreads):
    """Parameters of llama-server; each question brings its own settings."""

    context: int = Field(
        2048,
        ge=_LEAST_CONTEXT,
        le=_MOST_CONTEXT,
        description="positions for a question and its answer; -c is `parallel` times this number",
    )
    parallel: int = Field(
        1,
        ge=1,
        le=256,
        description="questions answered at once, each with its own context (-np); the others wait",
    )
    speculation: Speculation | None = Field(
        None,
        description="speculative decoding (--spec-type), newer versions only; draft-simple uses the"
        " endpoint's `draft`, the others the text so far",
    )
    draft_max: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="most tokens that the draft guesses (--spec-draft-n-max); 3",
    )
    draft_min: int | None = Field(
        None, ge=0, le=1024, description="fewest tokens worth a check (--spec-draft-n-min); 0"
    )

    @model_validator(mode="after")
    def _draft_that_is_used(self) -> Self:
        given = [name for name in ("draft_max", "draft_min") if getattr(self, name) is not None]
        if given and self.speculation != WITH_DRAFT:
            raise ValueError(f"{given[0]} goes with speculation: {WITH_DRAFT}")
        most = 3 if self.draft_max is None else self.draft_max
        if (self.draft_min or 0) > most:
            raise ValueError(f"draft_min {self.draft_min} is above draft_max, {most}")
        return self


class ChunkParameters(BatchThreads):
    """Parameters of programs that read a text in chunks."""

    context: int = Field(
        512, ge=_LEAST_CONTEXT, le=_MOST_CONTEXT, description="tokens of each chunk (-c)"
    )

    @property
    def sequences(self) -> int:
        """Number of chunks that the program reads in parallel; the batch determines it."""
        return max(1, self.batch // self.context)


class LlamaPerplexityParameters(ChunkParameters):
    """Parameters of llama-perplexity."""

    chunks: int | None = Field(
        None, ge=1, le=1_000_000, description="chunks to read at most (--chunks); default: all"
    )


class LlamaKlDivergenceParameters(ChunkParameters):
    """Parameters of llama-perplexity with the logits of another model."""

    context: int = Field(
        512,
        ge=_LEAST_CONTEXT,
        le=_MOST_CONTEXT,
        description="tokens of each chunk (-c), as used for the logits",
    )


P = TypeVar("P", bound=LlamaParameters)


def resolve_defaults(
    parameters: P,
    facts: BoardFacts,
    model: ModelIdentity,
    need_of: Callable[[P, ModelIdentity], MemoryNeed],
) -> Resolved[P]:
    """Replace every ``None``; report values that labctl cannot choose and leaves to llama.cpp.

    A need close to the limit counts as too much, since it is an estimate. Raises ConfigError for
    what the board or the model cannot have.
    """
    _require_possible(parameters, facts, model)
    decided: dict[str, object] = {}
    notes = []
    if parameters.threads is None:
        if facts.cores:
            decided["threads"] = facts.cores
        else:
            notes.append("the board does not report its cores: llama.cpp chooses the threads")
    if isinstance(parameters, BatchThreads) and parameters.threads_batch is None:
        decided["threads_batch"] = decided.get("threads", parameters.threads)
    if parameters.flash_attention is None and _without_flash_attention(model):
        decided["flash_attention"] = False
    available = facts.memory_available_bytes
    warmup_open = isinstance(parameters, TimedParameters) and parameters.warmup is None
    if available is None and (warmup_open or parameters.repack is None):
        notes.append("the board does not report its free memory: assuming that the weights fit")
    if parameters.repack is None:
        with_copies = need_of(parameters.model_copy(update={"repack": True}), model)
        decided["repack"] = available is None or surely_fits(with_copies.total_bytes, available)
    need = need_of(parameters.model_copy(update=decided), model).resident_bytes
    if warmup_open:
        decided["warmup"] = available is None or surely_fits(need, available)
    reasons = {
        "repack": "no repacking, the copied weights might not fit in memory",
        "warmup": "no warm-up pass, the weights do not fit in memory",
    }
    notable = [reason for key, reason in reasons.items() if decided.get(key) is False]
    if available is not None and near_border(need, available):
        safe = "".join(f"; {reason.partition(',')[0]}" for reason in notable)
        note = (
            f"needs {size(need)} of the {size(available)} that are available, within {UNSURE:.0%}"
            f" of what fits: its weights may be read again for every token{safe}"
        )
        notable = [note]
    notes += [f"{model.key}: {note}" for note in notable]
    resolved = parameters.model_copy(update=decided)
    if _locks_too_much(resolved, available, need_of(resolved, model)):
        notes.append(
            f"{model.key}: the memory to lock exceeds the free memory: the program may be killed"
        )
    return Resolved(resolved, tuple(notes))


def _require_possible(parameters: LlamaParameters, facts: BoardFacts, model: ModelIdentity) -> None:
    if parameters.flash_attention and _without_flash_attention(model):
        raise ConfigError(
            f"{model.key}: llama.cpp has no flash attention for {model.architecture}",
            hint="leave out flash_attention",
        )
    if parameters.prio > 0 and facts.may_raise_priority is False:
        raise ConfigError(
            f"parameters: prio {parameters.prio}: programs of this board may not raise their"
            " priority",
            hint="leave it out, or use a board whose shell is root",
        )
    most = max(parameters.threads or 1, getattr(parameters, "threads_batch", None) or 1)
    if parameters.cpu_strict and facts.cores and most > facts.cores:
        raise ConfigError(
            f"parameters: cpu_strict: {most} threads on {facts.cores} CPUs: two that spin on one"
            " CPU hardly come to an end",
            hint=f"use at most {facts.cores} threads",
        )


def _without_flash_attention(model: ModelIdentity) -> bool:
    """Return True if llama.cpp forces flash attention off (``llama_init_from_model``)."""
    return model.architecture == "grok"


def _locks_too_much(parameters: LlamaParameters, available: int | None, need: MemoryNeed) -> bool:
    locks = isinstance(parameters, LlamaCppParameters) and parameters.mlock
    return locks and available is not None and need.total_bytes > available


#: Weights of these types are copied to anonymous memory, in an order that is faster for the CPU.
#: Source: ``ggml/src/ggml-cpu/repack.cpp``, checked with the log's ``buffer size`` lines.
REPACKED_TYPES = frozenset({"Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4", "Q1_0"})
_F32_BYTES = 4
#: Anonymous memory besides the buffers in the log, and the addition for each token of the
#: vocabulary (text, look-up table, merges). Measured in a booted ARM64 Linux, without cache and
#: compute buffers: 3.9 MB for 401 tokens, 35.1 MB for 49,152 (SmolLM2-135M).
_PROGRAM_BYTES = 3_800_000
_VOCABULARY_ENTRY_BYTES = 367
#: Hidden states in the buffer at its peak, beside the logits: 2 or 3 with SmolLM2-135M, the same
#: for any context.
_HIDDEN_STATES = 3
#: The same within a layer: 5.7 (new), 4.7 (classic) with SmolLM2-135M; with flash attention 11.2.
_LAYER_STATES = 6
_FLASH_LAYER_STATES = 12


def repacked_bytes(model: ModelIdentity) -> int:
    """Return the bytes of the copies made by repacking: multiplied tensors, not look-up tables."""
    copied = sum(mix.bytes for mix in model.tensors if mix.type in REPACKED_TYPES)
    return copied - sum(mix.bytes for mix in model.cold_tensors if mix.type in REPACKED_TYPES)


def memory_need(
    parameters: LlamaParameters,
    model: ModelIdentity,
    *,
    context: int,
    locked: bool = False,
    prompt_tokens: int | None = None,
) -> MemoryNeed:
    """Return the memory of one run.

    ``repack`` counts unless it is off. Weights that are not mapped are read into the program's own
    memory, unchanged. ``locked`` weights stay in memory, even if they are never read. Keys and
    values are assumed to have the same width, as in nearly all models. A short prompt does not
    touch all pages of the compute buffers, and untouched pages use no memory; without
    ``prompt_tokens`` the batches are full.
    """
    if model.tensor_bytes is None or model.reused_bytes is None:
        raise ConfigError(f"the model {model.key!r} is not a GGUF file, which llama.cpp needs")
    cache = CACHE_TYPES[parameters.cache_type_k] + CACHE_TYPES[parameters.cache_type_v]
    share = cache / (2 * CACHE_TYPES["f16"])
    in_f16 = model.kv_bytes_per_position
    per_position = None if in_f16 is None else round(in_f16 * share)
    copied = 0 if parameters.repack is False else repacked_bytes(model)
    mapped = model.tensor_bytes if locked else model.reused_bytes
    return MemoryNeed(
        mapped_bytes=mapped if parameters.mmap else 0,
        repacked_bytes=copied if parameters.mmap else model.tensor_bytes,
        kv_bytes=None if per_position is None else per_position * context,
        compute_bytes=_compute_bytes(parameters, model, context, prompt_tokens),
        kv_bytes_per_position=per_position,
        adapter_bytes=sum(adapter.tensor_bytes for adapter in model.adapters),
        program_bytes=_PROGRAM_BYTES + _VOCABULARY_ENTRY_BYTES * (model.vocabulary or 0),
    )


def _compute_bytes(
    parameters: LlamaParameters, model: ModelIdentity, context: int, prompt_tokens: int | None
) -> int | None:
    """Return the bytes for one physical batch at its peak.

    For each token: logits and states; or, if that is more, the states of one layer and a row of the
    mask, without flash attention in 32 bits and beside a row of attention weights for each head.
    """
    if model.vocabulary is None or model.embedding_length is None:
        return None
    tokens = min(parameters.ubatch, parameters.batch, prompt_tokens or context, context)
    states = _HIDDEN_STATES * model.embedding_length
    if parameters.flash_attention is not False:
        layer = context // 2 + _FLASH_LAYER_STATES * model.embedding_length
    elif model.heads is None:
        return None
    else:
        layer = (model.heads + 1) * context + _LAYER_STATES * model.embedding_length
    return tokens * _F32_BYTES * max(model.vocabulary + states, layer)
