"""What an engine says to a recipe, told where it is written."""

import json
from pathlib import Path

import pytest

from labctl.config.recipe import Recipe
from labctl.engines.registry import make_engine
from labctl.errors import ConfigError
from labctl.runs.inputs.prepare import read_recipe

RUNS = sorted((Path(__file__).parents[1] / "fixtures" / "recorded_lab" / "runs").iterdir())
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
engine: {name: llama_cpp, task: bench}
models: {m: {file: m.gguf}}
parameters: {tokens: 4}
max_time: 10m
"""

BAD = {
    "no prompt": (COMPLETION.replace("prompt: hello\n", ""), "1:1: a prompt or a prompt_file is"),
    "idle prompt": (BENCH + "prompt: x\n", "7:9: prompt: llama_cpp (bench) reads no prompt"),
    "idle file": (BENCH + "files: {t: x}\n", "7:12: files.t: llama_cpp (bench) does not read"),
    "unknown task": (
        BENCH.replace("bench", "bensch"),
        "3:33: engine.task: no llama_cpp task 'bensch' (did you mean 'bench'?)",
    ),
    "a task by both keys": (
        BENCH.replace("task: bench", "task: bench, tool: bench"),
        "3:40: engine.tool: unknown key",
    ),
    "an unknown key": (
        BENCH.replace("task: bench", "tusk: bench"),
        "3:27: engine.tusk: unknown key (did you mean 'task'?)",
    ),
    "together with other mistakes": (
        BENCH.replace("task: bench", "tusk: bench") + "repeats: 0\n",
        "r.yaml:7:10: repeats: must be at least 1",
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


@pytest.mark.parametrize("run", RUNS, ids=lambda path: path.name)
def test_the_recipe_of_a_record_loads(run: Path) -> None:
    document = json.loads((run / "run.json").read_text())["recipe_resolved"]
    recipe = Recipe.model_validate(document)
    asked = document["engine"]
    engine = make_engine(recipe.engine)
    assert (engine.name, engine.task) == (asked["name"], asked.get("task", "run"))
    assert Recipe.model_validate(recipe.resolved()) == recipe
