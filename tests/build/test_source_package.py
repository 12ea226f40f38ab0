"""Packages come from a folder that pip takes for its index: no network."""

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from labctl.build.progress import ignore
from labctl.build.source_package import Package, head_commit, unpack
from labctl.build.spec import PackageSource
from labctl.errors import ConfigError, HostError, IntegrityError, LabctlError

COMMIT = "0123456789abcdef0123456789abcdef01234567"

#: A package that builds itself and needs nothing.
FILES = {
    "pyproject.toml": (
        '[build-system]\nrequires = []\nbuild-backend = "own"\nbackend-path = ["."]\n'
    ),
    "own.py": (
        "import os\n"
        "def prepare_metadata_for_build_wheel(folder, config_settings=None):\n"
        '    os.mkdir(os.path.join(folder, "sample-1.0.dist-info"))\n'
        '    with open(os.path.join(folder, "sample-1.0.dist-info", "METADATA"), "w") as file:\n'
        '        file.write("Metadata-Version: 2.1\\nName: sample\\nVersion: 1.0\\n")\n'
        '    return "sample-1.0.dist-info"\n'
    ),
    "PKG-INFO": "Metadata-Version: 2.1\nName: sample\nVersion: 1.0\n",
    "vendor/code/main.c": "int main(void) { return 0; }\n",
    "vendor/code/.git": "gitdir: ../../.git/modules/code\n",
    ".git/modules/code/HEAD": f"{COMMIT}\n",
}


def archive_of(files: dict[str, str], path: Path, top: str = "sample-1.0") -> str:
    """Write a tar.gz; its SHA-256."""
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def index(own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def pinned(sha256: str, **change: str | None) -> Package:
    given: dict[str, str | None] = {"subdirectory": "vendor/code", "commit": COMMIT} | change
    source = PackageSource(package="sample", release="1.0", sha256=sha256, **given)  # type: ignore[arg-type]
    return Package(source)


def refused(package: Package, kind: type[LabctlError]) -> LabctlError:
    with pytest.raises(kind) as caught:
        package.fetch(ignore)
    assert not list((package_home(package)).glob("*"))
    return caught.value


def package_home(package: Package) -> Path:
    from labctl.build.source import sources_dir

    return sources_dir() / package.identity.digest


def test_a_pinned_release_is_fetched_verified_and_kept(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = pinned(archive_of(FILES, index / "sample-1.0.tar.gz"))
    tree = package.fetch(ignore)
    assert (tree / "main.c").read_text() == FILES["vendor/code/main.c"]
    assert sorted(path.name for path in tree.iterdir()) == ["main.c"]
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    assert package.fetch(ignore) == tree  # nothing is fetched twice
    assert [path.name for path in tree.parent.iterdir() if path.name.startswith(".fetch")] == []


def test_another_file_under_the_name_is_refused_before_its_code_runs(
    index: Path, tmp_path: Path
) -> None:
    good = archive_of(FILES, tmp_path / "good.tar.gz")
    ran = tmp_path / "ran"
    evil = FILES | {"own.py": f"open({str(ran)!r}, 'w').close()\n" + FILES["own.py"]}
    archive_of(evil, index / "sample-1.0.tar.gz")
    error = refused(pinned(good), IntegrityError)
    assert f"sample==1.0 is not the pinned one, sha256 {good}" in error.message
    assert not ran.exists()


def test_an_index_that_does_not_have_it(index: Path) -> None:
    error = refused(pinned("0" * 64), HostError)
    assert error.message == "cannot fetch sample==1.0 with pip"
    assert "pip config list" in (error.hint or "")
    assert "No matching distribution" in (error.details or "")


def test_another_commit_than_the_spec_says(index: Path) -> None:
    package = pinned(archive_of(FILES, index / "sample-1.0.tar.gz"), commit="f" * 40)
    assert COMMIT in refused(package, ConfigError).message


def test_a_folder_that_is_not_in_it(index: Path) -> None:
    package = pinned(archive_of(FILES, index / "sample-1.0.tar.gz"), subdirectory="vendor/other")
    assert "has no folder 'vendor/other'" in refused(package, ConfigError).message


@pytest.mark.parametrize("name", ["../../evil", "/evil"])
def test_members_that_would_land_outside_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo(f"top/{name}" if name.startswith("..") else name))
        link = tarfile.TarInfo("top/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(IntegrityError):
        unpack(path, tmp_path / "out")
    assert not (tmp_path / "evil").exists()


def test_a_cut_archive_is_refused(tmp_path: Path) -> None:
    archive_of(FILES | {"big": "x" * 100_000}, tmp_path / "whole.tar.gz")
    raw = (tmp_path / "whole.tar.gz").read_bytes()
    (tmp_path / "cut.tar.gz").write_bytes(raw[: len(raw) // 2])
    with pytest.raises(IntegrityError, match="cannot be unpacked"):
        unpack(tmp_path / "cut.tar.gz", tmp_path / "out")


def test_the_commit_of_a_repository_is_read_without_git(tmp_path: Path) -> None:
    git = tmp_path / ".git"
    assert head_commit(tmp_path) is None
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    assert head_commit(tmp_path) is None
    (git / "packed-refs").write_text(f"# pack-refs\n{COMMIT} refs/heads/main\n")
    assert head_commit(tmp_path) == COMMIT
    (git / "refs" / "heads" / "main").write_text("f" * 40 + "\n")
    assert head_commit(tmp_path) == "f" * 40
