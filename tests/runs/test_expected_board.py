"""``labctl plan`` for a board that nobody has yet."""

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_gguf import write_tiny_gguf

from labctl.cli.root import run_cli

RECIPE = """\
name: tiny
target: rk3588
engine: {name: llama_cpp}
models: {tiny: {file: tiny.gguf}}
prompt: hello
parameters: {tokens: 8, context: 64}
max_time: 10m
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """In a folder without a lab, on a host where nothing is built."""
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LABCTL_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    model = write_tiny_gguf(tmp_path / "tiny.gguf")
    (tmp_path / "r.yaml").write_text(RECIPE.replace("tiny.gguf", str(model)))
    return str(tmp_path / "r.yaml")


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert run_cli(["plan", *words, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_memory_decides_what_bounds_a_token(
    recipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def found(memory: str) -> dict[str, Any]:
        return planned(capsys, recipe, "--target", "rk3568", "--memory", memory)

    roomy, small = found("4GB"), found("1MB")
    assert roomy["expected"]
    assert roomy["variants"]["tiny"]["bound"] == "dram"
    assert small["variants"]["tiny"]["bound"] == "storage"
    assert small["variants"]["tiny"]["token_ns"] > roomy["variants"]["tiny"]["token_ns"]
    assert {trial["parameters"]["threads"] for trial in roomy["trials"]} == {4}
    assert "llama-completion is not built for target rk3568 yet" in roomy["notes"]
    assert any("expect it to be killed" in note for note in small["notes"])


def test_the_plan_is_marked(recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["plan", recipe, "--target", "rk3568", "--memory", "4GB"]) == 0
    said = capsys.readouterr().out
    assert "tiny on an expected rk3568" in said
    assert "4 cores and 4.00 GB of free memory: EXPECTED, not measured" in said
    assert "from the target's expectations" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--memory", "4GB"], "--target and --memory belong together"),
        (["--target", "rk3568"], "--target and --memory belong together"),
        (["--target", "rk3568", "--memory", "4GB", "--ask"], "a board that you do not have"),
        (["--target", "rk35", "--memory", "4GB"], "no target 'rk35'"),
        (["--target", "host-x86_64", "--memory", "4GB"], "nothing is expected of target"),
    ],
)
def test_what_cannot_be_planned(
    recipe: str, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["plan", recipe, *words]) == 2
    assert message in capsys.readouterr().err
