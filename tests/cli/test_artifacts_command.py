import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from labctl.build.artifact import Artifact, list_artifacts
from labctl.build.artifact_store import clear_killed_builds
from labctl.build.builder import build
from labctl.build.container.answers import questions_dir
from labctl.build.plan import BuildRequest
from labctl.build.progress import ignore
from labctl.build.source import Sdk
from labctl.cli.root import run_cli
from labctl.errors import ExitStatus
from labctl.folders import cache_dir
from labctl.locks import locked
from labctl.removal import remove_tree

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


def a_month_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Later(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.fromtimestamp(time.time(), UTC) + timedelta(days=31)

    monkeypatch.setattr("labctl.build.artifact_store.datetime", Later)


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
    a_month_passes(monkeypatch)
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


EVIL = "\x1b]0;evil\x07\x9b2J\r[/x][red]"


def test_no_text_of_an_artifact_is_an_order_to_the_terminal(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = built(lab, 0), built(lab, 1)
    for artifact in (one, two):
        path = artifact.path / "manifest.json"
        manifest = json.loads(path.read_text())
        tool = manifest["tools"].pop("hello")
        tool["sections"] = {f"{name}{EVIL}": size for name, size in tool["sections"].items()}
        tool["smoke"] = {"done": False, "reason": f"reason{EVIL}"}
        manifest["tools"] = {f"hello{EVIL}": tool}
        manifest["flags"] = [f"flag{EVIL}", artifact.manifest.key]
        manifest["source"]["location"] = f"{lab}{EVIL}"
        manifest["source"]["commit"] = f"commit{EVIL}"
        manifest["toolchain"]["version"] = f"0.1{EVIL}"
        path.write_text(json.dumps(manifest))
    names = [artifact.manifest.key[:8] for artifact in (one, two)]
    for words in (["list"], ["show", names[0]], ["verify"], ["diff", *names], ["prune"]):
        artifacts(*words)
        said = capsys.readouterr()
        for text in (said.out, said.err):
            assert all(c.isprintable() or c == "\n" for c in text), words
        if words[0] == "diff":
            assert ".text\\x1b]0;evil\\x07\\x9b2J\\x0d[/x][red]" in said.out


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    a_month_passes(monkeypatch)


def home_of(name: str, *folders: str) -> Path:
    home = cache_dir() / "build" / "rk3568" / name
    for folder in folders:
        (home / folder).mkdir(parents=True)
        (home / folder / "file").touch()
    home.mkdir(parents=True, exist_ok=True)
    (home / "build.log").touch()
    return home


FAILED = "tiny-first-0123456789ab"
KILLED = "tiny-untrusted-ba9876543210-ba9876543210"
RUNNING = "tiny-untrusted-cccccccccccc-cccccccccccc"


@pytest.mark.usefixtures("lab", "later")
def test_what_builds_left_without_an_artifact_is_removed_when_old(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed, running = home_of(FAILED, "tree"), home_of(RUNNING, "tree")
    source = cache_dir() / "sources" / ("a" * 64)
    source.mkdir(parents=True)
    with locked(cache_dir() / "locks" / "build-cccccccccccc.lock", timeout=0):
        assert artifacts("prune") == 0
        assert not failed.exists()
        assert running.exists()
        assert source.exists()  # it may be the source of the build
    assert artifacts("prune", "--dry-run") == 0
    assert source.exists()
    assert artifacts("prune") == 0
    assert not running.exists()
    assert not source.exists()
    said = capsys.readouterr().out
    for path in (failed, running, source):
        assert f"removed  {path}" in said


@pytest.mark.usefixtures("lab")
def test_the_tree_of_a_killed_untrusted_build_is_removed_at_once() -> None:
    failed, killed = home_of(FAILED, "tree"), home_of(KILLED, "tree", "ccache", "container")
    assert artifacts("prune") == 0
    assert failed.exists()
    assert not killed.exists()
    killed, running = home_of(KILLED, "tree"), home_of(RUNNING, "tree")
    with locked(cache_dir() / "locks" / "build-cccccccccccc.lock", timeout=0):
        clear_killed_builds()
    assert [path.name for path in killed.iterdir()] == ["build.log"]
    assert sorted(path.name for path in running.iterdir()) == ["build.log", "tree"]
    assert sorted(path.name for path in failed.iterdir()) == ["build.log", "tree"]


@pytest.mark.usefixtures("later")
def test_the_last_of_an_untrusted_version_is_removed_when_old(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    artifact = built(lab, 0)
    path = artifact.path / "manifest.json"
    link = artifact.path.with_name("tiny-first")
    path.write_text(path.read_text().replace('"untrusted": false', '"untrusted": true'))
    assert artifacts("prune") == 0
    assert list_artifacts() == []
    assert not link.is_symlink()
    assert f"removed  {artifact.path}" in capsys.readouterr().out


def sources() -> list[Path]:
    made = [cache_dir() / "sources" / (letter * 64) for letter in "ab"]
    for source in made:
        source.mkdir(parents=True)
    return made


@pytest.mark.usefixtures("lab", "later")
def test_the_source_of_a_build_that_began_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    (first, second), began = sources(), list[bool]()
    with ExitStack() as building:

        def slowly(folder: Path) -> None:
            remove_tree(folder)
            if not first.exists() and not began:
                began.append(True)
                lock = locked(cache_dir() / "locks" / "build-cccccccccccc.lock", timeout=0)
                building.enter_context(lock)

        monkeypatch.setattr("labctl.build.artifact_store.remove_tree", slowly)
        assert artifacts("prune") == 0
        assert [first.exists(), second.exists()] == [False, True]


@pytest.mark.usefixtures("lab")
def test_a_build_waits_for_the_lock_of_a_source_that_is_there(tmp_path: Path) -> None:
    """So that whoever removes the source either sees the build, or has done."""
    sdk = Sdk(str(tmp_path))
    sdk.fetch(ignore)
    with ThreadPoolExecutor() as pool:
        with locked(sdk.home.with_name(f"{sdk.home.name}.lock"), timeout=0):
            fetched = pool.submit(sdk.fetch, ignore)
            with pytest.raises(TimeoutError):
                fetched.result(timeout=0.5)
            remove_tree(sdk.home)
        assert fetched.result(timeout=30).is_dir()


@pytest.mark.usefixtures("lab", "later")
def test_what_another_labctl_removes_meanwhile_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    home, question = home_of(FAILED, "tree"), questions_dir() / "question"
    question.mkdir(parents=True)
    gone = [*sources(), home / "tree", question]
    lstat = Path.lstat

    def vanishing(path: Path) -> os.stat_result:
        if path in gone:
            remove_tree(path)
        return lstat(path)

    monkeypatch.setattr(Path, "lstat", vanishing)
    assert artifacts("prune") == 0
    assert not any(path.exists() for path in (*gone, home))
