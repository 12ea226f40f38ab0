"""``labctl recipes``, ``build --list``, and the target that ``labctl build`` takes by itself."""

import json
from pathlib import Path
from typing import Any

import pytest
from artifacts_made import make_artifact

from labctl.cli.root import run_cli
from labctl.config.recipe import load_recipe

BOARD = """\
  {name}: {{target: {target}, transport: {{kind: hdc, link: tcp, address: "127.0.0.1:{port}"}}}}
"""
RECIPE = """\
name: mine
target: rk3568
engine: {name: llama_cpp, task: perplexity}
models:
  a: {file: models/a.gguf}
  b: {derive: {from: a, quantization: Q2_K}}
matrix: {model: [a, b]}
files: {text: texts/t.txt}
max_time: 5m
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LABCTL_STATE", str(tmp_path / "state"))
    root = tmp_path / "lab"
    (root / "recipes").mkdir(parents=True)
    (root / "recipes" / "mine.yaml").write_text(RECIPE)
    (root / "devices.yaml").write_text(
        "boards:\n" + BOARD.format(name="b1", target="rk3568", port=1)
    )
    monkeypatch.chdir(root)
    return root


def needs(name: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run_cli(["recipes", "show", name, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert list(shown) == [
        *("name", "path", "description", "kind"),
        *("target", "engine", "task", "needs"),
    ]
    return {(need["kind"], need["name"]): need for need in shown["needs"]}


def test_what_a_recipe_needs_is_told_until_it_is_there(
    lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = needs("mine", capsys)
    build = found["program", "llama.cpp (llama-perplexity, llama-quantize) for rk3568"]
    assert build["action"].startswith("labctl build --target rk3568 --product llama.cpp --tool")
    assert found["model", "a"]["action"] == "the file models/a.gguf, missing"
    assert found["model", "b"]["action"] == "Q2_K is made of the file models/a.gguf, missing"
    assert found["file", "texts/t.txt"]["action"] == f"put it at {lab}/texts/t.txt"
    assert not any(need["here"] for need in found.values())

    make_artifact(tmp_path, "llama-perplexity", "llama-quantize")
    make_artifact(tmp_path, "agent", product="agent", version="current")
    for path in ("models/a.gguf", "texts/t.txt"):
        (lab / path).parent.mkdir()
        (lab / path).write_bytes(b"")
    found = needs("mine", capsys)
    assert {name for name, need in found.items() if not need["here"]} == {("model", "b")}
    assert found["model", "b"]["automatic"]


def test_the_list_has_recipes_of_the_lab_and_of_labctl(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (lab / "recipes" / "broken.yaml").write_text("name: 3\n")
    assert run_cli(["recipes", "list"]) == 0
    said = capsys.readouterr()
    lines = {line.split()[0]: line for line in said.out.splitlines()}
    assert lines["mine"].split()[1] == "lab"
    assert "missing: a" in lines["mine"]
    assert lines["q8_latency"].split()[1:3] == ["labctl", "rk3568"]
    assert "build llama.cpp (llama-completion" in lines["q8_latency"]
    assert "left out" in said.err
    assert "broken.yaml" in said.err


def test_a_shown_recipe_can_be_run(
    lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["recipes", "show", "mine"]) == 0
    shown = capsys.readouterr().out
    assert "# needs file texts/t.txt: put it at" in shown
    (tmp_path / "shown.yaml").write_text(shown)
    assert load_recipe(tmp_path / "shown.yaml") == load_recipe(lab / "recipes" / "mine.yaml")


def test_a_copy_is_for_the_target_that_is_named(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["recipes", "copy", "q8_latency", "--target", "rk3588"]) == 0
    made = lab / "recipes" / "q8_latency.yaml"
    assert load_recipe(made).target == "rk3588"
    assert "# " in made.read_text()
    assert run_cli(["recipes", "copy", "q8_latency"]) == 2
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("written", "copied"),
    [
        ("target: rk3568 # mine", "target: rk3588 # mine"),
        ("'target' : 'rk3568'", "'target' : rk3588"),
        ('"target":\n  rk3568', '"target":\n  rk3588'),
        ("? target\n: rk3568", "? target\n: rk3588"),
    ],
)
def test_a_target_is_changed_however_it_is_written(lab: Path, written: str, copied: str) -> None:
    recipe = lab / "recipes" / "mine.yaml"
    recipe.write_text(RECIPE.replace("target: rk3568", written))
    assert run_cli(["recipes", "copy", "mine", "copy.yaml", "--target", "rk3588"]) == 0
    assert (lab / "copy.yaml").read_text() == RECIPE.replace("target: rk3568", copied)


def test_a_recipe_in_braces_is_copied_for_a_target(lab: Path) -> None:
    text = "{name: mine, target: rk3568, max_time: 5m} # é\n"
    (lab / "recipes" / "mine.yaml").write_text(text)
    assert run_cli(["recipes", "copy", "mine", "copy.yaml", "--target", "rk3588"]) == 0
    assert (lab / "copy.yaml").read_text() == text.replace("rk3568", "rk3588")


@pytest.mark.parametrize(
    "text",
    [
        "name: &t rk3568\ntarget: *t\n",
        "target: &t rk3568\nname: *t\n",
        "name: mine\n",
        "target: {a: b}\n",
        "target: |\n  rk3568\nname: mine\n",
        "name: [\n",
        "- target: rk3568\n",
        "",
    ],
)
def test_a_target_that_cannot_be_changed_is_told(
    lab: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (lab / "recipes" / "mine.yaml").write_text(text)
    assert run_cli(["recipes", "copy", "mine", "copy.yaml", "--target", "rk3588"]) == 2
    assert "mine.yaml" in capsys.readouterr().err
    assert not (lab / "copy.yaml").exists()


def test_a_link_to_nothing_is_not_overwritten(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (lab / "copy.yaml").symlink_to(lab / "nothing.yaml")
    assert run_cli(["recipes", "copy", "mine", "copy.yaml"]) == 2
    assert "exists already" in capsys.readouterr().err
    (lab / "new").mkdir()
    (lab / "new" / "devices.yaml").symlink_to(lab / "nothing.yaml")
    assert run_cli(["init", "new", "--virtual"]) == 2
    assert "exists already" in capsys.readouterr().err


def test_a_target_that_is_wrong_hides_no_other(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = lab / "toolchains" / "mine" / "target.yaml"
    broken.parent.mkdir(parents=True)
    broken.write_text("name: 3\n")
    for words in (["build", "--list"], ["build", "--list", "--json"]):
        assert run_cli(words) == 0
        said = capsys.readouterr()
        assert "rk3568" in said.out
        assert "left out: " in said.err
        assert f"{broken}:1" in said.err


def test_targets_are_listed_with_what_is_built(
    lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_artifact(tmp_path, "llama-bench")
    assert run_cli(["build", "--list", "--json"]) == 0
    found = {target["name"]: target for target in json.loads(capsys.readouterr().out)}
    assert list(found["rk3568"]) == ["name", "description", "machine", "features", "built"]
    assert found["rk3568"]["built"] == ["llama.cpp new"]
    assert found["rk3588"]["built"] == []
    assert "asimddp" in found["rk3588"]["features"]
    assert run_cli(["build", "--list"]) == 0
    assert "Rockchip RK3568" in capsys.readouterr().out


def test_build_takes_the_only_target_of_the_lab(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["build", "--product", "agent", "--explain"]
    assert run_cli(words) == 0
    assert "agent for rk3568" in capsys.readouterr().out
    with (lab / "devices.yaml").open("a") as devices:
        devices.write(BOARD.format(name="b2", target="rk3588", port=2))
    assert run_cli(words) == 2
    assert "has boards of several targets: rk3568 and rk3588" in capsys.readouterr().err


def test_build_without_a_lab_asks_for_a_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_cli(["build"]) == 2
    said = capsys.readouterr().err
    assert "no target given" in said
    assert "`labctl build --list`" in said


def test_what_an_evaluation_needs(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = needs("gsm8k_budgets", capsys)
    (program,) = [need for (kind, _), need in found.items() if kind == "program"]
    assert program["action"].endswith("--product llama.cpp --tool llama-server")
    assert found["model", "q2_k"]["action"].endswith("Q2_K.gguf, missing")
    assert found["file", "data/gsm8k/test.jsonl"]["action"].startswith("put it at ")
    assert needs("arithmetic", capsys)["file", "recipes/questions/arithmetic.jsonl"]["here"]
    assert run_cli(["recipes", "list"]) == 0
    (line,) = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("gsm8k_budgets")
    ]
    assert "none: an evaluation" in line
