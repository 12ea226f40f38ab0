"""Files of /proc and /sys, whose size is not what they say, and others that lie about it."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from labctl.errors import BoardError, BoardPermission, IntegrityError
from labctl.transport.base import TransferOptions, Transport, remote_words
from labctl.transport.copy import receive
from labctl.transport.hdc import HdcTcpConfig
from labctl.transport.local import LocalTransport
from labctl.transport.pseudo_files import pseudo_files, read_pseudo_file, read_pseudo_files
from labctl.virtual.board import VirtualBoard, serving

OPTIONS = TransferOptions(timeout=30)

_SYS = Path("/sys/kernel/mm/transparent_hugepage/khugepaged")


class Kernel(LocalTransport):
    """A host that takes every folder for /sys."""

    reads = 0

    def run(self, command, **options):
        command = command.replace("'%t %n'", "'62656572 %n'").replace("'%t .'", "'62656572 .'")
        return super().run(command, **options)

    def stream(self, command, **options):
        self.reads += 1
        return super().stream(command, **options)


def test_a_file_of_proc_is_received_and_not_proven(transport: Transport, tmp_path: Path) -> None:
    seen = receive(transport, "/proc/version", tmp_path / "v", OPTIONS)
    assert (tmp_path / "v").read_bytes() == Path("/proc/version").read_bytes()
    assert seen.copied.size_bytes == len((tmp_path / "v").read_bytes())
    assert seen.copied.not_proven == "1 file of proc, whose content the kernel makes as it is read"


def test_it_is_received_to_its_end(transport: Transport, tmp_path: Path) -> None:
    """One read gives 4 kB of it, and hdcd would send no more."""
    receive(transport, "/proc/kallsyms", tmp_path / "symbols", OPTIONS)
    received = (tmp_path / "symbols").read_bytes().splitlines()
    assert len(received) == len(Path("/proc/kallsyms").read_bytes().splitlines()) > 1000


def test_a_directory_of_sys_is_received_whole(transport: Transport, tmp_path: Path) -> None:
    done = receive(transport, str(_SYS), tmp_path / "here", OPTIONS)
    here = {path.name: path.read_text() for path in (tmp_path / "here").iterdir()}
    assert set(here) == {path.name for path in _SYS.iterdir()}
    assert here["defrag"] == (_SYS / "defrag").read_text()  # others count what happens
    assert all(here.values())
    files = f"{len(here)} files of sysfs"
    assert done.copied.not_proven == f"{files}, whose content the kernel makes as it is read"
    assert (done.copied.files, done.copied.size_bytes) == (len(here), len("".join(here.values())))


def test_an_ordinary_file_is_still_proven(
    transport: Transport, folder: str, tmp_path: Path
) -> None:
    Path(folder, "file").write_text("content")
    assert receive(transport, f"{folder}/file", tmp_path, OPTIONS).copied.not_proven is None
    assert receive(transport, folder, tmp_path / "new", OPTIONS).copied.not_proven is None


@pytest.fixture
def anyones_folder() -> Iterator[Path]:
    """A folder that others may read: pytest closes the parents of its own ones."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_file_that_cannot_be_read_is_left_out_of_a_directory(
    anyones_folder: Path, tmp_path: Path
) -> None:
    folder = anyones_folder
    for name in ("made", "closed"):
        (folder / name).write_text(name)
    (folder / "closed").chmod(0)
    as_another = ("setpriv", "--reuid=65534", "--clear-groups") if os.getuid() == 0 else ()

    class AsAnother(Kernel):
        def stream(self, command, **options):
            return super().stream(
                " ".join((*as_another, remote_words("sh", "-c", command))), **options
            )

    with AsAnother() as transport:
        done = receive(transport, str(folder), tmp_path / "back", OPTIONS)
    assert done.copied.unreadable == ("closed",)
    assert done.copied.files == 1
    assert [path.name for path in (tmp_path / "back").iterdir()] == ["made"]


