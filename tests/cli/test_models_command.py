import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest
from tiny_gguf import write_tiny_gguf

from labctl.cli.root import run_cli
from labctl.config.models import ModelSource
from labctl.errors import ConfigError
from labctl.folders import state_dir
from labctl.models.resolve import resolve

DEVICES = """\
boards:
  here:
    target: host-x86_64
    transport: {kind: local}
    workdir: /tmp/labctl-board
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LABCTL_STATE", str(tmp_path / "state"))
    root = tmp_path / "lab"
    (root / "models").mkdir(parents=True)
    (root / "devices.yaml").write_text(DEVICES)
    write_tiny_gguf(root / "models" / "tiny-F32.gguf")
    return root


@dataclass
class Said:
    exit_code: int
    stdout: str
    stderr: str


class Models(Protocol):
    def __call__(self, *words: str) -> Said: ...


@pytest.fixture
def models(lab: Path, capsys: pytest.CaptureFixture[str]) -> Models:
    def run(*words: str) -> Said:
        status = run_cli(["--lab", str(lab), "models", *words])
        return Said(status, *capsys.readouterr())

    return run


def test_a_file_becomes_a_model_of_the_lab(lab: Path, models: Models) -> None:
    done = models("add", "tiny", str(lab / "models" / "tiny-F32.gguf"))
    assert done.exit_code == 0, done.stderr
    assert "F32" in done.stdout
    text = (lab / "models.yaml").read_text()
    assert text.endswith("  tiny:\n    file: models/tiny-F32.gguf\n")
    assert "file:models/tiny-F32.gguf:" in (lab / "models.lock.yaml").read_text()

    listed = json.loads(models("list", "--json").stdout)
    assert [(m["name"], m["path"]) for m in listed] == [
        ("tiny", str(lab / "models" / "tiny-F32.gguf"))
    ]
    assert "here" in models("list").stdout
    shown = models("show", "tiny").stdout
    assert "llama" in shown
    assert "401 tokens" in shown
    assert json.loads(models("show", "tiny", "--json").stdout)["vocabulary"] == 401


def test_models_need_no_board(lab: Path, models: Models) -> None:
    assert models("add", "tiny", str(lab / "models" / "tiny-F32.gguf")).exit_code == 0
    for devices in ("boards: {}\n", DEVICES + DEVICES.partition("\n")[2].replace("here", "there")):
        (lab / "devices.yaml").write_text(devices)
        fetched = models("fetch", "tiny")
        assert fetched.exit_code == 0, fetched.stderr
        assert fetched.stdout.startswith("tiny: F32")


def test_a_second_model_stands_behind_the_first_and_comments_stay(
    lab: Path, models: Models
) -> None:
    path = str(lab / "models" / "tiny-F32.gguf")
    models("add", "tiny", path)
    file = lab / "models.yaml"
    file.write_text(file.read_text() + "  # the same again\n")
    assert models("add", "other", path).exit_code == 0
    assert "  # the same again\n  other:\n" in file.read_text()
    taken = models("add", "other", path)
    assert taken.exit_code == 2
    assert "has a model 'other' already" in taken.stderr


def test_what_is_no_model_is_not_added(lab: Path, models: Models) -> None:
    (lab / "page.gguf").write_text("<html>not found</html>")
    for source in ("page.gguf", "models/none.gguf", "hf:nobody"):
        refused = models("add", "tiny", str(lab / source) if "hf:" not in source else source)
        assert refused.exit_code == 2, refused.stderr
    assert models("add", "Tiny!", str(lab / "models" / "tiny-F32.gguf")).exit_code == 2
    assert models("add", "tiny", "pypi:a b==1/x.gguf#sha256=" + "0" * 64).exit_code == 2
    assert not (lab / "models.yaml").exists()


def test_verify_finds_one_flipped_bit(lab: Path, models: Models) -> None:
    file = lab / "models" / "tiny-F32.gguf"
    models("add", "tiny", str(file))
    assert models("verify").stdout == "tiny: good\n"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    refused = models("fetch")
    assert refused.exit_code == 2
    assert "labctl models unlock tiny\n" in refused.stderr
    found = models("verify")
    assert found.exit_code == 2
    assert found.stdout == "tiny: differs from models.lock.yaml\n"
    assert "differs from the lock file" in found.stderr
    assert "remove" not in found.stderr  # it may be the only copy
    assert "copy the file from its origin" in found.stderr
    assert "labctl models unlock tiny" in found.stderr

    assert models("unlock", "tiny").exit_code == 0
    assert "nothing to compare with" in models("verify").stdout
    file.rename(file.with_suffix(".old"))
    assert models("verify").stdout == "tiny: not on this host\n"
    file.with_suffix(".old").rename(file)
    assert models("unlock", "tiny").exit_code == 2


@pytest.mark.parametrize("in_lab", [True, False])
def test_the_hint_on_a_file_that_changed_is_a_command_that_works(
    lab: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, in_lab: bool
) -> None:
    """For a recipe's own model, with or without a devices.yaml."""
    if not in_lab:
        (lab / "devices.yaml").unlink()
    monkeypatch.chdir(lab)
    root = lab if in_lab else state_dir() / "lab"
    file = lab / "models" / "it's tiny.gguf"
    named = str(file.relative_to(lab) if in_lab else file)
    sources = {"b": ModelSource(file=named)}

    def get() -> None:
        resolve(sources, ["b"], root=root, find_quantizer=lambda: pytest.fail("nothing derived"))

    write_tiny_gguf(file)
    root.mkdir(exist_ok=True, parents=True)
    get()
    write_tiny_gguf(file, seed=2)
    with pytest.raises(ConfigError, match="differs from") as refused:
        get()
    command = shlex.split((refused.value.hint or "").rpartition(": ")[2])
    assert run_cli(command[1:]) == 0, capsys.readouterr().err
    get()


