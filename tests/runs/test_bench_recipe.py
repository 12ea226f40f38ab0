"""The recipe that ``labctl bench`` stands for, and the board that is named by its address."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example
from hypothesis import given as property_of
from hypothesis import strategies as st
from model_hub import model_hub
from tiny_gguf import write_tiny_gguf

from labctl import package_data
from labctl.config.lab import LabFile, lab_model
from labctl.config.models import ModelSource
from labctl.config.recipe import Recipe, load_recipe
from labctl.config.yaml.document import Document, parse
from labctl.config.yaml.loader import read_yaml
from labctl.errors import ConfigError
from labctl.models.resolve import resolve
from labctl.records.board import BoardFacts, CpuFacts, Execution, PhoneFacts
from labctl.runs.board.addressed import addressed_board, recognise
from labctl.runs.inputs.bench import bench_document, model_entries, recipe_text
from labctl.runs.inputs.prepare import read_recipe
from labctl.transport.built_in import TRANSPORTS

HEX = "ab" * 32


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LABCTL_STATE", str(tmp_path / "state"))
    for name in ("Small Model.Q8_0.gguf", "other/Small Model.Q8_0.gguf"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "models.yaml").write_text("models: {llama-8b: {file: llama.gguf}}\n")
    return tmp_path


def recipe_of(given: Sequence[str], root: Path, *settings: str, target: str = "rk3568") -> Recipe:
    return read_recipe(bench_document(model_entries(given, root), target), settings, lab_root=root)


def test_all_but_the_models_is_as_q8_latency_has_it(root: Path) -> None:
    made = recipe_of(["Small Model.Q8_0.gguf"], root, target="rk3588")
    base = load_recipe(package_data.RECIPES / "q8_latency.yaml")
    changed = {"name", "description", "target", "models", "model"}
    assert made.model_dump(exclude=changed) == base.model_dump(exclude=changed)
    assert (made.name, made.target, made.model) == ("bench", "rk3588", "small-model-q8_0")


def test_models_of_all_kinds_become_variants(root: Path) -> None:
    given = ("Small Model.Q8_0.gguf", "other/Small Model.Q8_0.gguf", "llama-8b")
    given += ("hf:o/r/Tiny-Q4_0.gguf@main", f"https://host/x.gguf#sha256={HEX}")
    recipe = recipe_of(given, root, "tokens=4")
    assert recipe.measured_models() == [
        "small-model-q8_0", "small-model-q8_0-2", "llama-8b", "tiny-q4_0", "x",
    ]  # fmt: skip
    assert recipe.models["small-model-q8_0-2"].file == "other/Small Model.Q8_0.gguf"
    assert recipe.models["llama-8b"].lab == "llama-8b"
    assert recipe.parameters["tokens"] == 4


def test_the_printed_recipe_is_the_same_recipe(root: Path) -> None:
    document = bench_document(model_entries(["llama-8b", "hf:o/r/T.gguf"], root), "rk3568")
    made = read_recipe(document, ("temperature=0.5",), lab_root=root)
    again = read_recipe(Document.parse(recipe_text(document), "printed"), lab_root=root)
    assert again == made


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(-1e18, 1e18)
    | st.text(st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from("\n\t\x85\x1b\0"))
    | st.from_regex(r"[-+]?(0o|0x)?[0-9]{1,3}[.:_]?([eE][-+]?[0-9])?", fullmatch=True),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a1eE-<~#\x85"), inner),
    max_leaves=6,
)


@property_of(VALUES)
@example(
    [
        "1e3",
        "1E5",
        "1E100",
        "9" * 30,
        "1e-5",
        "0o17",
        "0x1F",
        "012",
        ".5",
        "1.",
        "no",
        "~",
        "",
        "<<",
        "a\x85b",
    ]
)
@example({"1e3": "=", "<<": " a\n\n  b ", "x" * 200: "y " * 200})
@example(["a\u2028b", "\ufeff", "\U0001f600", "# a", "a: b", "---", "a\n", "\n", 1e-05, 1e17])
def test_a_written_recipe_reads_back_as_it_was(value: object) -> None:
    made = Document("made", {"v": value}, read_yaml(""))  # type: ignore[dict-item]
    written = recipe_text(made)
    assert Document.parse(written, "printed").value == {"v": value}


def test_names_of_files_are_no_references(root: Path) -> None:
    """An ``@`` and a ``#`` begin a revision and a hash in references alone."""
    given = ("a@b/llama.gguf", "a@b/qwen.gguf", "a#1/x@1.gguf", "models/1e3.gguf")
    for name in given:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"")
    recipe = recipe_of([*given, "hf:o/r/Tiny.gguf@v1"], root)
    assert recipe.measured_models() == ["llama", "qwen", "x-1", "1e3", "tiny"]


def test_a_file_outside_the_lab_has_its_whole_path(root: Path) -> None:
    lab = root / "other"
    recipe = recipe_of(["Small Model.Q8_0.gguf"], lab, target="rk3568")
    assert recipe.models["small-model-q8_0"].file == str(root / "Small Model.Q8_0.gguf")


def test_a_file_that_was_made_anew_is_measured_again(root: Path) -> None:
    """By its path, as a recipe's or the lab's model it has to stay what it was."""

    def hash_of(recipe: Recipe) -> str:
        (key,) = recipe.measured_models()
        found = resolve(recipe.models, [key], root=root, find_quantizer=lambda: pytest.fail(key))
        return found[key].identity.sha256

    write_tiny_gguf(root / "llama.gguf")
    by_path, by_name = recipe_of(["llama.gguf"], root), recipe_of(["llama-8b"], root)
    first = hash_of(by_path)
    assert hash_of(by_name) == first
    write_tiny_gguf(root / "llama.gguf", seed=2)
    assert hash_of(by_path) != first
    with pytest.raises(ConfigError, match="differs from"):
        hash_of(by_name)


