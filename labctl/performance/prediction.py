"""Predict the time of a trial from the known rates of the board's hardware.

Only a board is predicted: what is emulated follows no physics of the target.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from labctl.engines import MemoryNeed, Passes
from labctl.performance.rates import Rate, Rates
from labctl.records import BoardFacts, Execution, ModelIdentity, Workload
from labctl.stats import Prediction, experts_read, predict

#: Of engines that have no such parameter.
_USUAL_BATCH = 512


@dataclass(frozen=True)
class Work:
    """Work of a variant; ``None`` = its engine has no such parameter, or leaves it unset."""

    model: ModelIdentity
    need: MemoryNeed
    threads: int | None = None
    tokens: int | None = None
    batch: int = _USUAL_BATCH
    prompt_tokens: int = 1

    @classmethod
    def of(
        cls,
        model: ModelIdentity,
        need: MemoryNeed,
        workload: Workload,
        passes: Passes | None = None,
    ) -> "Work":
        """Of a resolved variant; ``passes``: of one run of it, where its engine can say."""
        return cls(
            model,
            need,
            workload.threads,
            workload.tokens,
            workload.batch or _USUAL_BATCH,
            max(1, passes.prompt_tokens if passes else 1),
        )

    @property
    def bytes_per_token(self) -> int:
        """Weights that a token needs; only a model of which that is known is any work."""
        assert self.model.bytes_per_token is not None
        return self.model.bytes_per_token

    @property
    def prompt_bytes(self) -> int:
        """Weights that a batch of the prompt needs: its tokens choose experts of their own."""
        experts, used = self.model.experts, self.model.experts_per_token
        if not experts or not used or experts == used or self.model.reused_bytes is None:
            return self.bytes_per_token
        idle = max(0, self.model.reused_bytes - self.bytes_per_token)  # of experts that one leaves
        others = min(self.batch, self.prompt_tokens) - 1
        return self.bytes_per_token + round(idle * experts_read(experts, used, others))

    def kv_bytes(self, positions: float) -> int:
        """Return the bytes of cache that a token after ``positions`` positions reads; 0 if
        unknown.
        """
        return round((self.need.kv_bytes_per_position or 0) * positions)

    def seconds(self, rate: Rate | None) -> float | None:
        """Return the time in s of one pass through its weights; None if the rate is unknown."""
        return self.bytes_per_token / rate.value if rate else None


def predictions(
    works: Mapping[str, Work], facts: BoardFacts, rates: Rates | None
) -> dict[str, Prediction]:
    """Return the prediction for each variant, by slug; variants without one are left out."""
    memory = facts.memory_available_bytes or facts.memory_total_bytes
    if facts.execution is not Execution.BOARD or rates is None or not memory:
        return {}
    found = {slug: _prediction(work, memory, rates) for slug, work in works.items()}
    return {slug: prediction for slug, prediction in found.items() if prediction is not None}


def _prediction(work: Work, memory: int, rates: Rates) -> Prediction | None:
    dram, quantization = rates.dram(work.threads), work.model.quantization or ""
    return predict(
        bytes_per_token=work.bytes_per_token,
        resident_bytes=work.need.resident_bytes,
        memory_bytes=memory,
        load_bytes=work.model.size_bytes,
        dram_bytes_per_second=dram.value if dram else None,
        storage_bytes_per_second=rates.storage.value if rates.storage else None,
        compute_seconds_per_token=work.seconds(rates.decode.get((quantization, work.threads))),
        compute_seconds_per_prompt_token=work.seconds(
            rates.prompt.get((quantization, work.threads))
        ),
        kv_bytes=work.kv_bytes(work.prompt_tokens + (work.tokens or 0) / 2),
        prompt_tokens=work.prompt_tokens,
        prompt_bytes=work.prompt_bytes,
        ubatch=work.batch,
    )


def tells_reading(prediction: Prediction, work: Work, rates: Rates | None) -> bool:
    """Return True if a prediction covers the time to read a text, and not only its bytes.

    A batch moves the weights once for all of its tokens: DRAM is nowhere near its bound.
    """
    key = (work.model.quantization or "", work.threads)
    return prediction.bound == "storage" or (rates is not None and key in rates.prompt)


def source_of(prediction: Prediction, work: Work, rates: Rates) -> str:
    """Source of the rate that a prediction uses."""
    rate = {
        "storage": rates.storage,
        "dram": rates.dram(work.threads),
        "compute": rates.decode.get((work.model.quantization or "", work.threads)),
    }[prediction.bound]
    assert rate is not None  # else it would be no bound
    return rate.source
