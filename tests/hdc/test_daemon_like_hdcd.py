"""What an official hdcd 3.2.0c was seen to do in file transfers, asked of a virtual board's."""

import os
import select
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from daemons import daemon
from raw_files import CLOSE, ask, chunk, offer, summary, take
from raw_hdc import RawPeer, raw_host
from small_disk import small_disk

from labctl.hdc.lz4_chunks import decompress_chunk
from labctl.hdc.messages import FileMode, TransferConfig, TransferPayload
from labctl.hdc.wire import Command
from labctl.retry import wait_until


@pytest.fixture
def host(tmp_path: Path) -> Iterator[RawPeer]:
    with daemon(tmp_path) as address, raw_host(address) as peer:
        peer.shake_hands()
        yield peer


def chunks(host: RawPeer, arguments: str) -> tuple[int, list[bytes]]:
    """The announced size of one file and the chunks that come for it."""
    ask(host, arguments)
    _, command, data = host.receive()
    assert command == Command.FILE_CHECK, data
    size = TransferConfig.decode(data).file_size
    host.send(3, Command.FILE_BEGIN, b"\5" + bytes(7))
    bodies = []
    while not bodies or (bodies[-1] and sum(map(len, bodies)) < size):
        _, command, data = host.receive()
        assert command == Command.FILE_DATA, data
        payload, body = TransferPayload.decode_packet(memoryview(data))
        packed = bool(payload.compress_type) and bool(body)
        bodies.append(decompress_chunk(body, payload.uncompress_size) if packed else bytes(body))
    host.send(3, Command.FILE_FINISH, b"\x01")
    assert host.receive() == (3, Command.FILE_FINISH, b"\x00")
    return size, bodies


def refused(host: RawPeer) -> str:
    """The words with which the board ends a transfer."""
    (command, said), close = host.until_close(3)
    assert (command, said[:1], close) == (Command.ECHO, b"\0", CLOSE)
    return said[1:].decode()


@pytest.mark.parametrize("option", ["", "-z "])
def test_a_file_of_proc_is_sent_as_far_as_one_read_gives_it(host: RawPeer, option: str) -> None:
    size, bodies = chunks(host, f"{option}/proc/version v")
    assert (size, bodies) == (0, [Path("/proc/version").read_bytes()])


def test_a_file_that_is_shorter_than_its_size_ends_in_an_empty_chunk(host: RawPeer) -> None:
    path = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    size, bodies = chunks(host, f"{path} v")
    assert size > len(path.read_bytes())
    assert bodies == [path.read_bytes(), b""]


def test_an_empty_chunk_from_the_host_ends_a_file_too(host: RawPeer, tmp_path: Path) -> None:
    offer(host, 4096, "enabled")
    assert host.receive()[1] == Command.FILE_BEGIN
    chunk(host, b"always")
    chunk(host, b"", offset=6)
    assert summary(host) == b"\2FileTransfer finish, Size:6, File count = 1"
    assert (tmp_path / "enabled").read_bytes() == b"always"


@pytest.mark.parametrize("root", ["", "{}/"])
def test_paths_come_back_as_they_were_typed(host: RawPeer, tmp_path: Path, root: str) -> None:
    root = root.format(tmp_path)
    (tmp_path / "file").touch()
    ask(host, f"{root}no/such x")
    assert refused(host) == f"Error opening file: no such file or directory, path:{root}no/such"
    (tmp_path / "top").mkdir()
    (tmp_path / "top/dangling").symlink_to("nowhere")
    ask(host, f"{root}top x")
    expected = f"Error opening file: no such file or directory, path:{root}top/dangling"
    assert host.receive() == (3, Command.ECHO, b"\0" + expected.encode())
    assert host.receive() == (3, Command.FILE_FINISH, b"\0")
    host.send(3, Command.CHANNEL_CLOSE, b"\0")
    for name, options, answer in (
        ("no/file", {}, "Error opening file: no such file or directory, path:{}no/file"),
        ("x" * 300, {}, "Error opening file: name too long, path:{}" + "x" * 300),
        ("file", {"update_if_new": 1}, "Target file is the same date or newer,path: {}file"),
    ):
        offer(host, 1, f"{root}{name}", **options)
        assert refused(host) == answer.format(root)
    offer(host, 1, f"{root}file", "top/a")
    assert refused(host) == f"Not a directory, path:{root}file"


@pytest.fixture
def link(tmp_path: Path) -> Path:
    """A link to a directory with one file."""
    (tmp_path / "there").mkdir()
    (tmp_path / "there/a").write_text("a")
    (tmp_path / "link").symlink_to("there")
    return tmp_path / "link"


@pytest.mark.parametrize("asked", ["link", "top"])
def test_a_link_to_a_directory_is_sent_as_a_file(
    host: RawPeer, tmp_path: Path, link: Path, asked: str
) -> None:
    (tmp_path / "top").mkdir()
    (tmp_path / "top/link").symlink_to(link)
    ask(host, f"{asked} x")
    assert host.receive()[1] == Command.FILE_CHECK
    host.send(3, Command.FILE_BEGIN, b"\5" + bytes(7))
    size = link.stat().st_size
    reason = "illegal operation on a directory"
    assert refused(host) == f"Transfer Stop at:0/{size}(Bytes), Reason: {reason}"


@pytest.mark.usefixtures("link")
def test_a_link_to_a_directory_with_a_slash_is_the_directory(host: RawPeer) -> None:
    ask(host, "link/ x")
    config, content = take(host)
    assert (config.optional_name, content) == ("link/a", b"a")


