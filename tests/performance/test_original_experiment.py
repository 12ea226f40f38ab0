"""The experiment that all this began with, from the models' headers: one DAYU200 (RK3568, 2 GB).

Meta-Llama-3.1-8B-Instruct, continued by llama.cpp from the board's eMMC: 18.18 s a token with Q2_K,
49.73 s with Q8_0. Neither fits in its memory.
"""

from pathlib import Path

import pytest
from llama_8b import write_llama_8b
from records_made import timing

from labctl.config.target import load_target
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.gguf.inspect import inspect
from labctl.performance.bottleneck import Baseline, explain
from labctl.performance.prediction import ModelWorkload, Rate, Rates, predictions, rates_of
from labctl.records.board import BoardFacts, Execution
from labctl.records.trial import ModelIdentity

Q2_K_SECONDS, Q8_0_SECONDS = 18.18, 49.73
PROMPT = "I believe the meaning of life is"
BOARD = BoardFacts(
    execution=Execution.BOARD,
    machine="aarch64",
    kernel="5.10",
    boot_id="b",
    memory_total_bytes=2_066_264_064,
    memory_available_bytes=1_600_000_000,
)


def work(folder: Path, quantization: str) -> ModelWorkload:
    info = inspect(write_llama_8b(folder / f"{quantization}.gguf", quantization))
    model = ModelIdentity(
        key=quantization,
        file=info.path.name,
        sha256="0" * 64,
        size_bytes=info.size_bytes,
        quantization=info.quantization,
        parameters=info.parameters,
        tensor_bytes=info.tensor_bytes,
        bytes_per_token=info.bytes_per_token,
        kv_bytes_per_position=info.kv_bytes_per_position,
        embedding_length=info.embedding_length,
        vocabulary=128_256,
        tensors=info.tensors,
        cold_tensors=info.cold_tensors,
    )
    engine = LlamaCpp()
    asked = engine.parameters({"tokens": 128, "threads": 4, "repack": False})
    return ModelWorkload(model, engine.memory(asked, model, len(PROMPT)), threads=4, tokens=128)


def test_the_headers_are_those_of_the_files(tmp_path: Path) -> None:
    """Their sizes on the hub: 3.18 and 8.54 GB, with 8.03 billion weights."""
    small, large = work(tmp_path, "Q2_K").model, work(tmp_path, "Q8_0").model
    assert small.size_bytes == pytest.approx(3.18e9, rel=0.005)
    assert large.size_bytes == pytest.approx(8.54e9, rel=0.005)
    assert small.parameters == large.parameters == 8_030_261_248
    # Of the table of embeddings one row is read; it makes up 172 MB and 558 MB.
    assert small.bytes_per_token == pytest.approx(3.0e9, rel=0.005)
    assert large.bytes_per_token == pytest.approx(7.97e9, rel=0.005)
    assert small.kv_bytes_per_position == 2 * 2 * 8 * 128 * 32


def test_what_the_small_model_shows_of_the_storage_foretells_the_large_one(tmp_path: Path) -> None:
    small, large = work(tmp_path, "Q2_K"), work(tmp_path, "Q8_0")
    storage = small.bytes_per_token / Q2_K_SECONDS
    assert storage == pytest.approx(165e6, rel=0.01)  # what an eMMC reads
    rates = Rates(Rate(storage, "Q2_K alone"))
    found = predictions({"q8": large}, BOARD, rates)["q8"]
    assert found.bound == "storage"
    assert found.seconds_per_token == pytest.approx(Q8_0_SECONDS, rel=0.05)


def test_what_the_target_promises_foretells_both_models(tmp_path: Path) -> None:
    workloads = {kind: work(tmp_path, kind) for kind in ("Q2_K", "Q8_0")}
    target = load_target("rk3568").expectations
    assert target is not None
    found = predictions(workloads, BOARD, rates_of([], target))
    assert found["Q2_K"].seconds_per_token == pytest.approx(Q2_K_SECONDS, rel=0.016)
    assert found["Q8_0"].seconds_per_token == pytest.approx(Q8_0_SECONDS, rel=0.015)
    # It is the mean of what both show.
    shown = [
        workloads[kind].bytes_per_token / seconds
        for kind, seconds in (("Q2_K", Q2_K_SECONDS), ("Q8_0", Q8_0_SECONDS))
    ]
    assert shown == [pytest.approx(165e6, rel=0.005), pytest.approx(160e6, rel=0.005)]
    assert target.storage_read_bytes_per_s == pytest.approx(sum(shown) / 2, rel=0.005)


@pytest.mark.parametrize(("tokens", "passes"), [(1, 2), (8, 9)])
def test_a_model_that_does_not_fit_is_read_once_more_before_the_first_token(
    tmp_path: Path, tokens: int, passes: int
) -> None:
    """llama.cpp maps with MAP_POPULATE; nothing of that is left when the prompt is read."""
    large = work(tmp_path, "Q8_0")
    found = predictions({"q8": large}, BOARD, Rates(Rate(162.5e6, "p")))["q8"]
    parameters = LlamaCpp().parameters({"tokens": tokens, "warmup": False})
    computed = LlamaCpp().token_counts(parameters, len(PROMPT))
    seconds = found.seconds(prompts=computed.prompts, tokens=computed.tokens)
    embedding = large.model.size_bytes - large.bytes_per_token  # only loading reads it
    read = seconds * 162.5e6
    assert (read - embedding) / large.bytes_per_token == pytest.approx(passes)


def test_four_gigabytes_are_so_near_to_the_need_that_both_times_are_told(tmp_path: Path) -> None:
    """20 MB decide between 17.1 s and 0.60 s on such a board."""
    small = work(tmp_path, "Q2_K")
    rates = Rates(Rate(175e6, "p"), {4: Rate(5e9, "p")})
    board = BOARD.model_copy(update={"memory_available_bytes": small.need.resident_bytes + 10**7})
    found = predictions({"q2": small}, board, rates)["q2"]
    assert found.both is not None
    resident, paged = found.both
    assert round(paged.seconds_per_token, 1) == 17.1
    assert 0.60 <= resident.seconds_per_token <= 0.61  # with the cache of 70 positions


def test_and_says_so_in_a_sentence(tmp_path: Path) -> None:
    rates = Rates(Rate(178e6, "the probe of 2026-11-20"), {4: Rate(5e9, "the same")})
    measured = timing([Q2_K_SECONDS * 1e3] * 4, mean_ns=round(Q2_K_SECONDS * 1e9))
    found = explain(measured, Baseline(work(tmp_path, "Q2_K"), BOARD, rates), None)
    assert found is not None
    assert found.kind == "storage"
    assert found.sentence == (
        "storage-bound: every token re-reads 3.00 GB at 165 MB/s, 93% of this board's 178 MB/s"
        " (the probe of 2026-11-20); with 4.29 GB of RAM it would not be storage-bound (reads"
        " were not counted: inferred from the memory size)"
    )
