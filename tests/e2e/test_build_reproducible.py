"""The same inputs give the same bytes, wherever they are built."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from labctl.build.artifact import Artifact
from labctl.build.builder import build
from labctl.build.manifest import CompilerKind
from labctl.build.plan import BuildRequest
from labctl.errors import ToolMissing
from labctl.folders import cache_dir
from labctl.package_data import TOOLCHAINS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]


def built(cache: Path, monkeypatch: pytest.MonkeyPatch, request: BuildRequest) -> Artifact:
    """Build in a cache of its own; only zig's C library and fetched archives are shared.

    Objects are not: the folders' names are among the compiler's flags.
    """
    shared = cache_dir()
    cache.mkdir()
    for name in ("zig", "sources"):
        (shared / name).mkdir(parents=True, exist_ok=True)
        (cache / name).symlink_to((shared / name).resolve())
    with monkeypatch.context() as patch:
        patch.setenv("LABCTL_CACHE", str(cache))
        return build(request)


def same(first: Artifact, second: Artifact, workspace: Path) -> None:
    assert first.path != second.path
    assert first.manifest.key == second.manifest.key
    for name in second.manifest.tools:
        assert first.tool(name).read_bytes() == second.tool(name).read_bytes()
        assert str(workspace).encode() not in second.tool(name).read_bytes()


@pytest.mark.parametrize(
    "compiler", [CompilerKind.ZIG, pytest.param(CompilerKind.GCC, marks=pytest.mark.soak)]
)
def test_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: CompilerKind) -> None:
    lab = tmp_path / "lab"
    shutil.copytree(TOOLCHAINS / "agent", lab / "toolchains" / "agent")
    (lab / "toolchains" / "products").mkdir()
    shutil.copy(TOOLCHAINS / "products" / "agent.yaml", lab / "toolchains" / "products")
    here = BuildRequest(target="rk3568", product="agent", compiler=compiler)
    there = replace(here, lab_root=lab)
    try:
        first = built(tmp_path / "a", monkeypatch, here)
    except ToolMissing as error:
        pytest.skip(error.message)
    same(first, built(tmp_path / "another-place", monkeypatch, there), tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("compiler", [CompilerKind.ZIG, CompilerKind.GCC])
def test_a_small_tool_of_ggml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: CompilerKind
) -> None:
    """The first of both is the user's, which is there already but for the first time."""
    request = BuildRequest(target="rk3568", product="gguf-tools", compiler=compiler)
    try:
        first = build(request)
    except ToolMissing as error:
        pytest.skip(error.message)
    first.verify()
    same(first, built(tmp_path / "another-place", monkeypatch, request), tmp_path)
