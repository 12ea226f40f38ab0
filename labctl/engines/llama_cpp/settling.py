"""What labctl decides for llama.cpp where the recipe does not."""

from collections.abc import Callable
from typing import TypeVar

from labctl.engines.base import MemoryNeed, Settled
from labctl.engines.llama_cpp.parameters import LlamaCppParameters, LlamaParameters, TimedParameters
from labctl.records import BoardFacts, ModelIdentity

P = TypeVar("P", bound=LlamaParameters)


def settle(
    parameters: P,
    facts: BoardFacts,
    model: ModelIdentity,
    need_of: Callable[[P, ModelIdentity], MemoryNeed],
) -> Settled[P]:
    """Replace every ``None``; what cannot be decided stays with llama.cpp and is told."""
    decided: dict[str, object] = {}
    notes = []
    if parameters.threads is None:
        if facts.cores:
            decided["threads"] = facts.cores
        else:
            notes.append("the board does not tell its cores: llama.cpp chooses the threads")
    available = facts.memory_available_bytes
    warmup_open = isinstance(parameters, TimedParameters) and parameters.warmup is None
    if available is None and (warmup_open or parameters.repack is None):
        notes.append("the board does not tell its free memory: weights are taken to fit")
    if parameters.repack is None:
        with_copies = need_of(parameters.model_copy(update={"repack": True}), model)
        fits = available is None or with_copies.total_bytes <= available
        decided["repack"] = fits
        if not fits:
            notes.append(f"{model.key}: no repacking, the copied weights would not fit in memory")
    if warmup_open:
        need = need_of(parameters.model_copy(update={"repack": False}), model)
        fits = available is None or need.total_bytes <= available
        decided["warmup"] = fits
        if not fits:
            notes.append(f"{model.key}: no warm-up pass, the weights do not fit in memory")
    if isinstance(parameters, LlamaCppParameters) and parameters.mlock and available is not None:
        need = need_of(parameters.model_copy(update=decided), model)
        if need.total_bytes > available:
            notes.append(
                f"{model.key}: more is to be locked than the free memory: it may be killed"
            )
    return Settled(parameters.model_copy(update=decided), tuple(notes))
