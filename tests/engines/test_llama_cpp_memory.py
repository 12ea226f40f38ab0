"""The memory that is predicted, against the ``buffer size`` lines of llama.cpp's own log.

Recorded with SmolLM2-135M-Instruct Q4_1 and ``-lv 4`` on x86_64 (new) and emulated (classic).
"""

import pytest

from labctl.engines.llama_cpp.bench import LlamaBench
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.engines.llama_cpp.parameters import repacked_bytes
from labctl.engines.llama_cpp.perplexity import LlamaPerplexity
from labctl.records.board import BoardFacts, Execution
from labctl.records.trial import ModelIdentity, TensorMix

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
    heads=9,
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
        (8192, 512, 2048, 180.0, 98.25),
        (8192, 128, 2048, 180.0, 24.56),
        (65536, 512, 2048, 1440.0, 98.25),
    ],
)
def test_the_need_is_what_the_log_says(
    context: int, ubatch: int, batch: int, kv_mib: float, compute_mib: float
) -> None:
    engine = LlamaCpp()
    asked = {"tokens": 4, "context": context, "ubatch": ubatch, "batch": batch, "repack": False}
    need = engine.memory(engine.parameters(asked), MODEL)
    assert need.kv_bytes == kv_mib * MIB
    assert need.compute_bytes == pytest.approx(compute_mib * MIB, rel=0.035)
    assert need.repacked_bytes == 0
    assert need.mapped_bytes == MODEL.tensor_bytes


@pytest.mark.parametrize(
    ("context", "ubatch", "compute_mib"), [(131_072, 128, 35.13), (262_144, 64, 33.58)]
)
def test_with_flash_attention_only_the_mask_grows(
    context: int, ubatch: int, compute_mib: float
) -> None:
    engine = LlamaCpp()
    asked = {"tokens": 4, "context": context, "ubatch": ubatch, "flash_attention": True,
             "cache_type_k": "q4_0", "cache_type_v": "q4_0"}  # fmt: skip
    need = engine.memory(engine.parameters(asked), MODEL)
    assert need.compute_bytes == pytest.approx(compute_mib * MIB, rel=0.02)


@pytest.mark.parametrize(
    ("context", "ubatch", "new_mib", "classic_mib"),
    [
        (8192, 512, 166.38, 165.26),
        (8192, 128, 41.60, 41.31),
        (2048, 512, 99.38, 98.25),
        (4096, 512, 99.38, 98.25),
        (65536, 64, 160.80, 160.0),
    ],
)
def test_attention_weights_are_stored_without_flash_attention(
    context: int, ubatch: int, new_mib: float, classic_mib: float
) -> None:
    engine = LlamaCpp()
    asked = {"tokens": 4, "context": context, "ubatch": ubatch, "flash_attention": False}
    need = engine.memory(engine.parameters(asked), MODEL)
    assert need.compute_bytes == pytest.approx(new_mib * MIB, rel=0.035)
    assert need.compute_bytes >= classic_mib * MIB
    headless = MODEL.model_copy(update={"heads": None})
    assert engine.memory(engine.parameters(asked), headless).compute_bytes is None


def test_copies_are_counted_unless_they_are_off_and_the_unknown_is_not_nought() -> None:
    engine = LlamaCpp()
    parameters = engine.parameters({"tokens": 4})
    assert engine.memory(parameters, MODEL).repacked_bytes == 30_000_000
    silent = MODEL.model_copy(update={"vocabulary": None, "kv_bytes_per_position": None})
    need = engine.memory(parameters, silent)
    assert need.kv_bytes is None
    assert need.compute_bytes is None


#: The one that was tried in little memory: all of it is Q8_0, and the embedding is the output too.
SMOL_Q8 = MODEL.model_copy(
    update={
        "quantization": "Q8_0",
        "size_bytes": 144_811_360,
        "tensor_bytes": 143_025_408,
        "bytes_per_token": 143_025_408,
        "tensors": (TensorMix(type="Q8_0", count=211, bytes=142_884_864),
                    TensorMix(type="F32", count=61, bytes=140_544)),
    }
)  # fmt: skip
PROMPT_BYTES = len("I believe the meaning of life is")


