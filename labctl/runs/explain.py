"""Why a number is what it is: which bound holds, and how near to it the trial came."""

from dataclasses import dataclass

from labctl.engines import MemoryNeed
from labctl.records import (
    BoardFacts,
    Execution,
    ModelIdentity,
    TimingRecord,
    TrialBound,
    TrialEvidence,
)
from labctl.runs.rates import Rates
from labctl.units import size

#: A trial that is slower than this share of a bound is not held by it.
NEAR = 0.5
#: Re-reading half of the weights for each token already makes storage the slowest part.
_REREADS = 0.5


@dataclass(frozen=True)
class Ground:
    """What a number is held against: a model in a board's memory, and the board's rates."""

    model: ModelIdentity
    need: MemoryNeed
    facts: BoardFacts
    rates: Rates

    @property
    def bytes_per_token(self) -> int:
        """What each token needs; only a model that is GGUF, of which it is known, has a ground."""
        assert self.model.bytes_per_token is not None
        return self.model.bytes_per_token


def explain(
    timing: TimingRecord | None, ground: Ground, evidence: TrialEvidence | None
) -> TrialBound | None:
    """The bound of one trial's tokens, and one sentence about it.

    None for what did not run on a board, generated nothing, or has nothing to be held against.
    """
    model = ground.model
    if ground.facts.execution is not Execution.BOARD:
        return None
    if timing is None or not timing.mean_ns:
        return None
    seconds = timing.mean_ns / 1e9
    positions = (timing.prompt_tokens or 0) + (timing.generated_tokens or 0) / 2
    bytes_needed = ground.bytes_per_token + round((model.kv_bytes_per_position or 0) * positions)
    read = evidence.read_bytes_per_token if evidence else None
    bound = _storage(ground, seconds, read)
    if bound is None:
        bound = _memory(ground, seconds, bytes_needed, read)
    if bound is not None and evidence and evidence.limited:
        text = f"{bound.sentence}; the board held its clock back, so it is slower than it can be"
        bound = bound.model_copy(update={"sentence": text})
    return bound


def _storage(ground: Ground, seconds: float, read: int | None) -> TrialBound | None:
    """What is seen to be read counts; only where nobody looked, what does not fit."""
    need, facts, rates = ground.need, ground.facts, ground.rates
    available = facts.memory_available_bytes or facts.memory_total_bytes
    if read is None:
        rereads = available is not None and need.total_bytes > available
        moved = ground.bytes_per_token
    else:
        rereads = read >= _REREADS * ground.bytes_per_token
        moved = read
    if not rereads or rates.storage is None:
        return None
    speed = moved / seconds
    share = speed / rates.storage
    enough = ""
    if available is not None and facts.memory_total_bytes is not None:
        taken = facts.memory_total_bytes - available
        enough = f"; with {size(need.total_bytes + taken)} of RAM it would not be storage-bound"
    if read is None:
        enough += " (the board does not count what is read: told from what fits in memory)"
    return TrialBound(
        kind="storage",
        share=share,
        bytes_per_token=ground.bytes_per_token,
        bytes_per_second=speed,
        ceiling_bytes_per_second=rates.storage,
        storage_bytes_per_token=read,
        sentence=f"storage-bound: every token re-reads {size(moved)} at {size(speed)}/s,"
        f" {share:.0%} of this board's {size(rates.storage)}/s ({rates.source}){enough}",
    )


def _memory(
    ground: Ground, seconds: float, bytes_needed: int, read: int | None
) -> TrialBound | None:
    model, rates, speed = ground.model, ground.rates, bytes_needed / seconds
    weights = rates.weights.get(model.quantization or "")
    compute = model.parameters / weights / seconds if weights and model.parameters else None
    dram = speed / rates.dram if rates.dram else None
    moves = f"every token moves {size(bytes_needed)} at {size(speed)}/s"
    if compute is not None and (dram is None or compute > dram):
        return TrialBound(
            kind="compute",
            share=compute,
            bytes_per_token=bytes_needed,
            bytes_per_second=speed,
            storage_bytes_per_token=read,
            sentence=f"compute-bound: {compute:.0%} of the rate at which this board goes through"
            f" {model.quantization} weights ({rates.source}); {moves}",
        )
    if dram is None or rates.dram is None:
        return None
    ceiling = f"{dram:.0%} of this board's {size(rates.dram)}/s ({rates.source})"
    held = dram >= NEAR
    why = "" if held else "; most likely arithmetic is, whose ceiling was not measured"
    return TrialBound(
        kind="dram" if held else None,
        share=dram,
        bytes_per_token=bytes_needed,
        bytes_per_second=speed,
        ceiling_bytes_per_second=rates.dram,
        storage_bytes_per_token=read,
        sentence=f"{'DRAM-bound' if held else 'not bound by DRAM'}: {moves}, {ceiling}{why}",
    )
