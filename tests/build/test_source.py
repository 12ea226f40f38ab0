import os
import subprocess
from datetime import datetime
from pathlib import Path

import pytest

from labctl.build.progress import ignore
from labctl.build.source import (
    Folder,
    Patch,
    Patched,
    fetching,
    keep,
    repositories,
    source_files,
)
from labctl.build.source_git import Repository, absolute_address, local_repository
from labctl.build.source_lacks import empty_submodules, lfs_pointers
from labctl.errors import ConfigError, HostError, LabctlError, ServiceAway, ToolMissing
from labctl.file_hashes import sha256_file
from labctl.removal import remove_tree

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
    "address", ["https://git.invalid/o/r", "git@git.invalid:o/r", "git.invalid:o/r", "ext::x/r"]
)
def test_no_folder_takes_the_place_of_a_server(
    repository: Path, tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The present folder may be a checkout with a folder ``https:``."""
    planted = tmp_path / address
    planted.parent.mkdir(parents=True)
    repository.rename(planted)
    monkeypatch.chdir(tmp_path)
    assert Path(address).is_dir()
    assert Repository(address, "0" * 40).address == address
    assert local_repository(address) is None
    for named in (f"./{address}", str(planted)):
        assert Repository(named, "0" * 40).address == str(planted)


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
        ("http://127.0.0.1:9/x.git", "main", ServiceAway, "cannot reach"),
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


def test_files_of_a_repository_are_written_without_settings(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attributes of a tree name filters; the user's are for trees of the user's own."""
    ran = tmp_path / "ran"
    settings = tmp_path / "settings"
    settings.write_text(
        f"[filter \"f\"]\n\tsmudge = sh -c 'touch {ran}; cat'\n\trequired = true\n"
        f"[core]\n\thooksPath = {tmp_path / 'hooks'}\n"
        f"\tfsmonitor = touch {ran}\n\tautocrlf = true\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    (repository / ".gitattributes").write_text("*.c filter=f\n")
    git(repository, "-c", "filter.f.clean=cat", "add", ".")
    git(repository, "-c", "filter.f.clean=cat", "commit", "--quiet", "-m", "attributes")
    commit = git(repository, "rev-parse", "HEAD")
    (tmp_path / "hooks").mkdir()
    for name in ("post-checkout", "reference-transaction"):
        (tmp_path / "hooks" / name).write_text(f"#!/bin/sh\ntouch {ran}\n")
        (tmp_path / "hooks" / name).chmod(0o755)
    ran.unlink(missing_ok=True)
    for name in ("GIT_DIR", "GIT_WORK_TREE"):  # as a hook of git has them
        monkeypatch.setenv(name, str(repository / ".git"))
    home = Repository(str(repository), commit).fetch(ignore)
    assert (home / "file.c").read_bytes() == b"second"
    assert not ran.exists()


def test_a_hook_of_another_repository_leads_git_nowhere_else(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """git starts a hook with variables that name the hook's own repository."""
    patch = tmp_path / "a.patch"
    patch.write_text("--- a/file.c\n+++ b/file.c\n@@ -1 +1 @@\n-second\n+patched\n")
    (repository / "file.c").write_text("second\n")

    def found(name: str) -> tuple[object, ...]:
        source = Folder(repository)
        change = Patch(patch, name, sha256_file(patch))
        text = (Patched(source, [change]).fetch(ignore) / "file.c").read_text()
        return source.identity, source.committed(), source_files(repository), text

    expected = found("plain")
    assert expected[-1] == "patched\n"
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "--quiet")
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    assert found("index") == expected
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    assert found("all") == expected


def test_a_relative_bundle_is_a_repository(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(repository, "bundle", "create", "--quiet", str(tmp_path / "x.bundle"), "--all")
    monkeypatch.chdir(tmp_path)
    assert (Repository("x.bundle", "main").fetch(ignore) / "file.c").read_text() == "second"


def test_what_git_keeps_for_itself_is_found_wherever_it_is(tmp_path: Path) -> None:
    source, outside = tmp_path / "source", tmp_path / "outside"
    for folder in (
        ".git/modules/inner",
        "whole/.git",
        "kept/worktrees/w",
        "apart",
        "linked",
        "code",
    ):
        (source / folder).mkdir(parents=True)
    outside.mkdir()
    (source / "apart" / ".git").write_text("gitdir: ../kept/worktrees/w\n")
    (source / "kept" / "worktrees" / "w" / "commondir").write_text("../..\n")
    (source / "linked" / ".git").symlink_to("../whole/.git")
    for number, content in enumerate((f"gitdir: {outside}", "gitdir: .", "code", "gitdir: \0")):
        (source / f"no-{number}").mkdir()
        (source / f"no-{number}" / ".git").write_text(content)
    (source / "round").mkdir()
    (source / "round" / ".git").symlink_to(".git")
    (source / "turning" / ".git").mkdir(parents=True)
    (source / "turning" / ".git" / "commondir").write_text(".")
    (source / "waiting").mkdir()
    os.mkfifo(source / "waiting" / ".git")
    found = [".git", "apart/.git", "kept", "turning/.git", "waiting/.git", "whole/.git"]
    found += ["no-0/.git", "no-1", "no-2/.git", "no-3/.git"]
    assert repositories(source) == sorted(found)


def test_a_source_is_copied_for_its_patches_however_deep(own_cache: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    deep = source / ("d/" * 1200)
    for depth in (600, 1200):  # it recurses
        (source / ("d/" * depth)).mkdir(parents=True, exist_ok=True)
    (deep / "a.c").write_text("int a;")
    (deep / "link").symlink_to("/nowhere")
    (source / ".git").mkdir()
    patch = tmp_path / "some.patch"
    patch.write_text("--- /dev/null\n+++ b/new.c\n@@ -0,0 +1 @@\n+int b;\n")
    try:
        patched = Patched(Folder(source), [Patch(patch, "some.patch", sha256_file(patch))])
        tree = patched.fetch(ignore)
        assert (tree / ("d/" * 1200) / "a.c").read_text() == "int a;"
        assert (tree / ("d/" * 1200) / "link").is_symlink()
        assert (tree / "new.c").read_text() == "int b;\n"
        assert not (tree / ".git").exists()
    finally:
        remove_tree(source)
        remove_tree(own_cache / "sources")


def test_an_untrusted_source_is_known_without_what_git_keeps(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "a.c").write_text("int main;")
    before = Folder(tmp_path, read_git=False).identity.digest
    (tmp_path / ".git" / "config").write_text("[http] extraheader = AUTHORIZATION: basic secret")
    assert Folder(tmp_path, read_git=False).identity.digest == before
    (tmp_path / "a.c").write_text("int main(void);")
    assert Folder(tmp_path, read_git=False).identity.digest != before


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("remote: fatal: No space left on device", ConfigError),
        ("fatal: remote error: Connection reset by peer", ConfigError),
        ("fatal: write error: No space left on device", HostError),
        ("fatal: unable to access 'https://example.org/': Connection refused", ServiceAway),
    ],
)
def test_a_server_of_git_does_not_speak_for_this_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, kind: type[LabctlError]
) -> None:
    git = tmp_path / "git"
    git.write_text(f'#!/bin/sh\necho "{line}" >&2\nexit 128\n')
    git.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(LabctlError) as caught:
        Repository("https://example.org/llama.cpp", "main")
    assert type(caught.value) is kind
    assert line in (caught.value.details or "")


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


@pytest.fixture
def outer(repository: Path, tmp_path: Path) -> Path:
    """A repository with a submodule, which has one itself; both lie beside it."""
    for name, inner in (("middle", "repository"), ("outer", "middle")):
        folder = tmp_path / name
        folder.mkdir()
        git(folder, "init", "--quiet", "--initial-branch", "main")
        allowed = ("-c", "protocol.file.allow=always")
        git(folder, *allowed, "submodule", "--quiet", "add", f"../{inner}", f"vendor/{inner}")
        (folder / f"{name}.c").write_text(name)
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", name)
    assert repository.is_dir()
    return tmp_path / "outer"


@pytest.fixture
def files_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who lets git fetch submodules from folders."""
    settings = tmp_path / "settings"
    settings.write_text('[protocol "file"]\n\tallow = always\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))


@pytest.mark.usefixtures("files_allowed")
def test_submodules_are_part_of_a_commit(outer: Path) -> None:
    tree = Repository(str(outer), "main").fetch(ignore)
    inner = "vendor/middle/vendor/repository/file.c"
    assert (tree / inner).read_text() == "second"
    assert {inner, "vendor/middle/middle.c"} <= {*source_files(tree)}
    assert empty_submodules(tree) == []


def test_a_submodule_that_cannot_be_fetched_is_named(outer: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        Repository(str(outer), "main").fetch(ignore)
    assert "submodule vendor/middle of" in refused.value.message
    assert "protocol.file.allow" in (refused.value.hint or "")
    commit = git(outer, "rev-parse", "HEAD")
    with pytest.raises(ConfigError, match=r"submodule vendor/middle of .*: nobody vouches for"):
        Repository(str(outer), commit, submodules=False).fetch(ignore)
    git(outer, "config", "-f", ".gitmodules", "submodule.vendor/middle.update", "none")
    git(outer, "commit", "--quiet", "-am", "left out")
    tree = Repository(str(outer), "main").fetch(ignore)
    assert empty_submodules(tree) == ["vendor/middle"]


def test_a_commit_that_names_a_repository_without_an_address_is_refused(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{commit},deep/inner")
    git(repository, "commit", "--quiet", "-m", "a link")
    with pytest.raises(ConfigError, match=r"submodule deep/inner of .*: \.gitmodules has no url"):
        Repository(str(repository), "main").fetch(ignore)


@pytest.mark.parametrize(
    ("url", "address", "expected"),
    [
        ("https://b.example/x", "https://a.example/o/r.git", "https://b.example/x"),
        ("../x.git", "https://a.example/o/r.git", "https://a.example/o/x.git"),
        ("../../p/x", "https://a.example/o/r.git/", "https://a.example/p/x"),
        ("./x", "/srv/git/r", "/srv/git/r/x"),
        ("../x", "git@a.example:r", "git@a.example:x"),
    ],
)
def test_a_relative_address_begins_at_the_outer_repository(
    url: str, address: str, expected: str
) -> None:
    assert absolute_address(url, address) == expected


def test_a_shallow_clone_says_that_it_is_shallow(repository: Path, tmp_path: Path) -> None:
    first = git(repository, "rev-parse", "HEAD~1")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{repository}", str(clone))
    assert (Repository(str(clone), "main").fetch(ignore) / "file.c").read_text() == "second"
    with pytest.raises(ConfigError, match=f"is shallow.*it does not have '{first}'") as refused:
        Repository(str(clone), first).fetch(ignore)
    assert f"git -C {clone} fetch --unshallow" in (refused.value.hint or "")


def test_pointers_of_lfs_are_found(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "table.inc").write_text(LFS)
    (tmp_path / "spec.md").write_text(f"{LFS}{'and how it is read. ' * 100}")
    (tmp_path / "x.c").write_text("int x;")
    assert list(lfs_pointers(tmp_path)) == ["data/table.inc"]