def test_a_short_prompt_does_not_touch_the_buffers_of_a_full_batch() -> None:
    """Seen with 512 positions: 34.6 MB anonymous, and nothing re-read from 184 MB on."""
    engine = LlamaCpp()
    parameters = engine.parameters({"tokens": 32, "context": 512, "repack": False})
    need = engine.memory(parameters, SMOL_Q8, PROMPT_BYTES)
    assert need.anonymous_bytes == pytest.approx(34.6e6, rel=0.05)
    assert 176e6 < need.resident_bytes < 184e6
    full = engine.memory(parameters, SMOL_Q8)
    assert full.compute_bytes == pytest.approx(98.25 * MIB, rel=0.02)
    # A prompt that fills the batch does.
    assert engine.memory(parameters, SMOL_Q8, 100_000) == full


def test_others_than_a_completion_fill_their_batches() -> None:
    perplexity, bench = LlamaPerplexity(), LlamaBench()
    for need in (
        perplexity.memory(perplexity.parameters({}), SMOL_Q8, 100),
        bench.memory(bench.parameters({}), SMOL_Q8, 100),
    ):
        assert need.compute_bytes is not None
        assert need.compute_bytes >= 98.25 * MIB


EMBEDDING = TensorMix(type="Q8_0", count=1, bytes=30_000_000)
UNTIED = MODEL.model_copy(update={"cold_tensors": (EMBEDDING,)})


def test_a_table_of_which_a_token_needs_one_row_need_not_stay() -> None:
    engine = LlamaCpp()
    parameters = engine.parameters({"tokens": 4, "repack": False})
    need, tied = engine.memory(parameters, UNTIED), engine.memory(parameters, MODEL)
    assert tied.resident_bytes - need.resident_bytes == EMBEDDING.bytes
    # It is not multiplied, so it is not copied either.
    assert engine.memory(engine.parameters({"tokens": 4}), UNTIED).repacked_bytes == 0


def test_what_is_locked_stays_whether_it_is_read_or_not() -> None:
    engine = LlamaCpp()
    parameters = engine.parameters({"tokens": 4, "repack": False, "mlock": True})
    need = engine.memory(parameters, UNTIED, PROMPT_BYTES)
    assert need.mapped_bytes == UNTIED.tensor_bytes
    assert need.compute_bytes == engine.memory(parameters, UNTIED).compute_bytes


@pytest.mark.parametrize(
    "kind", ["Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4", "Q1_0"]
)
def test_these_types_are_copied(kind: str) -> None:
    mixed = (TensorMix(type=kind, count=1, bytes=7), TensorMix(type="F32", count=1, bytes=9))
    assert repacked_bytes(MODEL.model_copy(update={"tensors": mixed})) == 7
    assert repacked_bytes(MODEL.model_copy(update={"tensors": mixed[1:]})) == 0


@pytest.mark.parametrize(
    ("available_mb", "warmup", "notes"),
    [(150, False, 2), (165, False, 1), (190, False, 1), (210, True, 1), (420, True, 0)],
)
def test_near_the_border_of_memory_nothing_is_risked(
    available_mb: int, warmup: bool, notes: int
) -> None:
    facts = BoardFacts(
        execution=Execution.BOARD,
        machine="aarch64",
        kernel="5.10",
        boot_id="b",
        memory_available_bytes=available_mb * 10**6,
    )
    engine = LlamaCpp()
    asked = engine.parameters({"tokens": 32, "context": 512, "threads": 1})
    resolved = engine.resolve_defaults(asked, facts, SMOL_Q8, PROMPT_BYTES)
    assert resolved.parameters.warmup is warmup
    assert resolved.parameters.repack is (notes == 0)
    assert len(resolved.notes) == notes
    if 155 < available_mb < 204:
        told = (
            f"smol: needs 178 MB of the {available_mb} MB that are available, within 15% of what"
            " fits: its weights may be read again for every token; no repacking; no warm-up pass"
        )
        assert resolved.notes == (told,)


def test_a_quantized_cache_is_read_as_small_as_it_is_kept() -> None:
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