def test_only_a_file_goes_without_the_lock() -> None:
    with pytest.raises(ConfigError, match="only a file"):
        parse("lab: m\nlock: false\n", ModelSource, "recipe")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["lama-8b"], "no file lama-8b, and no model of the lab has this name (did you mean"),
        (["llama-8b", "llama-8b"], "the model llama-8b is given twice"),
    ],
)
def test_what_is_no_model(root: Path, given: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        model_entries(given, root)
    assert message in refused.value.message


def facts(*parts: str, execution: str = "board", **known: object) -> BoardFacts:
    cpus = tuple(CpuFacts(count=4, implementer="0x41", part=part) for part in parts)
    return BoardFacts.model_validate(
        {"execution": execution, "machine": "aarch64", "kernel": "5.10", "boot_id": "b"}
        | {"cpus": cpus, **known}
    )


def test_a_board_is_recognised_by_its_cores() -> None:
    assert recognise(facts("0xd05"), None)[0].name == "rk3568"
    assert recognise(facts("0xd05", "0xd0b"), None)[0].name == "rk3588"
    assert recognise(facts("0xd05", machine="armv8l"), None)[0].name == "rk3568"
    qemu = "/usr/bin/qemu-aarch64-static -cpu cortex-a76"
    assert recognise(facts(execution="emulated", emulator=qemu), None)[0].name == "rk3568"
    phone = PhoneFacts(model="a phone")
    assert recognise(facts("0xd05", "0xd41", phone=phone), None)[0].name == "android-arm64"
    assert recognise(facts("0xd05", phone=phone), None)[0].name == "android-arm64"
    virtual = facts(execution="emulated", emulator=qemu, phone=phone)
    assert recognise(virtual, None)[0].name == "android-arm64"
    with pytest.raises(ConfigError, match="no target is known"):
        recognise(facts("0xd05", phone=phone, machine="x86_64"), None)
    native = facts(execution=Execution.NATIVE_HOST, machine="x86_64")
    assert recognise(native, None)[0].name == "host-x86_64"


def test_the_chip_in_the_device_tree_tells_more_than_the_cores(tmp_path: Path) -> None:
    ours = ("rockchip,rk3568-evb1-v10", "rockchip,rk3568")
    assert recognise(facts("0xd05", compatible=ours), None)[0].name == "rk3568"
    # Four Cortex-A55 too.
    other = facts("0xd05", compatible=("pine64,quartz64-a", "rockchip,rk3566"))
    with pytest.raises(ConfigError, match=r"no target is known .*quartz64-a, rockchip,rk3566"):
        recognise(other, None)
    small = facts("0xd05", "0xd0b", compatible=("radxa,rock-5a", "rockchip,rk3588s"))
    assert recognise(small, None)[0].name == "rk3588"
    # A target of a lab that names no chip.
    mine = tmp_path / "toolchains" / "mine" / "target.yaml"
    mine.parent.mkdir(parents=True)
    shipped_text = (package_data.TOOLCHAINS / "rk3568" / "target.yaml").read_text()
    lines = [line for line in shipped_text.splitlines() if not line.startswith("compatible")]
    mine.write_text("\n".join(lines).replace("name: rk3568", "name: mine") + "\n")
    assert recognise(other, tmp_path)[0].name == "mine"


def test_a_target_that_is_wrong_keeps_no_board_from_being_recognised(tmp_path: Path) -> None:
    broken = tmp_path / "toolchains" / "mine" / "target.yaml"
    broken.parent.mkdir(parents=True)
    broken.write_text("name: 3\n")
    found, left_out = recognise(facts("0xd05"), tmp_path)
    assert found.name == "rk3568"
    assert str(broken) in left_out[0]
    with pytest.raises(ConfigError) as refused:
        recognise(facts("0xd42"), tmp_path)
    assert str(broken) in (refused.value.hint or "")


def test_a_board_that_nobody_knows_is_asked_for_its_target() -> None:
    with pytest.raises(ConfigError) as refused:
        recognise(facts("0xd42"), None)
    assert "(aarch64, CPU 4 x 0xd42)" in refused.value.message
    assert "--target" in (refused.value.hint or "")


def test_an_address_of_the_lab_is_its_board(root: Path) -> None:
    """Without any contact: nothing listens there."""
    text = (
        'boards: {b: {target: rk3588, transport: {kind: hdc, link: tcp, address: "127.0.0.1:1"}}}'
    )
    lab = LabFile(root, parse(text, lab_model(TRANSPORTS), "devices.yaml"))
    found, board, how = addressed_board("127.0.0.1:1", lab)
    assert (found, board.name, board.target) == (lab, "b", "rk3588")
    assert "is board b of" in how
    with pytest.raises(ConfigError, match=r"is board b of .* a rk3588"):
        addressed_board("127.0.0.1:1", lab, "rk3568")


def test_a_repository_of_a_hub_is_the_file_that_it_gives(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with model_hub(b"GGUF") as hub:
        hub.names = ["m-Q4_K_M.gguf", "m-Q8_0.gguf"]
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        recipe = recipe_of(["hf:o/m", "hf:o/m:q8_0"], root)
    assert recipe.measured_models() == ["m-q4_k_m", "m-q8_0"]
    source = recipe.models["m-q8_0"].hub
    assert source is not None
    assert (source.repository, source.file) == ("o/m", "m-Q8_0.gguf")
