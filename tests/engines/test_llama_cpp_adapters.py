"""Low-rank adapters: what a recipe may name, their flags and their memory."""

import re
from pathlib import Path

import pytest
from artifacts_made import make_artifact
from tiny_gguf import write_tiny_gguf
from tiny_lora import write_tiny_lora

from labctl.config.recipe import Recipe
from labctl.engines.base import Inputs, Tool
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.errors import ConfigError
from labctl.progress import silent
from labctl.runs.board.deploy_preview import objects_of
from labctl.runs.inputs.prepare import Prepared, read_recipe, recipe_files

ENGINE = LlamaCpp()
NEW = Tool("llama-completion", "completion")
CLASSIC = Tool("llama-cli", "classic")
RECIPE = """\
name: r
target: rk3568
engine: {name: llama_cpp}
models: {m: {file: m.gguf, lock: false}}
prompt: hello
files: {style: style.gguf}
lora: [{file: style, scale: 0.5}]
parameters: {tokens: 4}
max_time: 10m
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))


def read(root: Path, text: str = RECIPE) -> Recipe:
    path = root / "r.yaml"
    path.write_text(text)
    return read_recipe(path)


def prepared(root: Path, text: str = RECIPE) -> Prepared:
    write_tiny_gguf(root / "m.gguf")
    make_artifact(root, "llama-completion")
    return recipe_files(read(root, text), root).with_models(silent)


def words(tool: Tool, *adapters: tuple[str, float]) -> str:
    inputs = Inputs("/b/p", "/b/m.gguf", "hello", adapters=adapters)
    return " ".join(ENGINE.command(tool, ENGINE.parameters({"tokens": 4}), inputs))


def test_each_version_has_its_own_form() -> None:
    two = (("/b/x", 1.0), ("/b/y", -0.5))
    assert "--lora-scaled /b/x:1.0,/b/y:-0.5 " in words(NEW, *two)
    assert "--lora-scaled /b/x 1.0 --lora-scaled /b/y -0.5 " in words(CLASSIC, *two)
    assert "/b/x:0.123456789 " in words(NEW, ("/b/x", 0.123456789))
    assert "--lora" not in words(NEW) + words(CLASSIC)
    with pytest.raises(ConfigError, match="has a ':' in it"):
        words(NEW, ("/b:1/x", 1.0))


def test_an_adapter_is_sent_hashed_recorded_and_counted(tmp_path: Path) -> None:
    write_tiny_lora(tmp_path / "style.gguf")
    found = prepared(tmp_path)
    (adapter,) = found.adapters
    assert adapter.sha256 in {item.sha256 for item in objects_of(found)}
    assert found.comparability["lora"] == [{"file": "style", "scale": 0.5}]
    assert found.comparability["files_sha256"] == {"style": adapter.sha256}
    identity = found.models["m"].identity
    assert identity.adapters == (adapter,)
    assert (adapter.file, adapter.scale, adapter.tensor_bytes) == ("style.gguf", 0.5, 4096)
    asked = ENGINE.parameters({"tokens": 4})
    need = ENGINE.memory(asked, identity)
    plain = ENGINE.memory(asked, identity.model_copy(update={"adapters": ()}))
    assert need.anonymous_bytes == plain.anonymous_bytes + 4096


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("file: style,", "file: stile,"), "lora[0].file: no file 'stile' in files"),
        (("lora: [{", "lora: [{file: style}, {"), "lora[1].file: this adapter is given twice"),
        (("scale: 0.5", "scale: .nan"), "lora[0].scale"),
        (("lora: [{file: style, scale: 0.5}]\n", ""), "does not read this file"),
        (("name: llama_cpp}", "name: llama_cpp, task: bench}"), "uses no adapters; remove it"),
    ],
)
def test_what_a_recipe_may_not_say(tmp_path: Path, change: tuple[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        read(tmp_path, RECIPE.replace(*change))


def test_what_is_no_adapter_is_refused(tmp_path: Path) -> None:
    write_tiny_lora(tmp_path / "style.gguf", kind="model")
    with pytest.raises(ConfigError, match="is not a low-rank adapter"):
        prepared(tmp_path)
