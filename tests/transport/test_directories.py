"""Whole directories, on each transport there is; and boards that lie about what is in one."""

import os
import re
import stat
from pathlib import Path

import pytest

from labctl.errors import BoardError, ConfigError, IntegrityError, ProtocolError
from labctl.transport import file_transfer
from labctl.transport.base import CommandResult, TransferOptions, Transport, remote_words
from labctl.transport.directories import pull_directory, push_directory
from labctl.transport.file_transfer import BoardHash, Digest
from labctl.transport.hdc import HdcTcpConfig
from labctl.transport.testing import Answer, ScriptedTransport
from labctl.virtual.board import VirtualBoard, serving

OPTIONS = TransferOptions(timeout=30)


def make_tree(root: Path) -> None:
    for name, content in {
        "a b'$x.txt": b"one",
        "empty": b"",
        "sub/deep/big": os.urandom(700_000),
        "sub/program": b"#!/bin/sh\necho hi\n",
        "sub/b\u00e9": b"\xff\0",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    (root / "hollow" / "too").mkdir(parents=True)
    (root / "sub/program").chmod(0o750)
    (root / "empty").chmod(0o400)
    (root / "hollow").chmod(0o711)
    (root / "sub/deep").chmod(0o500)


def content(root: Path) -> dict[str, tuple[int, bytes | None]]:
    return {
        str(path.relative_to(root)): (
            stat.S_IMODE(path.stat().st_mode),
            path.read_bytes() if path.is_file() else None,
        )
        for path in root.rglob("*")
    }


def test_directories_go_there_and_back(transport: Transport, folder: str, tmp_path: Path) -> None:
    make_tree(tmp_path / "here")
    seen: list[int] = []
    there = f"{folder}/not/yet"
    pushed = push_directory(
        transport, tmp_path / "here", there, TransferOptions(timeout=30, progress=seen.append)
    )
    assert (pushed.files, pushed.size_bytes, pushed.skipped) == (5, 700_023, ())
    assert seen == sorted(seen)
    assert seen[-1] == 700_023
    assert content(Path(there)) == content(tmp_path / "here")
    pulled = pull_directory(transport, there, tmp_path / "new" / "back", OPTIONS)
    assert pulled == pushed
    assert content(tmp_path / "new" / "back") == content(tmp_path / "here")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["back"]


def test_a_link_among_the_parents_is_followed(
    transport: Transport, folder: str, tmp_path: Path
) -> None:
    make_tree(tmp_path / "here")
    Path(folder, "real").mkdir()
    Path(folder, "link").symlink_to("real")
    push_directory(transport, tmp_path / "here", f"{folder}/link/there", OPTIONS)
    assert content(Path(folder, "real/there")) == content(tmp_path / "here")


def test_a_directory_is_pushed_over_what_is_there(
    transport: Transport, folder: str, tmp_path: Path
) -> None:
    make_tree(tmp_path / "here")
    Path(f"{folder}/old").mkdir()
    Path(f"{folder}/old/kept").write_text("kept")
    Path(f"{folder}/old/empty").write_text("longer than before")
    push_directory(transport, tmp_path / "here", f"{folder}/old", OPTIONS)
    assert Path(f"{folder}/old/kept").read_text() == "kept"
    assert Path(f"{folder}/old/empty").read_bytes() == b""


def test_links_are_never_followed_out_of_a_directory(
    transport: Transport, folder: str, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    (here / "real").mkdir(parents=True)
    (here / "real" / "lib.so.1").write_text("library")
    (here / "lib.so").symlink_to("real/lib.so.1")
    (here / "folder").symlink_to("/etc")
    (here / "loop").symlink_to(".")
    (here / "nothing").symlink_to("none")
    os.mkfifo(here / "pipe")
    pushed = push_directory(transport, here, f"{folder}/there", OPTIONS)
    assert (pushed.files, sorted(pushed.skipped)) == (2, ["folder", "loop", "nothing", "pipe"])
    assert Path(f"{folder}/there/lib.so").read_text() == "library"
    assert not Path(f"{folder}/there/lib.so").is_symlink()
    Path(f"{folder}/there/out").symlink_to("/etc/passwd")
    pulled = pull_directory(transport, f"{folder}/there", tmp_path / "back", OPTIONS)
    assert (pulled.files, pulled.skipped) == (2, ("out",))
    assert sorted(path.name for path in (tmp_path / "back").iterdir()) == ["lib.so", "real"]


def test_many_files_are_proven(transport: Transport, folder: str, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    names = [f"{number:04}-{'n' * 240}" for number in range(200)]
    assert sum(len(name) for name in names) > file_transfer._BATCH_BYTES
    for name in names:
        (here / name).write_text(name[:4])
    assert push_directory(transport, here, f"{folder}/many", OPTIONS).files == 200
    assert content(Path(f"{folder}/many")) == content(here)
    assert pull_directory(transport, f"{folder}/many", tmp_path / "back", OPTIONS).files == 200
    assert content(tmp_path / "back") == content(here)


@pytest.mark.parametrize("over", [False, True], ids=["new", "over what is there"])
def test_many_small_files_take_few_commands(
    transport: Transport,
    folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    over: bool,
) -> None:
    """90 files of 1 kB, of two modes, in several directories: no step is one for each file."""
    here = tmp_path / "here"
    for number in range(90):
        path = here / f"sub-{number % 3}" / f"a name of a file {number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(1024))
        path.chmod(0o755 if number % 2 else 0o644)
    if over:
        push_directory(transport, here, f"{folder}/there", OPTIONS)
        (here / "sub-0" / "a name of a file 0").write_bytes(os.urandom(900))
    commands: list[str] = []
    run = transport.run

    def counted(command: str, *, timeout: float, separate_stderr: bool = False) -> CommandResult:
        if not re.search(r"\.sh\b|TMPDIR", command):  # ssh runs long ones from a file
            commands.append(command)
        return run(command, timeout=timeout, separate_stderr=separate_stderr)

    monkeypatch.setattr(transport, "run", counted)
    transport.use_hash(None)
    assert push_directory(transport, here, f"{folder}/there", OPTIONS).files == 90
    assert sum("sha256sum ./" in command for command in commands) <= 5
    assert len(commands) <= 12, commands
    commands.clear()
    assert pull_directory(transport, f"{folder}/there", tmp_path / "back", OPTIONS).files == 90
    assert sum("sha256sum ./" in command for command in commands) <= 5
    assert len(commands) <= 8, commands
    assert content(Path(folder, "there")) == content(here) == content(tmp_path / "back")


def test_small_files_that_change_meanwhile_are_no_success(
    transport: Transport, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come together: bytes that one has too many would be those of the next."""
    for name in ("a", "b", "c"):
        Path(folder, name).write_text(f"content of {name}")
    run = transport.run

    def changing(command: str, *, timeout: float, separate_stderr: bool = False) -> CommandResult:
        result = run(command, timeout=timeout, separate_stderr=separate_stderr)
        if "stat -c" in command:
            Path(folder, "a").write_text("content of a, longer")
            Path(folder, "b").write_text("short")
        return result

    monkeypatch.setattr(transport, "run", changing)
    pulled = pull_directory(transport, folder, tmp_path / "back", OPTIONS)
    assert pulled.files == 3
    assert content(tmp_path / "back") == content(Path(folder))
    Path(folder, "b").write_text("content of b")
    Path(folder, "a").write_text("content of a")

    def swapping(command: str, *, timeout: float, separate_stderr: bool = False) -> CommandResult:
        result = run(command, timeout=timeout, separate_stderr=separate_stderr)
        if "stat -c" in command:  # of the same length together
            Path(folder, "a").write_text("content of a+")
            Path(folder, "b").write_text("content of ")
        return result

    monkeypatch.setattr(transport, "run", swapping)
    with pytest.raises(IntegrityError, match="the bytes differ"):
        pull_directory(transport, folder, tmp_path / "again", OPTIONS)
    assert not (tmp_path / "again").exists()


def test_nothing_appears_when_a_directory_cannot_be_pulled(
    transport: Transport, folder: str, tmp_path: Path
) -> None:
    with pytest.raises(BoardError, match=r"No such file|can't cd"):
        pull_directory(transport, f"{folder}/none", tmp_path / "x", OPTIONS)
    Path(f"{folder}/odd").mkdir()
    Path(f"{folder}/odd/line\nbreak").touch()
    with pytest.raises(ProtocolError, match="not a name that can be pulled"):
        pull_directory(transport, f"{folder}/odd", tmp_path / "x", OPTIONS)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(ConfigError, match="it exists"):
        pull_directory(transport, folder, tmp_path / "full", OPTIONS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["board", "full"]


def test_names_that_links_do_not_carry_stop_a_push_before_it_begins(
    transport: Transport, folder: str, tmp_path: Path
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "100%").touch()
    with pytest.raises(ConfigError, match="unsafe path"):
        push_directory(transport, tmp_path / "here", f"{folder}/x", OPTIONS)
    with pytest.raises(ConfigError, match="not a directory on this host"):
        push_directory(transport, tmp_path / "here" / "100%", f"{folder}/x", OPTIONS)
    assert list(Path(folder).iterdir()) == []


class Lying(ScriptedTransport):
    """A board that hashes as it is scripted, and sends the same bytes for every file."""

    def __init__(self, *answers: Answer):
        super().__init__("ef53 .\n", *answers)
        self.use_hash(BoardHash("sha256", ("sha256sum",)))
        self.files = {"/data/x/a": b"x", "/data/x/b": b"x"}


@pytest.mark.parametrize(
    "listing",
    [
        "41ed 0 .\n81a4 1 ./../out\n",
        "41ed 0 .\n81a4 1 /etc/out\n",
        "41ed 0 .\n41ed 1 ./a\n81a4 1 ./a/../../out\n",
        "41ed 0 .\n81a4 1 ./a//b\n",
        "41ed 0 .\n81a4 1 ./a/.\n",
        "41ed 0 .\n81a4 1 ..\n",
        "81a4 0 .\n",
        "garbage",
        "",
    ],
)
def test_a_board_cannot_name_a_file_outside(tmp_path: Path, listing: str) -> None:
    board = Lying(listing)
    with pytest.raises(ProtocolError):
        pull_directory(board, "/data/x", tmp_path / "in" / "x", TransferOptions(timeout=1))
    assert list(tmp_path.rglob("*")) in ([], [tmp_path / "in"])


def test_set_id_bits_of_a_board_stay_there(tmp_path: Path) -> None:
    digest = Digest("sha256")
    digest.update(b"x")
    board = Lying("47ff 0 .\n8dff 1 ./a\n", f"{digest.hexadecimal}  a\n")
    pull_directory(board, "/data/x", tmp_path / "x", TransferOptions(timeout=1))
    assert stat.S_IMODE((tmp_path / "x" / "a").stat().st_mode) == 0o777
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o777


def test_one_file_that_differs_spoils_a_directory(tmp_path: Path) -> None:
    good = Digest("sha256")
    good.update(b"x")
    answers = "41ed 0 .\n81a4 1 ./a\n81a4 1 ./b\n", f"{good.hexadecimal}  a\n{'0' * 64}  b\n"
    with pytest.raises(IntegrityError, match="/data/x/b: the bytes differ"):
        pull_directory(Lying(*answers), "/data/x", tmp_path / "x", TransferOptions(timeout=1))
    assert list(tmp_path.iterdir()) == []


def test_a_board_that_cannot_hash_reads_its_files_back(tmp_path: Path) -> None:
    make_tree(tmp_path / "here")
    with (
        serving(VirtualBoard("b", tmp_path / "board")) as (board,),
        HdcTcpConfig(address=board.address).open() as transport,
    ):
        programs = board.directory / "system/bin"
        if not programs.is_dir():
            pytest.skip("mksh and toybox are not installed")
        for name in ("sha256sum", "sha512sum", "sha1sum", "md5sum"):
            (programs / name).unlink(missing_ok=True)
        there = str(board.workdir / "there")
        push_directory(transport, tmp_path / "here", there, OPTIONS)
        pull_directory(transport, there, tmp_path / "back", OPTIONS)
        assert transport.run(remote_words("sha256sum", there), timeout=30).exit_status == 127
    assert content(tmp_path / "back") == content(tmp_path / "here")


def test_a_file_never_lands_in_a_directory_of_its_name(
    transport: Transport, folder: str, tmp_path: Path
) -> None:
    (tmp_path / "here" / "sub").mkdir(parents=True)
    (tmp_path / "here" / "first").touch()
    (tmp_path / "here" / "sub" / "it's").write_text("a file")
    (Path(folder) / "there" / "sub" / "it's").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"a directory on the board: .*/there/sub/it's"):
        push_directory(transport, tmp_path / "here", f"{folder}/there", OPTIONS)
    assert [path.name for path in Path(folder).rglob("*")] == ["there", "sub", "it's"]


def test_a_name_may_hold_what_python_takes_for_the_end_of_a_line(
    transport: Transport, folder: str, tmp_path: Path
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "a\u2028b\x85c").write_text("content")
    push_directory(transport, tmp_path / "here", f"{folder}/there", OPTIONS)
    pull_directory(transport, f"{folder}/there", tmp_path / "back", OPTIONS)
    assert content(tmp_path / "back") == content(tmp_path / "here")


@pytest.mark.parametrize("name", ["a\\b", "100%", 'q"q', "a\rb"])
def test_names_that_links_do_not_carry_stop_a_pull_before_it_begins(
    transport: Transport, folder: str, tmp_path: Path, name: str
) -> None:
    (Path(folder) / name).touch()
    with pytest.raises(ConfigError, match="unsafe path"):
        pull_directory(transport, folder, tmp_path / "back", OPTIONS)
    assert not (tmp_path / "back").exists()
