"""Memory of llama.cpp on a board, from the model's header and the parameters.

Checked with the ``buffer size`` lines of llama.cpp's log (``-lv 4``) of new and classic versions
with SmolLM2-135M: the key-value cache to the byte, the compute buffer within 2 %; and the whole
need in booted ARM64 Linuxes of little memory.
"""

from labctl.engines.base import MemoryNeed
from labctl.engines.llama_cpp.parameters import CACHE_TYPES, LlamaParameters
from labctl.errors import ConfigError
from labctl.records import ModelIdentity

#: Weights of these types are copied to anonymous memory in an order that the CPU likes better.
#: Source: ``ggml/src/ggml-cpu/repack.cpp``, checked with the log's ``buffer size`` lines.
REPACKED_TYPES = frozenset({"Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4", "Q1_0"})
_F32_BYTES = 4
#: Anonymous memory besides the buffers that its log names, and more for each token that it knows
#: (text, look-up table, merges). Measured in a booted ARM64 Linux: 3.9 MB with a model of 401
#: tokens, 35.1 MB with SmolLM2-135M of 49,152; less cache and compute buffers.
_PROGRAM_BYTES = 3_800_000
_VOCABULARY_ENTRY_BYTES = 367
#: Hidden states that are alive beside the logits when the buffer is at its fullest.
_HIDDEN_STATES = 2


def repacked_bytes(model: ModelIdentity) -> int:
    """Return the bytes of the copies that repacking makes: of multiplied tensors, not of look-up
    tables.
    """
    copied = sum(mix.bytes for mix in model.tensors if mix.type in REPACKED_TYPES)
    return copied - sum(mix.bytes for mix in model.cold_tensors if mix.type in REPACKED_TYPES)


def memory_need(
    parameters: LlamaParameters,
    model: ModelIdentity,
    *,
    context: int,
    cache: tuple[str, str] = ("f16", "f16"),
    mapped: bool = True,
    locked: bool = False,
    prompt_tokens: int | None = None,
) -> MemoryNeed:
    """Return the memory of one run. ``repack`` counts unless it is off; ``cache``: types of keys,
    values.

    Weights that are not ``mapped`` are read into memory of the program's own, each in its order;
    those that are ``locked`` stay there, even if nothing reads them. Keys and values are taken to
    be of one width, as in nearly all models. The pages of compute buffers that a short prompt does
    not touch take no memory; without ``prompt_tokens`` the batches are full.
    """
    if model.tensor_bytes is None or model.reused_bytes is None:
        raise ConfigError(f"the model {model.key!r} is not GGUF, which llama.cpp needs")
    share = sum(CACHE_TYPES[kind] for kind in cache) / (2 * CACHE_TYPES["f16"])
    in_f16 = model.kv_bytes_per_position
    per_position = None if in_f16 is None else round(in_f16 * share)
    copied = 0 if parameters.repack is False else repacked_bytes(model)
    return MemoryNeed(
        mapped_bytes=(model.tensor_bytes if locked else model.reused_bytes) if mapped else 0,
        repacked_bytes=copied if mapped else model.tensor_bytes,
        kv_bytes=None if per_position is None else per_position * context,
        compute_bytes=_compute_bytes(parameters, model, context, prompt_tokens),
        kv_bytes_per_position=per_position,
        program_bytes=_PROGRAM_BYTES + _VOCABULARY_ENTRY_BYTES * (model.vocabulary or 0),
    )


def _compute_bytes(
    parameters: LlamaParameters, model: ModelIdentity, context: int, prompt_tokens: int | None
) -> int | None:
    """Return the graph of one physical batch: each of its tokens has logits, states, and a mask
    row.
    """
    if model.vocabulary is None or model.embedding_length is None:
        return None
    tokens = min(parameters.ubatch, parameters.batch, prompt_tokens or context, context)
    states = _HIDDEN_STATES * model.embedding_length
    return tokens * _F32_BYTES * (model.vocabulary + states + context)
