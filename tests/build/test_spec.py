from pathlib import Path

import pytest

from labctl.build.spec import SHARED, ElfKind, PackageSource, find_spec
from labctl.config.target import target_names, toolchain_folders
from labctl.errors import ConfigError


def test_every_shipped_spec_loads_for_every_target() -> None:
    for target in target_names(None):
        folders = [folder / name for folder in toolchain_folders(None) for name in (target, SHARED)]
        names = {path.stem for folder in folders for path in folder.glob("*.yaml")} - {"target"}
        assert {"agent", "llama.cpp"} <= names
        for name in names:
            assert find_spec(target, name, None)[0].product == name


def test_llama_cpp_has_two_pinned_versions() -> None:
    spec, _ = find_spec("rk3568", "llama.cpp", None)
    label, newer = spec.version(None)
    assert label == "new"
    assert isinstance(newer.source, PackageSource)
    assert newer.source.commit == "0c1e57098bba43ac29e6e3b677cdceebdd22334f"
    assert "llama-completion" in spec.tools_of(newer)
    _, classic = spec.version("classic")
    assert "llama-completion" not in spec.tools_of(classic)
    assert spec.definitions["GGML_NATIVE"] is False


def test_the_agent_is_made_of_all_its_sources() -> None:
    spec, path = find_spec("rk3568", "agent", None)
    folder = path.parent / "../agent"
    sources = {file.name for file in folder.glob("*.c")} - {"exec_shim.c"}
    assert set(spec.tools["agent"].sources) == sources


def test_the_shim_is_a_shared_object_of_the_host() -> None:
    spec, _ = find_spec("host-x86_64", "sandbox-shim", None)
    assert spec.tools["exec_shim.so"].elf is ElfKind.SHARED_OBJECT
    with pytest.raises(ConfigError, match="sandbox-shim"):
        find_spec("rk3568", "sandbox-shim", None)


SPEC = """\
product: agent
description: own
builder: compile
default_version: one
versions:
  one: {source: {folder: src}}
tools:
  agent: {sources: [a.c]}
"""


@pytest.mark.parametrize("folder", ["rk3568", "products"])
def test_a_labs_own_spec_wins(tmp_path: Path, folder: str) -> None:
    file = tmp_path / "toolchains" / folder / "agent.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(SPEC)
    assert find_spec("rk3568", "agent", tmp_path)[1] == file


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("default_version: one", "default_version: onw", "did you mean 'one'?"),
        ("{folder: src}", "{folder: src}, tools: [agnet]", "did you mean 'agent'?"),
        ("builder: compile", "builder: cmake", "tools.agent.sources"),
        (
            "builder: compile",
            "builder: make",
            "builder: must be cmake, compile or steps, not 'make'",
        ),
        ("{folder: src}", "{package: p, release: 1.0.0, sha256: abc}", "64 hexadecimal digits"),
        ("product: agent", "product: agents", "must be 'agent', the file's name"),
    ],
)
def test_a_spec_that_cannot_be(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "toolchains" / "products" / "agent.yaml"
    file.parent.mkdir(parents=True)
    assert old in SPEC
    file.write_text(SPEC.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        find_spec("rk3568", "agent", tmp_path)
    assert message in caught.value.message
    assert str(file) in caught.value.message
