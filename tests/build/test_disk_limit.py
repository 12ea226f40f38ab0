"""The disk space of a container, and who ends it when it takes too much."""

import errno
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from labctl.build import job
from labctl.build.container import disk
from labctl.build.container.builder import TREE, ContainerWorkspace
from labctl.build.container.disk import limited_disk
from labctl.build.container.engine import Engine
from labctl.build.container.run import Containers
from labctl.build.job import Job, Made
from labctl.build.script import Output, Script
from labctl.build.workspace import Folders
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


def space_of(monkeypatch: pytest.MonkeyPatch, *free: int) -> None:
    """What is free at each look; as much as at the last one from then on."""
    answers = list(free)
    monkeypatch.setattr(
        disk, "_free", lambda _folder: answers.pop(0) if len(answers) > 1 else answers[0]
    )


@pytest.mark.parametrize("before", [7 << 30, 100])
def test_space_that_others_took_is_not_the_fault_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    space_of(monkeypatch, before, before // 2)
    with pytest.raises(HostError, match="less than when an untrusted program began"):
        run(tmp_path)


def test_space_that_comes_back_with_the_end_of_a_program_was_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had files open that it had removed."""
    space_of(monkeypatch, 7 << 30, 5 << 30, 7 << 30)
    with pytest.raises(CompileError, match=r"took 2\.15 GB of disk"):
        run(tmp_path)


def test_what_is_written_after_the_last_look_counts_too(tmp_path: Path) -> None:
    with (
        pytest.raises(CompileError, match=r"took more than 1\.00 MB of disk"),
        limited_disk([tmp_path], MOST, lambda: None, look_seconds=60),
    ):
        (tmp_path / "large").write_bytes(b"x" * (MOST + 1))


def test_a_folder_that_nobody_may_look_into_ends_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shut(_folder: Path) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(disk, "_taken", shut)
    with pytest.raises(CompileError, match="hides what is in a folder"):
        run(tmp_path)


def test_links_lead_nowhere_and_little_is_no_problem(tmp_path: Path) -> None:
    (tmp_path / "round").symlink_to(tmp_path)
    (tmp_path / "out").symlink_to("/")
    ended = threading.Event()
    with limited_disk([tmp_path], MOST, ended.set, look_seconds=0.01):
        assert not ended.wait(0.2)


class LeftWorkspace(ContainerWorkspace):
    """A container's folders after a build that left files of these sizes, all of them holes."""

    def __init__(self, tree: Path, sizes: Mapping[str, int]):
        containers = Containers(Engine("podman", "5"), "sha256:1", "a=b", tree.parent / "control")
        super().__init__(Folders(TREE, TREE), {TREE: tree}, containers, lock=0)
        tree.mkdir()
        for name, size in sizes.items():
            (tree / name).touch()
            os.truncate(tree / name, size)


def collected(
    folder: Path, monkeypatch: pytest.MonkeyPatch, sizes: Mapping[str, int], *, untrusted: bool
) -> dict[str, Made]:
    workspace = LeftWorkspace(folder / "tree", sizes)
    outputs = {name: Output(name, f"{name}.map") for name in sizes if "." not in name}
    monkeypatch.setattr(job, "check", lambda *_: None)
    monkeypatch.setattr(job, "make_script", lambda *_: Script(outputs=outputs))
    order: Any = SimpleNamespace(spec=None, values=None)
    home = folder / "home"
    try:
        return Job(order, workspace, home, lambda _: None, untrusted=untrusted).run(list(outputs))
    finally:  # no limit of the disk is passed, whatever the build says of its files
        assert sum(path.stat().st_blocks * 512 for path in home.rglob("*")) < 1 << 20


MIB = 1 << 20


@pytest.mark.parametrize(
    "sizes",
    [
        {"tool": 600 * MIB},
        {"tool": 0, "tool.map": 600 * MIB},
        dict.fromkeys(("a", "a.map", "b", "b.map", "c"), 500 * MIB),
    ],
)
def test_a_hole_in_a_product_is_not_written_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: dict[str, int]
) -> None:
    with pytest.raises(
        CompileError, match=r"^the build left more than [\d.]+ MB in (tool|tool\.map|c)$"
    ):
        collected(tmp_path, monkeypatch, sizes, untrusted=True)


def test_the_holes_of_a_product_stay_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = collected(tmp_path, monkeypatch, {"tool": 600 * MIB + 1}, untrusted=False)
    assert made["tool"].file.stat().st_size == 600 * MIB + 1
