import os
import subprocess
from datetime import datetime
from pathlib import Path

import pytest

from labctl.build.progress import ignore
from labctl.build.source import Folder, fetching, keep, source_files
from labctl.build.source_git import Repository
from labctl.errors import ConfigError, HostError, LabctlError, ToolMissing
from labctl.files import remove_tree

pytestmark = pytest.mark.usefixtures("own_cache")


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    argv = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits, the first of them tagged twice, and a branch at the second."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch", "main")
    for name in ("first", "second"):
        (folder / "file.c").write_text(name)
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", name)
        if name == "first":
            git(folder, "tag", "plain")
            git(folder, "tag", "-a", "-m", "annotated", "annotated")
    return folder


def test_a_folder_is_known_by_its_content_alone(tmp_path: Path) -> None:
    digests = []
    for workspace in ("a", "b"):
        folder = tmp_path / workspace
        (folder / "sub").mkdir(parents=True)
        (folder / "sub" / "x.c").write_text("int x;")
        (folder / "link").symlink_to("sub/x.c")
        digests.append(Folder(folder).identity.digest)
    assert digests[0] == digests[1]
    (tmp_path / "b" / "sub" / "x.c").rename(tmp_path / "b" / "sub" / "y.c")
    assert Folder(tmp_path / "b").identity.digest != digests[0]


@pytest.mark.parametrize("depth", [1500, 3000])
def test_a_folder_of_others_may_be_deep(tmp_path: Path, depth: int) -> None:
    """Beyond 4,095 bytes no path leads to a file: such a source is refused."""
    folder, deep = tmp_path / "source", tmp_path / "source"
    folder.mkdir()
    here = os.open(folder, os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here, deep = below, deep / "d"
    os.close(here)
    try:
        if depth > 2000:
            with pytest.raises(ConfigError, match="name too long"):
                Folder(folder, read_git=False)
            return
        before = Folder(folder, read_git=False).identity.digest
        (deep / "x.c").write_text("int x;")
        assert Folder(folder, read_git=False).identity.digest != before
    finally:
        remove_tree(folder)


def test_a_work_tree_tells_its_commit_and_what_git_ignores_does_not_count(repository: Path) -> None:
    clean = Folder(repository).identity
    assert clean.commit == git(repository, "rev-parse", "HEAD")
    assert clean.dirty is False
    (repository / ".gitignore").write_text("build/\n")
    with_ignore = Folder(repository).identity
    assert with_ignore.dirty is True
    assert with_ignore.revision == f"{clean.commit[:7]}-dirty"
    (repository / "build").mkdir()
    (repository / "build" / "a.o").write_text("object")
    assert Folder(repository).identity.digest == with_ignore.digest


def test_a_source_of_git_knows_when_it_was_committed(repository: Path, tmp_path: Path) -> None:
    expected = datetime.fromisoformat(git(repository, "show", "--no-patch", "--format=%cI", "main"))
    assert Folder(repository).committed() == expected
    source = Repository(str(repository), "main")
    assert source.committed() is None  # before it is here
    source.fetch(ignore)
    assert source.committed() == expected
    (tmp_path / "plain").mkdir()
    assert Folder(tmp_path / "plain").committed() is None


def test_an_edit_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.c").write_text("int a;")
    source = Folder(tmp_path / "src")
    source.verify_unchanged()
    (tmp_path / "src" / "a.c").write_text("int b;")
    with pytest.raises(ConfigError, match="was changed while it was being built"):
        source.verify_unchanged()


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is not a folder"):
        Folder(tmp_path / "file")


@pytest.mark.parametrize(
    ("ref", "content"), [("plain", "first"), ("annotated", "first"), ("main", "second")]
)
def test_a_ref_is_fetched_as_the_commit_that_it_means(
    repository: Path, ref: str, content: str
) -> None:
    source = Repository(f"file://{repository}", ref)
    assert source.identity.commit == git(repository, "rev-parse", f"{ref}^{{commit}}")
    tree = source.fetch(ignore)
    assert (tree / "file.c").read_text() == content
    assert Repository(str(repository), ref).fetch(ignore) == tree


def test_a_branch_that_moves_is_another_source(repository: Path) -> None:
    before = Repository(str(repository), "main").identity
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "third")
    assert Repository(str(repository), "main").identity.digest != before.digest


@pytest.mark.parametrize(
    ("address", "ref", "kind", "message"),
    [
        ("REPOSITORY", "absent", ConfigError, "has no tag or branch 'absent'"),
        ("REPOSITORY", "--upload-pack=x", ConfigError, "is not a git ref"),
        ("--upload-pack=x", "main", ConfigError, "is not the address of a repository"),
        ("/no/such/repository", "main", ConfigError, "git cannot fetch"),
        ("http://127.0.0.1:9/x.git", "main", HostError, "cannot reach"),
    ],
)
def test_what_cannot_be_fetched(
    repository: Path, address: str, ref: str, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        Repository(address.replace("REPOSITORY", str(repository)), ref)


def test_without_git(repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissing, match="git"):
        Repository(str(repository), "main")


def test_what_a_killed_fetch_left_is_removed(own_cache: Path) -> None:
    home = own_cache / "sources" / "abc"
    left = home.with_name(".fetch-abc")
    left.mkdir(parents=True)
    (left / "half").write_text("")
    with fetching(home, timeout=1) as scratch:
        assert scratch is not None
        assert list(scratch.iterdir()) == []
        (scratch / "tree").mkdir()
        keep(scratch / "tree", home)
    assert home.is_dir()
    assert not left.exists()
    with fetching(home, timeout=1) as scratch:
        assert scratch is None


def test_what_a_submodule_holds_is_part_of_a_source(repository: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "--quiet")
    added = ("submodule", "--quiet", "add", str(repository), "vendor/inner")
    git(outer, "-c", "protocol.file.allow=always", *added)
    git(outer, "commit", "--quiet", "-m", "outer")
    assert "vendor/inner/file.c" in source_files(outer)
    before = Folder(outer).identity
    (outer / "vendor" / "inner" / "file.c").write_text("third")
    after = Folder(outer).identity
    assert after.digest != before.digest
    assert (before.dirty, after.dirty) == (False, True)


def test_a_script_that_may_run_is_another_source(tmp_path: Path) -> None:
    (tmp_path / "make.sh").write_text("#!/bin/sh\n")
    before = Folder(tmp_path).identity.digest
    (tmp_path / "make.sh").chmod(0o755)
    assert Folder(tmp_path).identity.digest != before


def test_a_password_in_an_address_stays_with_git(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    source = Repository("https://me:s3cret@git.example.invalid/x.git", commit)
    assert source.identity.location == "https://git.example.invalid/x.git"
    with pytest.raises(LabctlError) as caught:
        source.fetch(ignore)
    said = f"{caught.value.message} {caught.value.details} {caught.value.hint}"
    assert "s3cret" not in said
