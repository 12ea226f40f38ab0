import gzip
import os
import tarfile
from pathlib import Path

import pytest

from labctl import process
from labctl.build.remote.archive import known_digest, make_archive
from labctl.build.source import Folder
from labctl.errors import ConfigError

DIGEST = "a" * 64


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))


def unchanged() -> None:
    """Find the source as it was."""


def source(folder: Path) -> Path:
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "wörd it's").write_text("text\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o700)
    (folder / "link").symlink_to("deep/gone")
    return folder


def test_the_same_source_gives_the_same_bytes(tmp_path: Path) -> None:
    one, two = source(tmp_path / "one"), source(tmp_path / "two")
    os.utime(two / "run.sh", (1, 1))
    first = make_archive(one, DIGEST, tmp_path / "a.tar.gz", unchanged)
    assert make_archive(two, DIGEST, tmp_path / "b.tar.gz", unchanged) == first
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()


def test_an_archive_holds_names_modes_and_links(tmp_path: Path) -> None:
    make_archive(source(tmp_path / "one"), DIGEST, tmp_path / "a.tar.gz", unchanged)
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        members = {member.name: member for member in tar}
        assert sorted(members) == ["deep/wörd it's", "link", "run.sh"]
        assert members["run.sh"].mode == 0o755
        assert members["deep/wörd it's"].mode == 0o644
        assert members["link"].linkname == "deep/gone"
        assert {member.mtime for member in members.values()} == {315532800}
        text = tar.extractfile("deep/wörd it's")
        assert text is not None
        assert text.read() == b"text\n"


def test_what_git_ignores_stays_here(tmp_path: Path) -> None:
    folder = source(tmp_path / "one")
    (folder / ".gitignore").write_text("*.o\n")
    (folder / "main.o").write_bytes(b"x")
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "x"],
    ):
        assert process.run(["git", "-C", folder, *words], timeout=120).exit_status == 0
    make_archive(folder, DIGEST, tmp_path / "a.tar.gz", unchanged)
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        assert sorted(tar.getnames()) == [".gitignore", "deep/wörd it's", "link", "run.sh"]


def test_the_digest_of_an_archive_is_kept(tmp_path: Path) -> None:
    assert known_digest(DIGEST) is None
    digest = make_archive(source(tmp_path / "one"), DIGEST, tmp_path / "a.tar.gz", unchanged)
    assert known_digest(DIGEST) == digest
    (tmp_path / "cache" / "archives" / DIGEST).write_text("torn")
    assert known_digest(DIGEST) is None


def test_an_archive_of_a_source_edited_meanwhile_stands_for_nothing(
    tmp_path: Path,
) -> None:
    folder = source(tmp_path / "one")
    identified = Folder(folder)
    (folder / "run.sh").write_text("#!/bin/false\n")
    with pytest.raises(ConfigError, match="was changed while it was being built"):
        make_archive(folder, DIGEST, tmp_path / "a.tar.gz", identified.verify_unchanged)
    assert known_digest(DIGEST) is None


def test_an_archive_says_nothing_of_when_it_was_made(tmp_path: Path) -> None:
    make_archive(source(tmp_path / "one"), DIGEST, tmp_path / "a.tar.gz", unchanged)
    raw = (tmp_path / "a.tar.gz").read_bytes()
    assert raw[3:8] == bytes(5)  # RFC 1952: no name, no time
    assert gzip.decompress(raw)
