"""The disk space of a container, and who ends it when it takes too much."""

import errno
import os
import threading
from pathlib import Path

import pytest

from labctl.build.container import disk
from labctl.build.container.disk import limited_disk
from labctl.errors import CompileError, HostError

MOST = 1_000_000


@pytest.fixture(autouse=True)
def nobody_else_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """These limits are small."""
    monkeypatch.setattr(disk, "_free", lambda _folder: 1 << 40)


def run(folder: Path, *, most_files: int = disk.MOST_FILES) -> bool:
    """A program that goes on until it is ended, 60 s at most."""
    ended = threading.Event()
    with limited_disk([folder], MOST, ended.set, most_files=most_files, look_seconds=0.01):
        return ended.wait(60)


def test_many_small_files_are_too_much_together(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"{number % 7}").mkdir(exist_ok=True)
        (tmp_path / f"{number % 7}" / f"{number}").write_bytes(b"x" * 4096)
    with pytest.raises(CompileError, match=r"took more than 1\.00 MB of disk"):
        run(tmp_path)


def test_too_many_files_are_too_much(tmp_path: Path) -> None:
    for number in range(21):
        (tmp_path / f"{number}").touch()
    with pytest.raises(CompileError, match="more than 20 files"):
        run(tmp_path, most_files=20)


def test_folders_too_deep_to_be_looked_into_are_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / "program"
    deep.mkdir()
    with monkeypatch.context() as patch:  # as a program makes it: no path is too long for that
        patch.chdir(deep)
        for _ in range(30):
            Path("x" * 200).mkdir()
            os.chdir("x" * 200)
    with pytest.raises(CompileError, match="nests its folders too deep"):
        run(deep)
    move_up(deep)


def move_up(deep: Path) -> None:
    """Make a deep tree flat: who removes it takes paths."""
    name = "x" * 200
    for number in range(30):
        (deep / name).rename(deep.parent / f"{number}")
        deep = deep.parent / f"{number}"


def test_a_disk_that_cannot_be_looked_at_ends_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_folder: Path) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(disk, "_taken", broken)
    with pytest.raises(HostError, match="cannot be looked at: Input/output error"):
        run(tmp_path)


@pytest.mark.parametrize("left", [5_000_000, 100])
def test_space_that_no_folder_shows_is_nobody_s_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """A removed file that is still open takes some, and so do others."""
    answers = iter([7_000_000])
    monkeypatch.setattr(disk, "_free", lambda _folder: next(answers, left))
    with pytest.raises(HostError, match="less than when an untrusted program began"):
        run(tmp_path)


def test_links_lead_nowhere_and_little_is_no_problem(tmp_path: Path) -> None:
    (tmp_path / "round").symlink_to(tmp_path)
    (tmp_path / "out").symlink_to("/")
    ended = threading.Event()
    with limited_disk([tmp_path], MOST, ended.set, look_seconds=0.01):
        assert not ended.wait(0.2)