def test_hostile_names_reach_no_terminal(lab: Path, models: Models) -> None:
    """Neither of files, nor what a file of somebody else's says of itself."""
    path = lab / "models" / "evil\x1b[31m\nname.gguf"
    write_tiny_gguf(path, name="mild\x1b]0;owned\x07\nGGUF version       9")
    for words in (("add", "evil", str(path)), ("list",), ("show", "evil"), ("verify",)):
        done = models(*words)
        assert done.exit_code == 0, done.stderr
        assert "\x1b" not in done.stdout + done.stderr
        assert "\x07" not in done.stdout + done.stderr
    assert models("show", "evil").stdout.count("GGUF version  ") == 1
    assert len(models("list").stdout.splitlines()) == 1


def test_unknown_names_get_the_nearest(lab: Path, models: Models) -> None:
    models("add", "tiny", str(lab / "models" / "tiny-F32.gguf"))
    for words in (("show", "tinny"), ("fetch", "tinny"), ("quantize", "tinny", "Q8_0")):
        refused = models(*words)
        assert refused.exit_code == 2
        assert "did you mean 'tiny'?" in refused.stderr


def test_a_model_is_removed_and_its_file_stays(lab: Path, models: Models) -> None:
    file = lab / "models" / "tiny-F32.gguf"
    for name in ("tiny", "same"):
        assert models("add", name, str(file)).exit_code == 0
    catalogue = lab / "models.yaml"
    catalogue.write_text(catalogue.read_text() + "# the end\n")
    done = models("remove", "tiny")
    assert done.exit_code == 0, done.stderr
    assert f"its file stays: {file}" in done.stdout
    assert file.is_file()
    assert "tiny:" not in catalogue.read_text()
    assert catalogue.read_text().endswith("# the end\n")
    assert models("verify", "same").exit_code == 0  # the lock still knows what both stood for
    assert "good" in models("verify", "same").stdout
    assert models("remove", "same").exit_code == 0
    assert "tiny-F32" not in (lab / "models.lock.yaml").read_text()
    assert models("list").exit_code == 0
    assert models("add", "again", str(file)).exit_code == 0


def test_a_model_that_is_used_is_not_removed_by_mistake(lab: Path, models: Models) -> None:
    assert models("add", "tiny", str(lab / "models" / "tiny-F32.gguf")).exit_code == 0
    before = (lab / "models.yaml").read_text()
    (lab / "recipes").mkdir()
    (lab / "recipes" / "mine.yaml").write_text(
        "name: mine\ntarget: host-x86_64\nengine: {name: llama_cpp}\n"
        "models: {m: {lab: tiny}}\nprompt: x\nparameters: {tokens: 2}\nmax_time: 1m\n"
    )
    refused = models("remove", "tiny")
    assert refused.exit_code == 2
    assert "used by recipes/mine.yaml" in refused.stderr
    assert "--yes" in refused.stderr
    assert (lab / "models.yaml").read_text() == before
    with (lab / "models.yaml").open("a") as file:
        file.write("  q: {derive: {from: tiny, quantization: Q8_0}}\n")
    refused = models("remove", "tiny", "--yes")
    assert (refused.exit_code, "'q' is made from 'tiny'" in refused.stderr) == (2, True)
    assert models("remove", "tiny", "q", "--yes").exit_code == 0
    assert models("remove", "tiny").exit_code == 2


def test_what_recipes_pin_themselves_stays_locked(lab: Path, models: Models) -> None:
    file = lab / "models" / "tiny-F32.gguf"
    assert models("add", "tiny", str(file)).exit_code == 0
    (lab / "recipes").mkdir()
    recipe = lab / "recipes" / "own.yaml"
    recipe.write_text(
        "name: own\ntarget: host-x86_64\nengine: {name: llama_cpp}\n"
        "models: {base: {file: models/tiny-F32.gguf}}\n"
        "prompt: x\nparameters: {tokens: 2}\nmax_time: 1m\n"
    )
    lock = lab / "models.lock.yaml"
    assert models("remove", "tiny").exit_code == 0
    assert "file:models/tiny-F32.gguf:" in lock.read_text()

    assert models("add", "tiny", str(file)).exit_code == 0
    recipe.write_text("name: [\n")
    done = models("remove", "tiny")
    assert done.exit_code == 0
    assert "these recipes cannot be read: recipes/own.yaml" in done.stderr
    assert "file:models/tiny-F32.gguf:" in lock.read_text()


def test_files_of_the_lab_may_be_links(lab: Path, models: Models) -> None:
    shared = lab.parent / "shared"
    shared.mkdir()
    for name, text in (("models.yaml", "models: {}\n"), ("models.lock.yaml", "models: {}\n")):
        (shared / name).write_text(text)
        (lab / name).symlink_to(shared / name)
    assert models("add", "tiny", str(lab / "models" / "tiny-F32.gguf")).exit_code == 0
    assert "tiny:" in (shared / "models.yaml").read_text()
    assert "tiny-F32.gguf:" in (shared / "models.lock.yaml").read_text()
    assert models("remove", "tiny").exit_code == 0
    for name in ("models.yaml", "models.lock.yaml"):
        assert (lab / name).is_symlink()
        assert "tiny" not in (shared / name).read_text()
