"""Options that a build lacks are refused before any contact with a board."""

from pathlib import Path

import pytest
from artifacts_made import make_artifact

from labctl.config.recipe import Recipe
from labctl.errors import ConfigError
from labctl.runs.inputs.prepare import recipe_files

#: Options of a completion that no parameter turns on.
USUAL = (
    "-m", "-no-cnv", "--no-display-prompt", "--no-escape", "--no-context-shift", "--simple-io",
    "-fit", "-n", "-c", "--seed", "--temp", "-b", "-ub", "-ctk", "-ctv", "-fa", "--ignore-eos",
    "-p",
)  # fmt: skip


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))


def found(root: Path, **parameters: object) -> None:
    (root / "m.gguf").write_bytes(b"GGUF")
    recipe = {
        "name": "r",
        "target": "rk3568",
        "engine": {"name": "llama_cpp"},
        "models": {"m": {"file": "m.gguf"}},
        "prompt": "-1 --prio",
        "parameters": {"tokens": 4, **parameters},
        "max_time": "10m",
    }
    recipe_files(Recipe.model_validate(recipe), root)


def test_an_option_that_the_build_lacks_is_named(tmp_path: Path) -> None:
    make_artifact(tmp_path, "llama-completion", options=USUAL)
    with pytest.raises(ConfigError, match=r"build of llama-completion has no option --prio, which"):
        found(tmp_path, prio=1)
    with pytest.raises(ConfigError, match=r"no option --poll or --log-jsonl"):
        found(tmp_path, poll=0, log_jsonl=True)


def test_a_build_that_knows_its_options_or_none_is_used(tmp_path: Path) -> None:
    make_artifact(tmp_path, "llama-completion", options=(*USUAL, "--prio"), day=1)
    with pytest.raises(ConfigError, match=r"GGUF"):  # the next thing that is wrong
        found(tmp_path, prio=1)
    make_artifact(tmp_path, "llama-completion", day=2)
    with pytest.raises(ConfigError, match=r"GGUF"):
        found(tmp_path, prio=1, poll=0)
