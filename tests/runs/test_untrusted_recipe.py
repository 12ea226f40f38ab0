"""What a recipe that nobody vouches for may not ask for, and the line that says so."""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from labctl.config.lab import Board
from labctl.config.recipe import Recipe
from labctl.errors import ConfigError
from labctl.runs.inputs.prepare import read_recipe
from labctl.runs.inputs.untrusted_recipe import Workspace, check_board
from labctl.transport.local import LocalConfig

GOOD = """\
name: pull
target: rk3568
engine: {name: command, program: {file: tool}, arguments: [x], output: [{pattern: '(?P<t>[0-9]+)',
  values: {t: {metric: inference, unit: us}}}]}
models: {small: {file: small.gguf}}
max_time: 10m
"""
SHA256 = "0" * 64
Read = Callable[[str], Recipe]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "pull-request"
    (folder / "deep").mkdir(parents=True)
    for name in ("tool", "small.gguf", "prompt.txt"):
        (folder / name).write_text("text")
    (tmp_path / "secret").write_text("words of the host")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "folder-link").symlink_to(tmp_path)
    (folder / "round").symlink_to("round")
    os.mkfifo(folder / "pipe")
    (tmp_path / "lab").mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def read(workspace: Path, tmp_path: Path) -> Read:
    def read_text(text: str) -> Recipe:
        path = workspace / "recipe.yaml"
        path.write_text(text)
        lab = tmp_path / "lab"
        return read_recipe(path, lab_root=lab, workspace=Workspace.of(path, lab))

    return read_text


def llama(models: str, *lines: str) -> str:
    start = "name: pull\ntarget: rk3568\nengine: {name: llama_cpp}\nmax_time: 10m\n"
    start += "parameters: {tokens: 4}\n"
    return "\n".join((f"{start}prompt: Hello", f"models: {{m: {models}}}", *lines, ""))


def test_its_own_files_are_read_by_their_real_paths(read: Read, workspace: Path) -> None:
    recipe = read(GOOD)
    assert recipe.models["small"].file == str(workspace / "small.gguf")
    assert recipe.models["small"].lock is False
    assert recipe.engine.model_dump()["program"]["file"] == str(workspace / "tool")
    recipe = read(llama(f"{{hub: {{repository: a/b, file: c.gguf, sha256: '{SHA256}'}}}}"))
    assert recipe.models["m"].hub is not None


OUTSIDE = ("../secret", "/etc/passwd", "link", "folder-link/secret", "deep/../../secret")


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize(
    ("text", "line"),
    [
        (GOOD.replace("file: small.gguf", "file: {path}"), 5),
        (GOOD.replace("file: tool", "file: {path}"), 3),
        (llama("{lab: small}").replace("prompt: Hello", "prompt_file: {path}"), 6),
        (f"{GOOD}files: {{data: {{path}}}}\n", 7),
    ],
    ids=["model", "program", "prompt", "files"],
)
def test_no_file_outside_its_folder(
    read: Read, workspace: Path, text: str, line: int, path: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text.replace("{path}", path))
    told = f"{caught.value.message}\n{caught.value.details or ''}"
    assert "which alone an untrusted recipe may read" in told
    assert f"recipe.yaml:{line}" in told
    assert "words of the host" not in told
    del workspace


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD.replace("small.gguf", "pipe"), "is not a file"),
        (GOOD.replace("small.gguf", "deep"), "is not a file"),
        (GOOD.replace("small.gguf", "round"), "cannot be read"),
        (GOOD.replace("small.gguf", "/proc/self/fd/0"), "may read|not a file|cannot be read"),
        (GOOD.replace("10m", "3h"), "2h at most"),
        (
            llama(f"{{url: {{address: 'http://10.0.0.1/m', sha256: '{SHA256}'}}}}"),
            "names no addresses",
        ),
        (llama("{hub: {repository: a/b, file: c.gguf}}"), "with its sha256"),
        (
            llama("{derive: {from: n, quantization: Q4_0}}, n: {lab: small}", "model: m"),
            "is not quantized",
        ),
        (GOOD.replace("name: command", "name: nothing"), "nothing"),
    ],
)
def test_what_is_refused(read: Read, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert re.search(said, f"{caught.value.message}\n{caught.value.details or ''}")


OF_A_PACKAGE = f"{{pypi: {{package: tiny, version: '1.0', sha256: '{SHA256}', member: m.gguf}}}}"


@pytest.mark.parametrize("models", ["{lab: small}", OF_A_PACKAGE])
def test_models_of_the_lab_and_of_packages_are_taken(read: Read, models: str) -> None:
    assert read(llama(models)).models["m"].file is None


def test_an_engine_of_another_package_is_refused(
    read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its code would read on this host what the recipe says."""
    from labctl.runs.inputs import untrusted_recipe

    monkeypatch.setattr(untrusted_recipe, "is_own", lambda _name: False)
    with pytest.raises(ConfigError) as caught:
        read(GOOD)
    assert "uses labctl's own engines" in f"{caught.value.message} {caught.value.details}"


@pytest.mark.parametrize("untrusted", [True, False])
def test_this_host_is_no_board_for_it(untrusted: bool) -> None:
    board = Board.model_validate(
        {"target": "x", "workdir": "/w", "transport": LocalConfig(), "untrusted": untrusted}
    )
    with pytest.raises(ConfigError, match="is this host itself" if untrusted else "takes no un"):
        check_board(board)


def test_a_key_that_nobody_looked_at_is_refused(
    read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    from labctl.runs.inputs import untrusted_recipe

    monkeypatch.setattr(untrusted_recipe, "_HARMLESS", untrusted_recipe._HARMLESS - {"name"})
    with pytest.raises(ConfigError, match="cannot have this key"):
        read(GOOD)


def test_each_key_of_a_recipe_was_looked_at() -> None:
    from labctl.runs.inputs.untrusted_recipe import _CHECKED, _HARMLESS

    assert set(Recipe.model_fields) == _HARMLESS | _CHECKED
    assert not _HARMLESS & _CHECKED


def test_a_bomb_of_aliases_costs_nothing(read: Read) -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
    )
    began = time.monotonic()
    with pytest.raises(ConfigError, match="more than 50000 values"):
        read(GOOD + bomb)
    assert time.monotonic() - began < 10


def test_too_many_bytes(read: Read, workspace: Path) -> None:
    with (workspace / "small.gguf").open("wb") as file:
        file.truncate(17 << 30)
    with pytest.raises(ConfigError, match="is the most"):
        read(GOOD)


def test_the_recipe_and_the_lab_are_apart(workspace: Path, tmp_path: Path) -> None:
    recipe = workspace / "recipe.yaml"
    recipe.write_text(GOOD)
    for lab in (workspace, workspace / "deep", tmp_path):
        with pytest.raises(ConfigError, match="are not apart"):
            Workspace.of(recipe, lab)
    with pytest.raises(ConfigError, match="not in the present folder"):
        Workspace.of(tmp_path / "recipe.yaml", tmp_path / "lab")
    with pytest.raises(ConfigError, match="not in the present folder"):
        Workspace.of(workspace / "link", tmp_path / "lab")
