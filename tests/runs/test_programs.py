"""Which build of a program a recipe gets, and what is built for it where none fits."""

from importlib.metadata import version
from pathlib import Path

import pytest
from artifacts_made import make_artifact

from labctl.config.recipe import Recipe
from labctl.engines import make_engine
from labctl.errors import ConfigError
from labctl.runs.inputs.programs import Program, find_program, missing_builds

ZIG = version("ziglang")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))


def recipe(task: str = "completion", **changes: object) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "r",
            "target": "rk3568",
            "engine": {"name": "llama_cpp", "task": task},
            "models": {"m": {"file": "m.gguf"}},
            "max_time": "10m",
            **changes,
        }
    )


def found(wanted: Recipe, root: Path) -> Program:
    return find_program(make_engine(wanted.engine), wanted, root)


def test_a_newer_build_without_the_tool_does_not_hide_an_older_one(tmp_path: Path) -> None:
    older = make_artifact(tmp_path, "llama-completion", zig=ZIG, day=1)
    make_artifact(tmp_path, "llama-bench", zig=ZIG, day=2)
    program = found(recipe(), tmp_path)
    assert program.artifact == older
    (note,) = program.notes
    assert "the last build of llama.cpp new for rk3568" in note
    assert "has no llama-completion; the one of 2026-11-02 12:00" in note
    assert found(recipe("bench"), tmp_path).notes == ()


def test_a_build_by_another_compiler_is_told(tmp_path: Path) -> None:
    make_artifact(tmp_path, "llama-completion", zig="0.16.9")
    (note,) = found(recipe(), tmp_path).notes
    assert f"was built with zig 0.16.9, and this host has zig {ZIG}; to build" in note
    assert note.endswith(
        "labctl build --target rk3568 --product llama.cpp --version new --tool llama-completion"
    )


def test_a_tool_that_no_build_has(tmp_path: Path) -> None:
    make_artifact(tmp_path, "llama-bench")
    with pytest.raises(ConfigError) as refused:
        found(recipe(), tmp_path)
    assert refused.value.message == (
        "llama.cpp new for rk3568 (zig 0.17.0) is built without llama-completion; it has"
        " llama-bench"
    )
    assert refused.value.hint == (
        "labctl build --target rk3568 --product llama.cpp --tool llama-completion"
    )


def test_builds_that_do_not_fit_are_named(tmp_path: Path) -> None:
    make_artifact(tmp_path, "llama-completion", target="host-x86_64", zig="0.16.9")
    make_artifact(tmp_path, "llama-cli", version="classic")
    with pytest.raises(ConfigError) as refused:
        found(recipe(), tmp_path)
    assert refused.value.message == (
        "no llama.cpp (new) is built for target rk3568; there is classic for rk3568 (zig 0.17.0)"
        " and new for host-x86_64 (zig 0.16.9)"
    )


def test_what_a_recipe_needs_is_built_at_once(tmp_path: Path) -> None:
    made = {"base": {"file": "m.gguf"}, "m": {"derive": {"from": "base", "quantization": "Q8_0"}}}
    requests = missing_builds(recipe(models=made, model="m"), tmp_path)
    asked = {(r.target, r.product, tool) for r in requests for tool in r.tools or ("",)}
    assert {("rk3568", "llama.cpp", "llama-completion"), ("rk3568", "agent", "")} < asked
    assert "llama-quantize" in {tool for _, _, tool in asked}


def test_what_is_built_is_not_built_again(tmp_path: Path) -> None:
    make_artifact(tmp_path, "llama-completion")
    make_artifact(tmp_path, "agent", product="agent", version="current")
    assert missing_builds(recipe(), tmp_path) == []
    (request,) = missing_builds(recipe("bench"), tmp_path)
    assert request.tools == ("llama-bench",)