@pytest.mark.usefixtures("link")
def test_nothing_is_put_behind_a_link_unless_a_slash_says_so(host: RawPeer, tmp_path: Path) -> None:
    offer(host, 1, "link")
    assert refused(host) == "Error opening file: illegal operation on a directory, path:link"
    offer(host, 1, "link", "top/b")
    assert refused(host) == "Not a directory, path:link"
    offer(host, 1, "link/")
    assert host.receive()[1] == Command.FILE_BEGIN
    chunk(host, b"x")
    summary(host)
    assert (tmp_path / "there/source").read_bytes() == b"x"


@pytest.mark.parametrize(
    ("destination", "name", "lands"),
    [
        ("new", "back\\slash", "new/slash"),
        ("old", "back\\slash", "old/back/slash"),
        ("new", "top\\sub\\a", "new/sub/a"),
        # Where there is a slash, a backslash is part of a name; but what is left is read anew.
        ("old", "top/sub\\a", "old/top/sub\\a"),
        ("new", "top/sub\\a", "new/sub/a"),
    ],
)
def test_a_windows_host_sends_trees(
    host: RawPeer, tmp_path: Path, destination: str, name: str, lands: str
) -> None:
    (tmp_path / "old").mkdir()
    offer(host, 1, destination, name)
    assert host.receive()[1] == Command.FILE_BEGIN
    chunk(host, b"x")
    summary(host)
    assert (tmp_path / lands).read_bytes() == b"x"


@pytest.mark.parametrize("name", ["..\\x", "top\\..\\..\\x", "top/..\\x"])
def test_no_backslash_leads_out_of_the_destination(
    host: RawPeer, tmp_path: Path, name: str
) -> None:
    offer(host, 1, "new", name)
    assert refused(host).startswith("Error opening file: invalid argument")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(("root", "mode"), [("", 0o750), ("{}/", 0o711)])
def test_directories_keep_their_modes_only_below_an_absolute_path(
    host: RawPeer, tmp_path: Path, root: str, mode: int
) -> None:
    (tmp_path / "old").mkdir()
    host.send(3, Command.WAKEUP_SLAVETASK)
    host.send(3, Command.FILE_MODE, FileMode(0o100644).encode())
    assert host.receive() == (3, Command.FILE_MODE, b"")
    uid, gid = os.getuid(), os.getgid()
    host.send(3, Command.DIR_MODE, FileMode(0o40711, uid, gid, full_name="top").encode())
    assert host.receive() == (3, Command.FILE_MODE, b"")
    config = TransferConfig(1, path=f"{root.format(tmp_path)}old", optional_name="top/a")
    host.send(3, Command.FILE_CHECK, config.encode())
    assert host.receive()[1] == Command.FILE_BEGIN
    chunk(host, b"x")
    summary(host)
    assert stat.S_IMODE((tmp_path / "old/top").stat().st_mode) == mode


def test_a_pipe_is_waited_for_and_left_out_of_a_directory(host: RawPeer, tmp_path: Path) -> None:
    (tmp_path / "top").mkdir()
    os.mkfifo(tmp_path / "top/a")
    (tmp_path / "top/b").write_text("b")
    ask(host, "top x")
    config, content = take(host)
    assert (config.optional_name, content) == ("top/b", b"b")
    host.send(3, Command.FILE_FINISH, b"\x01")
    assert host.receive() == (3, Command.FILE_FINISH, b"\x00")
    host.send(3, Command.CHANNEL_CLOSE, b"\x00")
    ask(host, "top/a x")
    assert host.is_silent()
    with (tmp_path / "top/a").open("wb", buffering=0) as pipe:
        pipe.write(b"x")
        assert host.receive()[1] == Command.FILE_CHECK
        host.send(3, Command.FILE_BEGIN, b"\5" + bytes(7))
        assert refused(host) == "Transfer Stop at:0/0(Bytes), Reason: invalid seek"


def test_a_pipe_that_nobody_waits_for_any_more_is_closed(host: RawPeer, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    ask(host, "pipe x")
    writer = wait_for_reader(tmp_path / "pipe")
    try:
        host.send(3, Command.CHANNEL_CLOSE, b"\x00")
        assert wait_until(lambda: not has_reader(writer), timeout=30, interval=0.01)
    finally:
        os.close(writer)


def wait_for_reader(pipe: Path) -> int:
    """The writing end of a pipe, once somebody has opened it for reading."""
    opened: list[int] = []

    def is_open() -> bool:
        with suppress(OSError):  # ENXIO: nobody reads yet
            opened.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        return bool(opened)

    assert wait_until(is_open, timeout=30, interval=0.01)
    return opened[0]


def has_reader(writer: int) -> bool:
    """Whether the other end of a pipe is open."""
    poll = select.poll()
    poll.register(writer, 0)
    return not any(seen & select.POLLERR for _, seen in poll.poll(0))


def test_a_full_disk_is_always_said(tmp_path: Path) -> None:
    (tmp_path / "board").mkdir()
    with (
        small_disk(tmp_path / "board", 64) as disk,
        daemon(disk) as address,
        raw_host(address) as host,
    ):
        host.shake_hands()
        for _ in range(30):
            offer(host, 100_000, "new", "top/file")
            assert host.receive()[1] == Command.FILE_BEGIN
            chunk(host, bytes(40_000))
            chunk(host, bytes(40_000), offset=40_000)  # said after the first packet or the second
            assert refused(host).endswith("(Bytes), Reason: no space left on device")
            assert host.receive() == (3, Command.FILE_FINISH, b"\x01")
