"""Parameters that several tasks of llama.cpp share, and their flags in each version."""

from typing import Any

import pytest

from labctl.engines.base import EngineBase, Inputs, Tool
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.engines.llama_cpp.kl_divergence import LlamaKlDivergence
from labctl.engines.llama_cpp.perplexity import LlamaPerplexity
from labctl.engines.llama_cpp.server import LlamaServer
from labctl.errors import ConfigError
from labctl.records.board import BoardFacts, CpuFacts, Execution
from labctl.records.trial import ModelIdentity

ENGINE = LlamaCpp()
NEW = Tool("llama-completion", "completion")
CLASSIC = Tool("llama-cli", "classic")
MIB = 1 << 20
FACTS = BoardFacts(
    execution=Execution.BOARD, machine="aarch64", kernel="5", boot_id="b",
    cpus=(CpuFacts(count=4),), memory_available_bytes=1 << 30,
)  # fmt: skip
MODEL = ModelIdentity(
    key="m", file="m.gguf", sha256="a" * 64, size_bytes=MIB, architecture="llama",
    tensor_bytes=MIB, bytes_per_token=MIB, kv_bytes_per_position=64, vocabulary=401,
    embedding_length=64,
)  # fmt: skip


def words(tool: Tool, cpus: str | None = None, **parameters: Any) -> str:
    checked = ENGINE.parameters({"tokens": 8, **parameters})
    inputs = Inputs("/b/p", "/b/m.gguf", "hello", cpus=cpus)
    return " ".join(ENGINE.command(tool, checked, inputs))


def test_flash_attention_is_decided_by_the_version_and_never_left_to_it() -> None:
    for tool, usual in ((NEW, True), (CLASSIC, False)):
        decided = ENGINE.for_version(tool, ENGINE.parameters({"tokens": 8}))
        assert ENGINE.comparability(tool, decided)["flash_attention"] is usual
        asked = ENGINE.parameters({"tokens": 8, "flash_attention": not usual})
        assert ENGINE.for_version(tool, asked) == asked
    assert "-fa on" in words(NEW, flash_attention=True)
    assert "-fa off" in words(NEW, flash_attention=False)
    assert " -fa -" in f"{words(CLASSIC, flash_attention=True)} "
    assert "-fa" not in words(CLASSIC, flash_attention=False)


def test_quantized_values_need_flash_attention() -> None:
    with pytest.raises(ConfigError, match="cache_type_v q8_0 needs flash attention"):
        ENGINE.parameters({"tokens": 8, "cache_type_v": "q8_0"})
    with pytest.raises(ConfigError, match="set flash_attention: true"):
        ENGINE.parameters({"tokens": 8, "cache_type_v": "iq4_nl", "flash_attention": False})
    ENGINE.parameters({"tokens": 8, "cache_type_v": "bf16"})
    both: dict[str, Any] = {"cache_type_k": "q8_0", "cache_type_v": "q4_0", "flash_attention": True}
    assert "-ctk q8_0 -ctv q4_0" in words(NEW, **both)


def test_a_model_without_flash_attention_is_recorded_so() -> None:
    grok = MODEL.model_copy(update={"architecture": "grok"})
    left = ENGINE.resolve_defaults(ENGINE.parameters({"tokens": 8}), FACTS, grok)
    assert left.parameters.flash_attention is False
    asked = ENGINE.parameters({"tokens": 8, "flash_attention": True})
    with pytest.raises(ConfigError, match="m: llama\\.cpp has no flash attention for grok"):
        ENGINE.resolve_defaults(asked, FACTS, grok)


@pytest.mark.parametrize(
    ("parameters", "new", "classic"),
    [
        ({"mmap": False}, "-lm none", "--no-mmap"),
        ({"mlock": True}, "-lm mmap+mlock", "--mlock"),
        ({"mmap": False, "mlock": True}, "-lm mlock", "--no-mmap --mlock"),
    ],
)
def test_the_model_is_read_as_the_version_knows(
    parameters: dict[str, Any], new: str, classic: str
) -> None:
    assert new in words(NEW, **parameters)
    assert classic in words(CLASSIC, **parameters)


@pytest.mark.parametrize("tool", [NEW, CLASSIC])
def test_threads_for_prompts_are_a_pool_of_their_own(tool: Tool) -> None:
    assert "-tb" not in words(tool, threads=2, threads_batch=2)
    said = words(tool, threads=2, threads_batch=4, poll=0, prio=1, cpu_strict=True, cpus="4-7")
    placed = "-C 0xf0 --cpu-strict 1 --poll 0 --prio 1"
    batch = "-tb 4 -Cb 0xf0 --cpu-strict-batch 1 --poll-batch 0 --prio-batch 1"
    assert f"{placed} {batch}" in said
    assert "-C 0x3 " in words(tool, threads=2, cpu_strict=True)
    resolved = ENGINE.resolve_defaults(ENGINE.parameters({"tokens": 8}), FACTS, MODEL).parameters
    assert (resolved.threads, resolved.threads_batch) == (4, 4)


def test_what_the_board_cannot_do_is_refused() -> None:
    asked = ENGINE.parameters({"tokens": 8, "prio": 2})
    lowly = FACTS.model_copy(update={"may_raise_priority": False})
    with pytest.raises(ConfigError, match="prio 2: programs of this board may not raise"):
        ENGINE.resolve_defaults(asked, lowly, MODEL)
    ENGINE.resolve_defaults(asked, FACTS.model_copy(update={"may_raise_priority": True}), MODEL)
    tight = ENGINE.parameters({"tokens": 8, "cpu_strict": True, "threads": 5})
    with pytest.raises(ConfigError, match="cpu_strict: 5 threads on 4 CPUs"):
        ENGINE.resolve_defaults(tight, FACTS, MODEL)


@pytest.mark.parametrize(
    "engine", [LlamaCpp(), LlamaPerplexity(), LlamaKlDivergence(), LlamaServer()]
)
def test_the_cache_counts_in_its_own_types(engine: EngineBase[Any]) -> None:
    wanted: dict[str, Any] = {"tokens": 8} if engine.task == "completion" else {}
    types: dict[str, Any] = {"cache_type_k": "q8_0", "cache_type_v": "q4_0"}
    types["flash_attention"] = True
    plain = engine.memory(engine.parameters(wanted), MODEL)
    small = engine.memory(engine.parameters({**wanted, **types}), MODEL)
    assert plain is not None
    assert plain.kv_bytes is not None
    assert small is not None
    assert small.kv_bytes == plain.kv_bytes * (34 + 18) / 128
    read = engine.memory(engine.parameters({**wanted, "mmap": False}), MODEL)
    assert read is not None
    assert (read.mapped_bytes, read.repacked_bytes) == (0, MIB)
