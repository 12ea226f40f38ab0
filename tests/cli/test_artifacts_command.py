import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from labctl.build import Artifact, BuildRequest, build, list_artifacts
from labctl.cli.root import run_cli
from labctl.errors import ExitStatus
from labctl.files import cache_dir

SPEC = """\
product: tiny
description: one small program
builder: compile
default_version: first
versions:
  first: {source: {folder: ../../tiny}}
tools:
  hello: {sources: [hello.c], flags: [-O2, -static]}
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    zig = cache_dir() / "zig"
    zig.mkdir(parents=True, exist_ok=True)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "zig").symlink_to(zig)
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "lab"
    (root / "toolchains" / "rk3568").mkdir(parents=True)
    (root / "toolchains" / "rk3568" / "tiny.yaml").write_text(SPEC)
    (root / "tiny").mkdir()
    return root


def built(lab: Path, value: int) -> Artifact:
    (lab / "tiny" / "hello.c").write_text(f"int main(void) {{ return {value}; }}\n")
    return build(BuildRequest(target="rk3568", product="tiny", lab_root=lab))


def artifacts(*words: str) -> int:
    return run_cli(["artifacts", *words])


def test_the_list_marks_what_a_version_means_now(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = built(lab, 0), built(lab, 1)
    assert artifacts("list") == 0
    lines = capsys.readouterr().out.splitlines()
    marked = [line for line in lines if line.startswith("*")]
    assert len(marked) == 1
    assert new.manifest.key[:12] in marked[0]
    assert artifacts("list", "--json", "--target", "rk3568") == 0
    rows = json.loads(capsys.readouterr().out)
    assert list(rows[0]) == ["current", *old.document()]
    assert {row["path"]: row["current"] for row in rows} == {
        str(old.path): False,
        str(new.path): True,
    }
    assert artifacts("list", "--json", "--target", "other") == 0
    assert json.loads(capsys.readouterr().out) == []


def test_an_artifact_is_shown_by_name_or_key(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artifact = built(lab, 0)
    for name in ("rk3568/tiny-first", f"rk3568/{artifact.path.name}", artifact.manifest.key[:6]):
        assert artifacts("show", name) == 0
        assert json.loads(capsys.readouterr().out)["key"] == artifact.manifest.key
    for name in ("rk3568/tiny-frist", "../artifacts", "ffff", artifact.manifest.key[:3]):
        assert artifacts("show", name) == ExitStatus.CONFIG
        assert "artifacts list" in capsys.readouterr().err


def test_damaged_tools_are_found(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = built(lab, 0), built(lab, 1)
    assert artifacts("verify") == 0
    capsys.readouterr()
    tool = bad.tool("hello")
    raw = bytearray(tool.read_bytes())
    raw[-1] ^= 1
    tool.write_bytes(raw)
    assert artifacts("verify") == ExitStatus.INFRA
    said = capsys.readouterr()
    assert f"good  {good.path}" in said.out
    assert "1 of 2 artifacts are damaged" in said.err
    assert str(tool) in said.err
    assert artifacts("verify", good.manifest.key[:8]) == 0


def test_a_difference_is_told_by_field_and_section(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = built(lab, 0), built(lab, 1)
    names = [artifact.manifest.key[:8] for artifact in (one, two)]
    assert artifacts("diff", *names) == 0
    out = capsys.readouterr().out
    assert "tools.hello.sha256" in out
    assert "toolchain.version" not in out
    assert "hello: bytes" in out
    assert ".text" in out
    assert artifacts("diff", *names, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    hashes = [a.manifest.tools["hello"].sha256 for a in (one, two)]
    assert said["fields"]["tools.hello.sha256"] == hashes
    sizes = [a.manifest.tools["hello"].size_bytes for a in (one, two)]
    assert said["sections"]["hello"]["whole file"] == sizes
    assert artifacts("diff", names[0], names[0]) == 0
    assert "the manifests are equal" in capsys.readouterr().out
    assert artifacts("diff", names[0]) == ExitStatus.CONFIG


def nested(folder: Path, elsewhere: Path, *, depth: int) -> None:
    """What an untrusted build can leave: folders deeper than any path, without rights, links."""
    folder.mkdir(parents=True, exist_ok=True)
    here = os.open(folder, os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        os.symlink(elsewhere, "link", dir_fd=here)
        below = os.open("d", os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.fchmod(here, 0o500)
    os.close(here)


def test_only_old_ones_that_nothing_means_are_removed(
    lab: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = built(lab, 0), built(lab, 1)
    assert artifacts("prune") == 0
    assert len(list_artifacts()) == 2

    class Later(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.fromtimestamp(time.time(), UTC) + timedelta(days=31)

    monkeypatch.setattr("labctl.build.artifact_store.datetime", Later)
    capsys.readouterr()
    (lab / "kept").mkdir()
    (lab / "kept" / "file").touch()
    tree = cache_dir() / "build" / "rk3568" / old.path.name / "tree"
    nested(tree, lab / "kept", depth=3000)
    assert artifacts("prune", "--dry-run") == 0
    assert f"would remove  {old.path}" in capsys.readouterr().out
    assert len(list_artifacts()) == 2
    assert artifacts("prune", "--older", "30d") == 0
    assert list_artifacts() == [new]
    assert not os.path.lexists(cache_dir() / "build" / "rk3568" / old.path.name)
    assert (lab / "kept" / "file").exists()
    assert artifacts("prune", "--older", "30") == ExitStatus.CONFIG