def test_many_small_files_cost_one_command(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    content = {f"{n:03}": bytes([n]) * n + b"\x1elabctl-" for n in range(200)}
    for name, raw in content.items():
        (there / name).write_bytes(raw)
    with Kernel() as transport:
        done = receive(transport, str(there), tmp_path / "back", OPTIONS)
        assert transport.reads == 1
    assert {p.name: p.read_bytes() for p in (tmp_path / "back").iterdir()} == content
    assert done.copied.size_bytes == sum(map(len, content.values()))


def test_a_file_that_goes_meanwhile_is_left_out(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    for name in ("a", "goes", "z"):
        (there / name).write_text(name)

    class Process(Kernel):
        def run(self, command, **options):
            result = super().run(command, **options)
            if "%f %s %n" in command:  # listed, and not looked at yet
                (there / "goes").unlink()
            return result

    with Process() as transport:
        done = receive(transport, str(there), tmp_path / "back", OPTIONS)
    assert done.copied.unreadable == ("goes",)
    assert {p.name: p.read_text() for p in (tmp_path / "back").iterdir()} == {"a": "a", "z": "z"}


def test_processes_that_end_while_they_are_listed_do_not_stop_it(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / "stays").write_text("here")

    class Process(Kernel):
        def run(self, command, **options):
            # As find does when a process has ended: its words, and a status that is not 0.
            ends = command.replace("find . -exec", "ls /proc/none; find /proc/none . -exec")
            return super().run(ends if "%f %s %n" in command else command, **options)

    with Process() as transport:
        receive(transport, str(there), tmp_path / "back", OPTIONS)
    assert (tmp_path / "back" / "stays").read_text() == "here"


@pytest.mark.parametrize("endless", ["while :; do printf %065536d 0; done", "sleep 60"])
def test_files_without_end_do_not_stop_the_others(tmp_path: Path, endless: str) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    names = ("a", "endless", "m", "endless2", "z")
    for name in names:
        (there / name).write_text(name)

    class Tracing(Kernel):
        def stream(self, command, **options):
            cat = f'cat() {{ case $1 in *endless*) {endless};; *) command cat "$1";; esac; }}'
            return super().stream(f"{cat}\n{command}", **options)

    with Tracing() as transport:
        unreadable = read_pseudo_files(
            transport,
            [(str(there / name), here / name) for name in names],
            lambda _count: None,
            timeout=30,
            file_seconds=0.5,
            most_bytes=1 << 20,
        )
    assert sorted(unreadable) == [str(there / name) for name in ("endless", "endless2")]
    assert {p.name: p.read_text() for p in here.iterdir()} == {"a": "a", "m": "m", "z": "z"}


def test_why_a_file_cannot_be_read_is_said(transport: Transport, tmp_path: Path) -> None:
    with pytest.raises(BoardError, match=r"cannot read /proc/none: .*No such file"):
        read_pseudo_file(transport, "/proc/none", lambda _: None, timeout=30)
    for path in ("/proc/self/mem", "/proc/self/clear_refs"):  # for hdcd, empty ones
        with pytest.raises(BoardError, match=f"cannot read {path}") as refused:
            receive(transport, path, tmp_path / "mem", OPTIONS)
        assert not isinstance(refused.value, BoardPermission)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/proc/version", "proc"), ("/sys/kernel/mm", "sysfs"), ("/sys/fs/cgroup", "cgroup")],
)
def test_file_systems_are_known_by_their_number(transport: Transport, path: str, kind: str) -> None:
    found = set(pseudo_files(transport, path, timeout=30).values())
    assert {name.removesuffix("2") for name in found} == {kind}


def test_a_file_that_is_truncated_on_its_way_is_an_error(tmp_path: Path) -> None:
    with serving(VirtualBoard("b", tmp_path / "board")) as (board,):
        big = board.workdir / "big"
        big.touch()
        os.truncate(big, 256 << 20)
        with (
            HdcTcpConfig(address=board.address).open() as transport,
            pytest.raises(IntegrityError, match=r"announced 268435456 bytes of .*/big and sent"),
        ):
            receive(
                transport,
                str(big),
                tmp_path / "here",
                TransferOptions(timeout=30, progress=lambda _: os.truncate(big, 1 << 20)),
            )
    assert not (tmp_path / "here").exists()
