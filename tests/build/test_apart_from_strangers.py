"""What of a stranger's folder must not count as the lab's, or as labctl's own."""

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from labctl.build.dry_run import explain_build
from labctl.build.plan import BuildRequest
from labctl.build.spec import GitSource, find_spec
from labctl.build.untrusted import check_untrusted, stand_apart
from labctl.errors import ConfigError


@pytest.fixture
def lab(tmp_path: Path, own_cache: None, private_state: Path) -> Path:
    lab = tmp_path / "lab"
    (lab / "toolchains").mkdir(parents=True)
    return lab


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A work tree with a source in a subfolder."""
    folder = tmp_path / "checkout"
    (folder / "source").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", folder], check=True)
    return folder


def test_a_lab_elsewhere_is_taken(lab: Path, checkout: Path) -> None:
    stand_apart(lab, checkout)
    stand_apart(lab, checkout / "source")


def test_no_way_leads_to_a_lab_in_the_checkout(lab: Path, checkout: Path, tmp_path: Path) -> None:
    (checkout / "lab" / "toolchains").mkdir(parents=True)
    (checkout / "link").symlink_to(lab)
    (tmp_path / "outer").symlink_to(checkout / "lab")
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "toolchains").symlink_to(checkout / "lab" / "toolchains")
    for folder in (checkout, checkout / "source"):
        for named in (checkout / "lab", checkout, tmp_path / "outer", linked, tmp_path):
            with pytest.raises(ConfigError, match="share a folder"):
                stand_apart(named, folder)
    with pytest.raises(ConfigError, match="share a folder"):
        stand_apart(checkout / "link", checkout)  # the checkout says where it leads


def test_a_work_tree_of_the_labs_own_repository_is_apart(lab: Path, tmp_path: Path) -> None:
    """`git worktree add`: a file `.git` that names the lab's repository."""
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    for words in (("init", "-q"), (*identity, "commit", "-q", "--allow-empty", "-m", "x")):
        subprocess.run(["git", "-C", lab, *words], check=True)
    tree = tmp_path / "tree"
    subprocess.run(["git", "-C", lab, "worktree", "add", "-q", tree], check=True)
    stand_apart(lab, tree)
    with pytest.raises(ConfigError, match="share a folder"):
        stand_apart(tree, tree)


@pytest.fixture
def submodule(checkout: Path) -> Path:
    """A work tree of its own within the checkout."""
    folder = checkout / "third_party" / "llama"
    folder.mkdir(parents=True)
    (folder / ".git").write_text("gitdir: ../../.git/modules/llama\n")
    return folder


def untrusted(lab: Path | None, source: Path | str) -> BuildRequest:
    given = source if isinstance(source, Path) else GitSource(git=source, ref="0" * 40)
    return BuildRequest(target="rk3568", source=given, lab_root=lab, untrusted=True)


def test_a_submodule_belongs_to_the_checkout_around_it(
    lab: Path, checkout: Path, submodule: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = checkout / "lab"
    (theirs / "toolchains").mkdir(parents=True)
    (submodule / "link").symlink_to(lab)
    inner = submodule / "src"
    inner.mkdir()
    for folder in (submodule, inner, submodule / "link"):
        with pytest.raises(ConfigError, match="share a folder") as caught:
            stand_apart(theirs, folder)
    assert caught.value.hint is not None
    monkeypatch.chdir(inner)
    for source in (Path(), "https://git.invalid/x.git", str(submodule), f"file://{submodule}"):
        with pytest.raises(ConfigError, match="share a folder"):
            explain_build(untrusted(theirs, source))
    stand_apart(lab, submodule)


def test_a_lab_in_an_unrelated_repository_around_all_is_told_what_to_do(
    lab: Path, checkout: Path, tmp_path: Path
) -> None:
    """A home folder under git: labctl cannot know that the files are not the checkout's."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    with pytest.raises(ConfigError, match="cache and state") as caught:
        stand_apart(lab, checkout)
    assert f"--git-dir DIR --work-tree {tmp_path}" in str(caught.value.hint)
    (tmp_path / ".git").rename(tmp_path / "dotfiles.git")
    stand_apart(lab, checkout)


@pytest.mark.parametrize("variable", ["LABCTL_CACHE", "LABCTL_STATE"])
def test_cache_and_state_are_not_of_the_work_tree_around_either(
    lab: Path, submodule: Path, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither with a subfolder or a submodule, nor with ``--git``, nor without a lab."""
    checkout = submodule.parents[1]
    monkeypatch.setenv(variable, str(checkout / ".cache"))
    monkeypatch.chdir(submodule)
    url = "https://git.invalid/x.git"
    for source in (checkout / "source", submodule, Path(), url, str(checkout)):
        for named in (lab, None):
            with pytest.raises(ConfigError, match="cache and state"):
                explain_build(untrusted(named, source))
    monkeypatch.chdir(checkout.parent)
    for address in (str(checkout), f"file://{checkout}", "checkout"):
        with pytest.raises(ConfigError, match="cache and state"):
            explain_build(untrusted(lab, address))


@pytest.mark.parametrize("variable", ["LABCTL_CACHE", "LABCTL_STATE"])
def test_cache_and_state_are_not_the_checkouts(
    lab: Path, checkout: Path, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout)
    for given in (str(checkout / ".cache"), ".cache"):
        monkeypatch.setenv(variable, given)
        with pytest.raises(ConfigError, match="cache and state"):
            stand_apart(lab, checkout)


def test_python_imports_nothing_more_from_the_checkout(
    lab: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout)
    monkeypatch.setattr(sys, "path", [*sys.path, "", str(checkout / "source"), "/elsewhere"])
    monkeypatch.setenv("PYTHONPATH", f"{checkout}:/elsewhere")  # of labctl's own children
    stand_apart(lab, checkout / "source")
    assert os.environ["PYTHONPATH"] == "/elsewhere"
    assert "/elsewhere" in sys.path
    assert not [one for one in sys.path if Path(one).resolve().is_relative_to(checkout)]
    module = types.ModuleType("sitecustomize")
    module.__file__ = str(checkout / "sitecustomize.py")
    monkeypatch.setitem(sys.modules, "sitecustomize", module)
    with pytest.raises(ConfigError, match="imported sitecustomize from the untrusted folder"):
        stand_apart(lab, checkout)


@pytest.mark.parametrize("address", ["https://git.invalid/x.git", "local"])
def test_with_git_the_present_checkout_is_no_lab_either(
    lab: Path, checkout: Path, tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is a repository that is a folder of this host."""
    if address == "local":
        address, here = str(checkout), tmp_path
    else:
        here = checkout / "source"
    monkeypatch.chdir(here)
    with pytest.raises(ConfigError, match="share a folder"):
        explain_build(untrusted(checkout, address))


def test_a_present_folder_that_was_removed_holds_nothing_of_strangers(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    spec, _ = find_spec("rk3568", "llama.cpp", lab)
    check_untrusted(untrusted(lab, "https://git.invalid/x.git"), spec)
