"""``labctl plan`` for a board that nobody has yet."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from clocks import skip_waits
from tiny_gguf import write_tiny_gguf

from labctl.cli.root import run_cli
from labctl.config.target import Expectations
from labctl.stats.roofline import near_border

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


def test_what_the_system_of_a_board_uses_is_not_free() -> None:
    """Llama-3.1-8B in Q2_K is near the border of a board of 4 GB, not well inside it."""
    expected = Expectations(cores=4, source="a report", system_memory_bytes=600_000_000)
    assert expected.free_of(4_000_000_000) == 3_400_000_000
    assert near_border(3_320_000_000, expected.free_of(4_000_000_000))
    assert expected.free_of(1_000_000) == 500_000
    assert Expectations(cores=8, source="a sheet").free_of(1_000) == 1_000


def test_the_plan_is_marked(recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["plan", recipe, "--target", "rk3568", "--memory", "4GB"]) == 0
    said = capsys.readouterr().out
    assert "tiny on an expected rk3568" in said
    assert "4 cores and 3.40 GB of 4.00 GB of memory free: EXPECTED, not measured" in said
    assert "from the target's expectations" in said
    assert "counts as free" not in said


def test_a_plan_says_that_the_use_of_the_system_is_not_known(
    recipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = planned(capsys, recipe, "--target", "rk3588", "--memory", "4GB")
    (note,) = (one for one in found["notes"] if "system_memory_bytes" in one)
    assert note.startswith("all memory counts as free: the target.yaml of rk3588 does not say")


COMMAND = RECIPE.replace(
    "{name: llama_cpp}",
    '{name: command, program: {board: /bin/echo}, arguments: ["{tokens}"], tokens: {each: line}}',
).replace("{tokens: 8, context: 64}", "{tokens: 8}")


def test_an_engine_that_nothing_is_known_of_is_not_the_rates_fault(
    recipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The target has rates."""
    file = Path(recipe)
    whole = json.dumps(str(file.parent / "tiny.gguf"))
    file.write_text(COMMAND.replace("tiny.gguf", whole).replace("prompt: hello\n", ""))
    assert run_cli(["plan", recipe, "--target", "rk3568", "--memory", "4GB"]) == 0
    said = capsys.readouterr().out
    assert "no prediction: what a trial reads is not known" in said
    assert "neither" not in said


DERIVED = RECIPE.replace(
    "models: {tiny: {file: tiny.gguf}}",
    "models: {base: BASE, q8: {derive: {from: base, quantization: Q8_0}},"
    " f16: {derive: {from: base, quantization: F16}}}\nmatrix: {model: [base, q8, f16]}",
)
PACKAGE = {"package": "tiny", "version": "1.0", "sha256": "SHA", "member": "*.gguf"}


def derived(folder: Path, **base: object) -> list[str]:
    """Write a recipe that quantizes a model which lies somewhere; the words that plan it."""
    (folder / "d.yaml").write_text(DERIVED.replace("BASE", json.dumps(base)))
    return [str(folder / "d.yaml"), "--target", "rk3568", "--memory", "4GB"]


@pytest.mark.parametrize("in_cache", [False, True])
def test_a_model_that_a_run_would_make_is_estimated_and_not_made(
    recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], in_cache: bool
) -> None:
    """Only the base is here; there is no llama-quantize."""
    base: dict[str, object] = {"file": str(tmp_path / "tiny.gguf")}
    if in_cache:
        digest = sha256((tmp_path / "tiny.gguf").read_bytes()).hexdigest()
        kept = tmp_path / "cache" / "models" / digest
        kept.mkdir(parents=True)
        (tmp_path / "tiny.gguf").rename(kept / "tiny.gguf")
        base = {"pypi": {**PACKAGE, "sha256": digest}}
    found = planned(capsys, *derived(tmp_path, **base))
    tokens = {slug: one["token_ns"] for slug, one in found["variants"].items()}
    assert tokens["q8"] < tokens["f16"] < tokens["base"]
    (note,) = (note for note in found["notes"] if "'q8' is estimated" in note)
    assert "made from: at least " in note
    assert "8.5 bits per weight" in note
    assert not any("'base' is estimated" in note for note in found["notes"])
    assert [path.suffix for path in (tmp_path / "cache").rglob("*.gguf")] == [".gguf"] * in_cache


@pytest.mark.parametrize("kind", ["pypi", "url"])
def test_without_a_network_a_plan_says_what_it_needs(
    recipe: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    skip_waits(monkeypatch)
    url = {"address": "http://127.0.0.1:1/tiny.gguf", "sha256": "a" * 64}
    base = {"pypi": {**PACKAGE, "sha256": "a" * 64}} if kind == "pypi" else {"url": url}
    assert run_cli(["plan", *derived(tmp_path, **base)]) == 3
    said = capsys.readouterr().err
    assert "'base'" in said
    assert ("tiny==1.0" if kind == "pypi" else "http://127.0.0.1:1/tiny.gguf") in said
    assert "llama-quantize" not in said


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
