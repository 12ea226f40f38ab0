import errno
import fcntl
import hashlib
import os
import resource
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from clocks import an_hour_later

from labctl import process
from labctl.errors import HostError, HostTimeout
from labctl.file_hashes import settled_stamp, sha256_file
from labctl.files import append_line, host_writes, open_whole, scratch, write_atomic
from labctl.folders import cache_dir, state_dir
from labctl.locks import locked
from labctl.removal import remove_tree


def test_a_line_that_a_full_disk_cuts_off_spoils_none_that_comes_after(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    append_line(path, "first")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 3, hard))
    try:
        with pytest.raises(HostError):
            append_line(path, "second")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    append_line(path, "third")
    assert path.read_text() == "first\nthird\n"


def test_write_atomic_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    write_atomic(path, "old")
    write_atomic(path, b"new\n")
    assert path.read_bytes() == b"new\n"
    assert list(path.parent.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_full_disk_is_the_hosts_fault_and_keeps_the_old_content() -> None:
    with pytest.raises(HostError, match="cannot write /dev/full/x"):
        write_atomic(Path("/dev/full/x"), "x")
    with pytest.raises(HostError, match="No space left on device"):
        append_line(Path("/dev/full"), "x")


def test_sha256_with_progress(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x" * 3_000_000)
    seen: list[int] = []
    assert sha256_file(path, seen.append) == hashlib.sha256(b"x" * 3_000_000).hexdigest()
    assert seen[-1] == 3_000_000


@pytest.mark.parametrize("read", [sha256_file, open_whole])
def test_what_has_no_end_is_not_read(read: Callable[[Path], object], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # it would wait for a writer for ever
    for path in (Path("/dev/null"), tmp_path / "pipe"):
        with pytest.raises(OSError, match="not a regular file"):
            read(path)


def test_a_lock_keeps_other_processes_out_and_dies_with_its_holder(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    script = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from labctl.locks import locked
        with locked(Path(sys.argv[1]), timeout=30):
            print("held", flush=True)
            sys.stdin.read()
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(HostTimeout, match=rf"the other run \(process {holder.pid}\) holds"),
            locked(lock, timeout=0.2, holder="the other run"),
        ):
            pass
        holder.kill()
        holder.wait()
        with locked(lock, timeout=30):
            assert lock.read_text() == f"{os.getpid()}\n"


def test_cache_and_state_can_be_placed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "c"))
    monkeypatch.setenv("LABCTL_STATE", str(tmp_path / "s"))
    assert (cache_dir(), state_dir()) == (tmp_path / "c", tmp_path / "s")


def test_a_lock_ends_though_a_program_still_has_its_file(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with locked(lock, timeout=0) as held:
        program = process.start(["sleep", "60"], stdout=None, stderr=None, keep_open=[held])
    try:
        with locked(lock, timeout=0):
            assert program.poll() is None
    finally:
        process.stop(program)


def test_a_full_disk_takes_no_lock_away() -> None:
    full = Path("/dev/full")
    with locked(full, timeout=1), full.open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_torn_lock_file_locks_as_well(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path, timeout=0):
        path.write_bytes(b"\xff\xfe\x1b[31m")
        with (
            pytest.raises(HostTimeout, match=r"another labctl \(process .*\) holds") as caught,
            locked(path, timeout=0),
        ):
            pass
    assert "\x1b" not in str(caught.value)
    with locked(path, timeout=0):
        assert path.read_text() == f"{os.getpid()}\n"


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EACCES, "may not write there: change its permissions"),
        (errno.ENOTDIR, "choose another place"),
    ],
)
def test_the_hint_fits_the_refusal(number: int, hint: str) -> None:
    with pytest.raises(HostError) as refused, host_writes(Path("runs")):
        raise OSError(number, os.strerror(number))
    assert hint in str(refused.value.hint)
    assert ("free some space" in str(refused.value.hint)) == (number == errno.ENOSPC)


def test_a_file_system_without_inodes_is_not_called_full_of_bytes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []

    def statvfs(path: Path) -> SimpleNamespace:
        asked.append(str(path))
        os.stat(path)  # noqa: PTH116 - as the real one
        return SimpleNamespace(f_files=1000, f_favail=0)

    monkeypatch.setattr("os.statvfs", statvfs)
    with pytest.raises(HostError) as refused, host_writes(tmp_path / "new" / "runs"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert refused.value.message.endswith("No space left on device: no inodes are left there")
    assert "remove files there" in str(refused.value.hint)
    assert asked[-1] == str(tmp_path)  # the nearest folder that is there
    with pytest.raises(HostError) as refused, host_writes(tmp_path):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    assert "inodes" not in refused.value.message


def test_a_stamp_is_given_once_a_file_is_at_rest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "a"
    assert settled_stamp(file) is None
    file.write_text("x")
    assert settled_stamp(file) is None  # another change could have the same times
    an_hour_later(monkeypatch)
    before = settled_stamp(file)
    assert before is not None
    assert before == settled_stamp(file)
    write_atomic(file, "y")
    assert settled_stamp(file) != before


@pytest.mark.parametrize("link", ["tree", "tree/in it"])
def test_what_a_link_leads_to_is_not_removed(tmp_path: Path, link: str) -> None:
    other = tmp_path / "of others"
    other.mkdir()
    (other / "file").touch()
    path = tmp_path / link
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(other)
    remove_tree(tmp_path / "tree")
    assert (other / "file").exists()
    assert [one.name for one in tmp_path.iterdir()] == ["of others"]


def left_by_a_stranger(folder: Path) -> None:
    """Folders too deep for a recursion and for any path, without rights, with names of no text."""
    folder.mkdir()
    here = os.open(folder, os.O_DIRECTORY)
    for depth in range(3000):
        for name in (b"d", b"new\nline\xff") if depth < 5 else (b"d",):
            os.mkdir(name, dir_fd=here)
        os.close(os.open(b"file\xff", os.O_CREAT | os.O_WRONLY, 0, dir_fd=here))
        below = os.open("d", os.O_DIRECTORY, dir_fd=here)
        os.fchmod(here, 0)
        os.close(here)
        here = below
    os.close(here)


def test_what_strangers_left_is_removed(tmp_path: Path) -> None:
    left_by_a_stranger(tmp_path / "tree")
    remove_tree(tmp_path / "tree")
    assert list(tmp_path.iterdir()) == []
    left_by_a_stranger(tmp_path / ".made-before")
    with scratch(tmp_path, ".made-") as made:
        assert list(tmp_path.iterdir()) == [made]
        left_by_a_stranger(made / "tree")
    assert list(tmp_path.iterdir()) == []


def test_a_link_that_takes_the_place_of_a_folder_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a program that still runs could do between two looks."""
    other = tmp_path / "of others"
    other.mkdir(mode=0o755)
    (other / "file").touch()
    folder = tmp_path / "tree"
    (folder / "inside").mkdir(parents=True)
    rename = os.rename

    def swapped(name: str, *words: object, **options: int) -> None:
        (folder / "inside").rmdir()
        (folder / "inside").symlink_to(other)
        rename(name, *words, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "rename", swapped)
    remove_tree(folder)
    assert (other / "file").exists()
    assert other.stat().st_mode & 0o777 == 0o755
