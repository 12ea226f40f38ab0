"""Patches beside the build specs: applied, recorded, and refused when they do not fit."""

import subprocess
from pathlib import Path

import pytest

from labctl.build.builder import build
from labctl.errors import ConfigError

pytestmark = pytest.mark.usefixtures("own_cache")

PATCH = """\
--- a/shared.c
+++ b/shared.c
@@ -1 +1 @@
-int add(int a, int b) { return a + b; }
+int add(int a, int b) { return a + b + 100; }
"""


def write(tiny_lab, text: str, name: str = "sum.patch", owner: str = "rk3568") -> Path:  # type: ignore[no-untyped-def]
    path: Path = tiny_lab.root / "toolchains" / owner / "patches" / "tiny" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_patch_is_applied_to_a_copy_and_recorded(tiny_lab) -> None:  # type: ignore[no-untyped-def]
    plain = build(tiny_lab.request("one"))
    before = (tiny_lab.source / "shared.c").read_text()
    write(tiny_lab, PATCH)
    patched = build(tiny_lab.request("one"))
    assert patched.path != plain.path
    assert (tiny_lab.source / "shared.c").read_text() == before
    (record,) = patched.manifest.source.patches
    assert record.name == "rk3568/patches/tiny/sum.patch"
    assert ("patch", record.name) in {(m.kind, m.name) for m in patched.manifest.materials}
    smoke = patched.manifest.tools["one"].smoke
    assert not smoke.done or "one 103 " in smoke.output
    assert build(tiny_lab.request("one")) == patched


def test_patches_of_all_targets_come_first_and_a_versions_own_last(tiny_lab) -> None:  # type: ignore[no-untyped-def]
    write(tiny_lab, PATCH, owner="products")
    second = PATCH.replace("a + b;", "a + b + 100;").replace("+ 100 + 100", "+ 200")
    assert second != PATCH
    write(tiny_lab, second.replace("b + 100 + 100;", "b + 200;"))
    third = write(tiny_lab, "", "first/none.patch")
    third.unlink()
    names = [p.name for p in build(tiny_lab.request("one")).manifest.source.patches]
    assert names == ["products/patches/tiny/sum.patch", "rk3568/patches/tiny/sum.patch"]
    write(tiny_lab, "does not matter", "other-version/x.patch")
    assert len(build(tiny_lab.request("one")).manifest.source.patches) == 2


def test_a_patch_that_does_not_apply_is_named(tiny_lab) -> None:  # type: ignore[no-untyped-def]
    path = write(tiny_lab, PATCH.replace("return a + b; }\n+", "return a - b; }\n+"))
    with pytest.raises(ConfigError) as caught:
        build(tiny_lab.request("one"))
    assert caught.value.message == f"patch {path} does not apply to the source"
    assert "shared.c" in (caught.value.details or "")


def test_the_users_own_source_is_built_as_it_is(tiny_lab) -> None:  # type: ignore[no-untyped-def]
    write(tiny_lab, PATCH)
    artifact = build(tiny_lab.request("one", source=tiny_lab.source))
    assert artifact.manifest.source.patches == ()


def test_a_patch_applies_inside_another_repository(tiny_lab, own_cache) -> None:  # type: ignore[no-untyped-def]
    """git must not take the cache for a part of a repository that happens to be around it."""
    subprocess.run(["git", "init", "--quiet", str(own_cache.parent)], check=True)
    write(tiny_lab, PATCH)
    smoke = build(tiny_lab.request("one")).manifest.tools["one"].smoke
    assert not smoke.done or "one 103 " in smoke.output
