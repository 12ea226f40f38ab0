"""Which build of a program a recipe gets, and what is built for it where none fits."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from artifacts_made import make_artifact

from labctl.build.artifact import Artifact
from labctl.build.manifest import SourceIdentity
from labctl.build.plan import source_now
from labctl.config.recipe import Recipe
from labctl.config.target import load_target
from labctl.engines.registry import make_engine
from labctl.errors import ConfigError
from labctl.runs.inputs.programs import (
    Program,
    agent_notes,
    find_program,
    lacking_agent,
    missing_agent,
    missing_builds,
)

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
    assert ("rk3568", "llama.cpp", "llama-completion") in asked
    assert "llama-quantize" in {tool for _, _, tool in asked}


def test_what_is_built_is_not_built_again(tmp_path: Path) -> None:
    make_artifact(tmp_path, "llama-completion")
    assert missing_builds(recipe(), tmp_path, with_stale=True) == []
    (request,) = missing_builds(recipe("bench"), tmp_path)
    assert request.tools == ("llama-bench",)


def shipped(version: str = "new") -> SourceIdentity:
    """The source of llama.cpp as the build spec has it now."""
    now = source_now("rk3568", "llama.cpp", version, None)
    assert now is not None
    return now.identity


def test_a_build_before_a_patch_came_is_told_and_built_again(tmp_path: Path) -> None:
    before = shipped().model_copy(update={"patches": ()})
    make_artifact(tmp_path, "llama-completion", zig=ZIG, source=before)
    (note,) = found(recipe(), tmp_path).notes
    assert note == (
        "llama-completion was built from 0c1e570, and the build spec has 0c1e570-patched with"
        " 0001-flush-log-at-exit.patch now; to build that: labctl build --target rk3568"
        " --product llama.cpp --version new --tool llama-completion"
    )
    assert missing_builds(recipe(), tmp_path) == []
    (request,) = missing_builds(recipe(), tmp_path, with_stale=True)
    assert (request.target, request.tools) == ("rk3568", ("llama-completion",))


def test_a_patch_that_was_edited_is_told(tmp_path: Path) -> None:
    (patch,) = shipped().patches
    edited = (patch.model_copy(update={"sha256": "0" * 64}),)
    source = shipped().model_copy(update={"patches": edited})
    make_artifact(tmp_path, "llama-completion", zig=ZIG, source=source)
    (note,) = found(recipe(), tmp_path).notes
    assert "0001-flush-log-at-exit.patch, and the build spec has changed now" in note


def test_a_source_that_the_user_named_is_as_wished(tmp_path: Path) -> None:
    own = SourceIdentity(kind="git", location="here", commit="0" * 40)
    make_artifact(tmp_path, "llama-completion", zig=ZIG, version="mine", source=own)
    wanted = recipe(engine={"name": "llama_cpp", "version": "mine"})
    assert found(wanted, tmp_path).notes == ()
    assert missing_builds(wanted, tmp_path, with_stale=True) == []


TARGET = load_target("rk3568", None)


def agent(folder: Path, target: str = "rk3568", **changes: Any) -> Artifact:
    return make_artifact(
        folder, "agent", target=target, product="agent", version="current", **changes
    )


def test_the_agent_of_the_boards_own_machine_is_built(tmp_path: Path) -> None:
    agent(tmp_path)
    assert missing_agent("aarch64", TARGET, tmp_path) is None
    emulated = missing_agent("x86_64", TARGET, tmp_path)
    assert emulated is not None
    assert (emulated.target, emulated.product) == ("host-x86_64", "agent")
    (note,) = agent_notes("x86_64", TARGET, tmp_path)
    assert note.endswith("to build it: labctl build --target host-x86_64 --product agent")


def test_an_agent_of_an_older_source_is_told_and_built_again(tmp_path: Path) -> None:
    older = SourceIdentity(kind="folder", location="there", sha256="0" * 64)
    agent(tmp_path, zig=ZIG, source=older)
    assert missing_agent("aarch64", TARGET, tmp_path) is None
    assert missing_agent("aarch64", TARGET, tmp_path, with_stale=True) is not None
    (note,) = agent_notes("aarch64", TARGET, tmp_path)
    assert "agent was built from folder-00000000, and the build spec has folder-" in note


@pytest.mark.parametrize("damage", ["gone", "other bytes"])
def test_a_damaged_agent_is_built_again(tmp_path: Path, damage: str) -> None:
    file = agent(tmp_path).tool("agent")
    file.unlink()
    if damage == "other bytes":
        file.write_text("agent")
    assert missing_agent("aarch64", TARGET, tmp_path) is not None


def test_only_a_target_without_any_agent_that_its_boards_could_run_lacks_one(
    tmp_path: Path,
) -> None:
    """A virtual board of a target runs its host's agent; which board is one shows on contact."""
    missing = lacking_agent(TARGET, tmp_path)
    assert missing is not None
    assert missing.hint == "labctl build --target rk3568 --product agent"
    agent(tmp_path)
    assert lacking_agent(TARGET, tmp_path) is None
    other = load_target("rk3588")
    assert lacking_agent(other, tmp_path) is not None
    agent(tmp_path, target="host-x86_64")
    assert lacking_agent(other, tmp_path) is None
