"""The same inputs give the same bytes, wherever they are built."""

import shutil
from pathlib import Path

import pytest

from labctl.build import Artifact, BuildRequest, CompilerKind, build
from labctl.errors import ToolMissing
from labctl.files import cache_dir
from labctl.shipped import TOOLCHAINS

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


def same_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *requests: BuildRequest) -> None:
    first, second = (
        built(tmp_path / name, monkeypatch, request)
        for name, request in zip(("a", "another-place"), requests, strict=True)
    )
    assert first.path != second.path
    assert first.manifest.key == second.manifest.key
    for name in first.manifest.tools:
        assert first.tool(name).read_bytes() == second.tool(name).read_bytes()
        assert str(tmp_path).encode() not in first.tool(name).read_bytes()


def test_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = tmp_path / "lab"
    shutil.copytree(TOOLCHAINS / "agent", lab / "toolchains" / "agent")
    (lab / "toolchains" / "products").mkdir()
    shutil.copy(TOOLCHAINS / "products" / "agent.yaml", lab / "toolchains" / "products")
    here = BuildRequest(target="rk3568", product="agent")
    there = BuildRequest(target="rk3568", product="agent", lab_root=lab)
    same_twice(tmp_path, monkeypatch, here, there)


@pytest.mark.parametrize("compiler", [CompilerKind.ZIG, CompilerKind.GCC])
def test_a_small_tool_of_ggml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: CompilerKind
) -> None:
    request = BuildRequest(target="rk3568", product="gguf-tools", compiler=compiler)
    try:
        same_twice(tmp_path, monkeypatch, request, request)
    except ToolMissing as error:
        pytest.skip(error.message)
