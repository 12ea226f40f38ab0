"""Transfers in all their forms, and hosts that do not play by the rules in them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import daemon
from raw_files import CLOSE, ask, chunk, offer, summary, take
from raw_hdc import RawPeer, raw_host

from labctl.daemon.board import Limits
from labctl.hdc.lz4_chunks import compress_chunk
from labctl.hdc.messages import FileMode, TransferConfig, TransferPayload
from labctl.hdc.wire import Command

TEXT = b"the quick brown fox\n" * 4000
NOISE = os.urandom(60_000)


@pytest.fixture
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RawPeer]:
    version = getattr(request, "param", "3.2.0c")
    with daemon(tmp_path, version=version) as address, raw_host(address) as peer:
        peer.shake_hands()
        yield peer


old = pytest.mark.parametrize("host", ["3.1.0e"], indirect=True)


@pytest.mark.parametrize("content", [TEXT, NOISE, b""])
def test_compressed_files_come_and_go(host: RawPeer, tmp_path: Path, content: bytes) -> None:
    offer(host, len(content), "file", compress_type=1)
    assert host.receive()[1] == Command.FILE_BEGIN
    chunk(host, content, packed=compress_chunk(content) if content else b"")
    assert summary(host) == b"\2FileTransfer finish, Size:%d, File count = 1" % len(content)
    assert (tmp_path / "file").read_bytes() == content
    ask(host, "-z file x")
    config, got = take(host)
    assert config.compress_type == 1
    assert got == content
    host.send(3, Command.FILE_FINISH, b"\x01")
    assert host.receive() == (3, Command.FILE_FINISH, b"\x00")


@old
def test_an_old_daemon_rejects_what_was_compressed(host: RawPeer, tmp_path: Path) -> None:
    offer(host, len(TEXT), "file", compress_type=1)
    assert host.receive()[1] == Command.FILE_BEGIN
    chunk(host, TEXT, packed=compress_chunk(TEXT))
    for count in (7, 5, 3, 1):
        assert host.receive() == (3, Command.FILE_FINISH, bytes([count]))
        host.send(3, Command.FILE_FINISH, bytes([count - 1]))
    assert host.until_close(3)[0][1].startswith(b"\2FileTransfer finish, Size:0, File count = 0,")
    assert (tmp_path / "file").read_bytes() == b""


@old
def test_an_old_daemon_loses_what_does_not_shrink(host: RawPeer, tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(NOISE)
    ask(host, "-z noise x")
    assert host.receive()[1] == Command.FILE_CHECK
    host.send(3, Command.FILE_BEGIN, b"\5" + bytes(7))
    payload = TransferPayload.decode_packet(memoryview(host.receive()[2]))[0]
    assert payload == TransferPayload(0, 1, 0, len(NOISE))
    assert host.is_silent()  # for ever


def test_what_an_old_host_loses_is_waited_for(host: RawPeer) -> None:
    offer(host, 100, "file", compress_type=1)
    assert host.receive()[1] == Command.FILE_BEGIN
    chunk(host, bytes(100), packed=b"")
    assert host.is_silent()


@old
def test_an_old_daemon_tells_of_a_full_disk_at_the_end(host: RawPeer) -> None:
    offer(host, 6, "/dev/full")
    assert host.receive()[1] == Command.FILE_BEGIN
    chunk(host, b"hello\n")
    assert host.receive() == (3, Command.FILE_FINISH, b"\x01")
    host.send(3, Command.FILE_FINISH, b"\x00")
    reason = b"\0Transfer Stop at:0/6(Bytes), Reason: no space left on device"
    assert host.until_close(3) == [(Command.ECHO, reason), CLOSE]


@pytest.mark.parametrize(("destination", "lands"), [("", "top/"), ("new/er", "new/er/")])
def test_a_directory_arrives(host: RawPeer, tmp_path: Path, destination: str, lands: str) -> None:
    host.send(3, Command.WAKEUP_SLAVETASK)
    names = ["top/sub/a", "top/b"]
    for name in names:
        config = TransferConfig(file_size=1, path=destination, optional_name=name)
        host.send(3, Command.FILE_CHECK, config.encode())
        assert host.receive()[1] == Command.FILE_BEGIN
        chunk(host, b"x")
        if name != names[-1]:
            assert host.receive() == (3, Command.FILE_FINISH, b"\x01")
    assert summary(host) == b"\2FileTransfer finish, Size:2, File count = 2"
    assert (tmp_path / lands / "sub/a").read_bytes() == b"x"
    assert (tmp_path / lands / "b").read_bytes() == b"x"


def test_a_directory_goes_with_modes_and_times(host: RawPeer, tmp_path: Path) -> None:
    (tmp_path / "top/sub").mkdir(parents=True)
    for path, mode in (("top/b", 0o640), ("top/sub/a", 0o600)):
        (tmp_path / path).write_text(path)
        (tmp_path / path).chmod(mode)
        os.utime(tmp_path / path, ns=(1_000_000_000, 2_000_000_000))
    ask(host, '-cwd "/home/a b/" -m -a top back')
    modes, files = [], []
    while not files or len(files) < 2:
        _, command, data = host.receive()
        while command != Command.FILE_CHECK:
            assert command in (Command.FILE_MODE, Command.DIR_MODE)
            mode = FileMode.decode(data)
            modes.append((command, oct(mode.st_mode & 0o777), mode.full_name))
            host.send(3, Command.FILE_MODE)
            _, command, data = host.receive()
        host._waiting.insert(0, (3, command, data))
        config, content = take(host)
        assert (config.path, config.client_cwd, config.hold_timestamp) == (
            "back",
            "/home/a b/",
            1,
        )
        assert config.mtime_ns == 2_000_000_000
        files.append((config.optional_name, content))
        host.send(3, Command.FILE_FINISH, b"\x01")
    assert host.receive() == (3, Command.FILE_FINISH, b"\x00")
    assert files == [("top/sub/a", b"top/sub/a"), ("top/b", b"top/b")]
    assert [m for m in modes if m[0] == Command.FILE_MODE] == [
        (Command.FILE_MODE, "0o600", ""),
        (Command.FILE_MODE, "0o640", ""),
    ]
    assert [m[2] for m in modes if m[0] == Command.DIR_MODE] == ["top/sub", "top"]


def test_what_cannot_be_read_is_said_and_the_rest_goes(host: RawPeer, tmp_path: Path) -> None:
    (tmp_path / "top").mkdir()
    (tmp_path / "top/a").symlink_to("nowhere")
    os.mkfifo(tmp_path / "top/b")
    (tmp_path / "top/c").write_text("c")
    ask(host, "-cwd / top")
    config, content = take(host)
    assert (config.optional_name, config.path, content) == ("top/c", ".", b"c")
    host.send(3, Command.FILE_FINISH, b"\x01")
    assert b"no such file or directory" in host.receive()[2]
    assert host.receive() == (3, Command.FILE_FINISH, b"\x00")


def test_a_tree_goes_from_the_last_name_to_the_first(host: RawPeer, tmp_path: Path) -> None:
    for name in ("a", "b/1", "b/2/x", "b/3", "c", "d/e/f", "é"):
        (tmp_path / "top" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "top" / name).write_text(name)
    ask(host, "-cwd / top")
    names = []
    for _ in range(7):
        config, content = take(host)
        assert content.decode() == config.optional_name.removeprefix("top/")
        names.append(content.decode())
        host.send(3, Command.FILE_FINISH, b"\x01")
    assert names == ["é", "d/e/f", "c", "b/3", "b/2/x", "b/1", "a"]
    assert host.receive() == (3, Command.FILE_FINISH, b"\x00")


def test_a_directory_without_files_is_an_error(host: RawPeer, tmp_path: Path) -> None:
    (tmp_path / "top").mkdir()
    ask(host, "-cwd / top")
    assert [command for command, _ in host.until_close(3)] == [Command.ECHO, CLOSE[0]]


def test_a_directory_with_a_dangling_link_alone_has_an_error_and_a_summary(
    host: RawPeer, tmp_path: Path
) -> None:
    """The host prints `[Fail]…` and then `FileTransfer finish, Size:0, File count = 0`."""
    (tmp_path / "top").mkdir()
    (tmp_path / "top/a").symlink_to("nowhere")
    ask(host, "-cwd / top")
    text = b"\0Error opening file: no such file or directory, path:top/a"
    assert host.receive() == (3, Command.ECHO, text)
    assert host.receive() == (3, Command.FILE_FINISH, b"\x00")
    assert host.is_silent()


@pytest.mark.parametrize("path", ["/proc/self/mem", "/proc/self/clear_refs"])
@pytest.mark.parametrize("option", ["", "-z "])
def test_a_file_that_cannot_be_read_is_an_empty_one(host: RawPeer, path: str, option: str) -> None:
    """It can be opened: the host prints `FileTransfer finish, Size:0, File count = 1`."""
    with Path(path).open("rb", buffering=0) as file, pytest.raises(OSError, match=r"rror|nvalid"):
        file.read(1)
    ask(host, f"-cwd / {option}{path}")
    config, content = take(host)
    assert (config.file_size, content) == (0, b"")
    host.send(3, Command.FILE_FINISH, b"\x01")
    assert host.receive() == (3, Command.FILE_FINISH, b"\x00")


def test_sync_without_times_never_replaces(host: RawPeer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    offer(host, 3, "file", update_if_new=1)
    text = b"\0Target file is the same date or newer,path: file"
    assert host.until_close(3) == [(Command.ECHO, text), CLOSE]
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.parametrize("time", [1, 10**18, 2**63 - 1, 2**64 - 1])
def test_times_are_kept_as_far_as_they_can_be(host: RawPeer, tmp_path: Path, time: int) -> None:
    offer(host, 1, "file", hold_timestamp=1, atime_ns=time, mtime_ns=time)
    assert host.receive()[1] == Command.FILE_BEGIN
    chunk(host, b"x")
    assert summary(host).startswith(b"\2")
    if time == 10**18:
        assert (tmp_path / "file").stat().st_mtime_ns == time


@pytest.mark.parametrize("name", ["../x", "top/../../x", "/etc/x", "top//x", "a\0b", ""])
def test_no_name_leads_out_of_the_destination(host: RawPeer, tmp_path: Path, name: str) -> None:
    (tmp_path / "here").mkdir()
    offer(host, 1, "here", name)
    (command, text), close = host.until_close(3)
    assert (command, text[0], close) == (Command.ECHO, 0, CLOSE)
    assert not (tmp_path / "x").exists()
    host.send(4, Command.UNITY_EXECUTE, b"echo alive")
    assert host.until_close(4)[0] == (Command.ECHO_RAW, b"alive\n")


@pytest.mark.parametrize(
    "data",
    [
        b"short",
        TransferPayload(5, 0, 1, 1).encode_area() + b"x",  # not the offset that is due
        TransferPayload(0, 0, 9, 9).encode_area() + b"x",  # not the size it says
        TransferPayload(0, 1, 4, 1 << 40).encode_area() + b"\xff" * 4,
        TransferPayload(0, 1, 4, 400).encode_area() + b"\xff" * 4,
    ],
)
def test_chunks_that_cannot_be_drop_the_host_and_nobody_else(tmp_path: Path, data: bytes) -> None:
    with daemon(tmp_path) as address, raw_host(address) as other:
        other.shake_hands()
        with raw_host(address) as host:
            host.shake_hands()
            offer(host, 100, "file")
            assert host.receive()[1] == Command.FILE_BEGIN
            host.send(3, Command.FILE_DATA, data)
            assert host.ended()
        other.send(4, Command.UNITY_EXECUTE, b"echo alive")
        assert other.until_close(4)[0] == (Command.ECHO_RAW, b"alive\n")


def test_modes_of_directories_without_end_are_not_collected(tmp_path: Path) -> None:
    with daemon(tmp_path, limits=Limits(directories=10)) as address, raw_host(address) as host:
        host.shake_hands()
        host.send(3, Command.WAKEUP_SLAVETASK)
        host.send(3, Command.FILE_MODE, FileMode(0o100644).encode())
        for number in range(11):
            assert host.receive() == (3, Command.FILE_MODE, b"")
            host.send(3, Command.DIR_MODE, FileMode(full_name=f"top/{number}").encode())
        assert host.ended()


def test_an_old_daemon_with_a_full_disk_still_takes_the_next_file(tmp_path: Path) -> None:
    (tmp_path / "d" / "top").mkdir(parents=True)
    (tmp_path / "d" / "top" / "one").symlink_to("/dev/full")
    with daemon(tmp_path, version="3.1.0e") as address, raw_host(address) as host:
        host.shake_hands()
        host.send(1, Command.WAKEUP_SLAVETASK)
        for name in ("one", "two"):
            config = TransferConfig(file_size=3, path="d", optional_name=f"top/{name}")
            host.send(1, Command.FILE_CHECK, config.encode())
            assert host.receive()[1] == Command.FILE_BEGIN
            host.send(1, Command.FILE_DATA, TransferPayload(0, 0, 3, 3).encode_area() + b"abc")
            assert host.receive() == (1, Command.FILE_FINISH, b"\1")
        host.send(1, Command.FILE_FINISH, b"\0")
        (echo, text), _ = host.until_close(1)
        assert (echo, text[:1]) == (Command.ECHO, b"\0")
        assert text.endswith(b"no space left on device")
    assert (tmp_path / "d" / "top" / "two").read_bytes() == b"abc"
