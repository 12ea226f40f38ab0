"""What an engine says to a recipe, told where it is written."""

from pathlib import Path

import pytest

from labctl.errors import ConfigError
from labctl.runs.inputs.prepare import read_recipe

COMPLETION = """\
name: r
target: rk3568
engine: {name: llama_cpp}
models: {m: {file: m.gguf}}
prompt: hello
parameters: {tokens: 4}
max_time: 10m
"""
BENCH = """\
name: r
target: rk3568
engine: {name: llama_cpp, tool: bench}
models: {m: {file: m.gguf}}
parameters: {tokens: 4}
max_time: 10m
"""

BAD = {
    "no prompt": (COMPLETION.replace("prompt: hello\n", ""), "1:1: a prompt or a prompt_file is"),
    "idle prompt": (BENCH + "prompt: x\n", "7:9: prompt: llama_cpp (bench) reads no prompt"),
    "idle file": (BENCH + "files: {t: x}\n", "7:12: files.t: llama_cpp (bench) does not read"),
    "unknown tool": (
        BENCH.replace("bench", "bensch"),
        "3:33: engine.tool: llama_cpp cannot do 'bensch' in this version (did you mean 'bench'?)",
    ),
    "unknown engine": (
        BENCH.replace("llama_cpp", "llama_cp"),
        "no engine 'llama_cp' (did you mean"),
    "a parameter of another tool": (
        BENCH.replace("tokens: 4", "seed: 4"), "parameters.seed: unknown key",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD.keys())
def test_what_an_engine_refuses(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_recipe(tmp_path / "r.yaml")
    assert message in str(refused.value)


@pytest.mark.parametrize("text", [COMPLETION, BENCH])
def test_what_it_accepts(text: str, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(text)
    assert read_recipe(tmp_path / "r.yaml").name == "r"
