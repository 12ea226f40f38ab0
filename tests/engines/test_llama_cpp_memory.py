"""The memory that is predicted, against the ``buffer size`` lines of llama.cpp's own log.

Recorded with SmolLM2-135M-Instruct Q4_1 and ``-lv 4`` on x86_64 (new) and emulated (classic).
"""

import pytest

from labctl.engines.llama_cpp.bench import LlamaBench
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.records import ModelIdentity, TensorMix

MIB = 1 << 20
MODEL = ModelIdentity(
    key="smol",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b" * 64,
    size_bytes=98_362_432,
    architecture="llama",
    quantization="Q4_1",
    parameters=134_515_008,
    bits_per_weight=5.74,
    tensor_bytes=96_577_920,
    bytes_per_token=96_577_920,
    kv_bytes_per_position=23_040,
    context_length=8192,
    embedding_length=576,
    vocabulary=49_152,
    tensors=(TensorMix(type="Q4_1", count=1, bytes=66_000_000),
             TensorMix(type="Q8_0", count=1, bytes=30_000_000)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("context", "ubatch", "batch", "kv_mib", "compute_mib"),
    [
        (512, 512, 2048, 11.25, 98.25),
        (2048, 512, 2048, 45.0, 102.51),
        (2048, 64, 2048, 45.0, 12.81),
        (512, 512, 128, 11.25, 24.56),
    ],
)
def test_the_need_is_what_the_log_says(
    context: int, ubatch: int, batch: int, kv_mib: float, compute_mib: float
) -> None:
    engine = LlamaCpp()
    asked = {"tokens": 4, "context": context, "ubatch": ubatch, "batch": batch, "repack": False}
    need = engine.memory(engine.parameters(asked), MODEL)
    assert need.kv_bytes == kv_mib * MIB
    assert need.compute_bytes == pytest.approx(compute_mib * MIB, rel=0.02)
    assert need.repacked_bytes == 0
    assert need.mapped_bytes == MODEL.tensor_bytes


def test_copies_are_counted_unless_they_are_off_and_the_unknown_is_not_nought() -> None:
    engine = LlamaCpp()
    parameters = engine.parameters({"tokens": 4})
    assert engine.memory(parameters, MODEL).repacked_bytes == 30_000_000
    silent = MODEL.model_copy(update={"vocabulary": None, "kv_bytes_per_position": None})
    need = engine.memory(parameters, silent)
    assert need.kv_bytes is None
    assert need.compute_bytes is None


def test_a_quantised_cache_is_read_as_small_as_it_is_kept() -> None:
    engine = LlamaBench()
    parameters = engine.parameters({"cache_type_k": "q8_0", "cache_type_v": "f16", "repack": False})
    need = engine.memory(parameters, MODEL)
    assert need.kv_bytes_per_position == round(23_040 * (34 + 64) / 128)
    assert need.kv_bytes == need.kv_bytes_per_position * parameters.context


@pytest.mark.parametrize("repack", [True, False])
def test_weights_that_are_read_and_not_mapped_cannot_be_dropped(repack: bool) -> None:
    engine = LlamaBench()
    need = engine.memory(engine.parameters({"mmap": False, "repack": repack}), MODEL)
    assert MODEL.tensor_bytes is not None
    assert need.mapped_bytes == 0
    assert need.anonymous_bytes > MODEL.tensor_bytes
