"""Defaults of llama.cpp's parameters that labctl chooses if the recipe does not."""

from collections.abc import Callable
from typing import TypeVar

from labctl.engines.base import MemoryNeed, Resolved
from labctl.engines.llama_cpp.parameters import LlamaCppParameters, LlamaParameters, TimedParameters
from labctl.records import BoardFacts, ModelIdentity
from labctl.stats import UNSURE, near_border, surely_fits
from labctl.units import size

P = TypeVar("P", bound=LlamaParameters)


def resolve_defaults(
    parameters: P,
    facts: BoardFacts,
    model: ModelIdentity,
    need_of: Callable[[P, ModelIdentity], MemoryNeed],
) -> Resolved[P]:
    """Replace every ``None``; what cannot be decided stays with llama.cpp and is told.

    What is nearly too much counts as too much: the estimate may be wrong by as much.
    """
    decided: dict[str, object] = {}
    notes = []
    if parameters.threads is None:
        if facts.cores:
            decided["threads"] = facts.cores
        else:
            notes.append("the board does not report its cores: llama.cpp chooses the threads")
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
        "repack": "no repacking, the copied weights would not surely fit in memory",
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
    if isinstance(parameters, LlamaCppParameters) and parameters.mlock and available is not None:
        locked = need_of(parameters.model_copy(update=decided), model)
        if locked.total_bytes > available:
            notes.append(
                f"{model.key}: more is to be locked than the free memory: it may be killed"
            )
    return Resolved(parameters.model_copy(update=decided), tuple(notes))
