"""How long a trial will take, from what is known of the board's hardware.

Only a board is predicted: what is emulated follows no physics of the target.
"""

from collections.abc import Mapping

from labctl.config.variants import Variant
from labctl.engines import MemoryNeed
from labctl.records import BoardFacts, Execution, ModelIdentity
from labctl.runs.plan import WARM_UP_PASS, PredictTrial
from labctl.runs.rates import Rates
from labctl.stats import Prediction, predict

#: Bytes of prompt text a token stands for, at least; a short prompt is one pass in any case.
PROMPT_BYTES_PER_TOKEN = 2


def predictions(
    runs: Mapping[str, tuple[ModelIdentity, MemoryNeed | None]],
    facts: BoardFacts,
    rates: Rates | None,
    prompt: str | None,
) -> dict[str, Prediction]:
    """The prediction for each variant, by slug; empty when there is nothing to predict from."""
    memory = facts.memory_available_bytes or facts.memory_total_bytes
    if facts.execution is not Execution.BOARD or rates is None or not memory:
        return {}
    dram, storage = rates.dram, rates.storage
    if dram is None or storage is None:
        return {}
    return {
        slug: predict(
            bytes_per_token=model.bytes_per_token,
            resident_bytes=need.total_bytes,
            memory_bytes=memory,
            dram_bytes_per_second=dram,
            storage_bytes_per_second=storage,
            compute_seconds_per_token=_compute_seconds(model, rates),
            prompt_tokens=1 + len((prompt or "").encode()) // PROMPT_BYTES_PER_TOKEN,
        )
        for slug, (model, need) in runs.items()
        if need is not None and model.bytes_per_token is not None
    }


def _compute_seconds(model: ModelIdentity, rates: Rates) -> float | None:
    """What the arithmetic of a token takes, where the quantisation's ceiling was measured."""
    weights = rates.weights.get(model.quantization or "")
    return model.parameters / weights if weights and model.parameters else None


def trial_predictor(predicted: Mapping[str, Prediction]) -> PredictTrial:
    """Seconds of one trial, or None where the variant has no prediction."""

    def seconds(variant: Variant, tokens: int | None, warm_up_pass: bool) -> float | None:
        prediction = predicted.get(variant.slug)
        if prediction is None or tokens is None:
            return None
        warm_up = warm_up_pass and variant.parameters.get(WARM_UP_PASS) is not False
        return prediction.seconds(tokens, warmup=warm_up)

    return seconds
