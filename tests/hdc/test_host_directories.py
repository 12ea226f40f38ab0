"""Directories and the options of files: our host with our daemon, and with hostile boards."""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daemons import daemon
from raw_hdc import RawPeer, scripted_board

from labctl.errors import (
    BoardError,
    BoardNoSpace,
    CommandTimeout,
    ConfigError,
    DeviceLost,
    IntegrityError,
    LabctlError,
    ProtocolError,
)
from labctl.hdc import (
    PLAIN_FILES,
    FileOptions,
    Session,
    receive_directory,
    receive_file,
    send_directory,
    send_file,
)
from labctl.hdc.compression import compress_chunk
from labctl.hdc.host import sending
from labctl.hdc.messages import (
    FILE_FEATURES,
    FileMode,
    TransferConfig,
    TransferPayload,
)
from labctl.hdc.wire import Command

CLOSE = Command.CHANNEL_CLOSE
OPTIONS = [
    FileOptions(compress, keep_mode, keep_times)
    for compress in (False, True)
    for keep_mode in (False, True)
    for keep_times in (False, True)
]


@pytest.fixture(autouse=True)
def board_directory(tmp_path: Path) -> None:
    (tmp_path / "board").mkdir()


def connect(address: str | int) -> Session:
    host, _, port = str(address).rpartition(":")
    return Session.connect(host or "127.0.0.1", int(port), timeout=5)


def make_tree(top: Path) -> dict[str, bytes]:
    """A directory with what may be in one; its files."""
    files = {
        "empty": b"",
        "text": b"all work and no play\n" * 50_000,
        "noise": random.Random(1).randbytes(900_000),
        "sub/deep/er/x": b"x",
        "sub/h\u00e4 ck 'me' $(x)": b"name",
        "run.sh": b"#!/bin/sh\n",
    }
    for name, content in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, ns=(1_600_000_000_123_456_000, 1_500_000_000_654_321_000))
    (top / "run.sh").chmod(0o750)
    (top / "sub" / "nothing" / "at all").mkdir(parents=True)
    return files


def content_of(top: Path) -> dict[str, bytes]:
    return {str(p.relative_to(top)): p.read_bytes() for p in top.rglob("*") if p.is_file()}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("version", ["3.1.0e", "3.2.0c", "3.2.0f"])
def test_a_directory_goes_there_and_back(
    tmp_path: Path, version: str, options: FileOptions
) -> None:
    files = make_tree(tmp_path / "top")
    seen: list[int] = []
    with daemon(tmp_path / "board", version=version) as address, connect(address) as session:
        there = send_directory(
            session, tmp_path / "top", "new", timeout=10, options=options, progress=seen.append
        )
        assert (there.files, there.bytes) == (len(files), sum(map(len, files.values())))
        assert there.skipped == ()
        assert set(there.empty_directories) == {"sub/nothing", "sub/nothing/at all"}
        assert seen == sorted(seen)
        assert seen[-1] == there.bytes
        back = receive_directory(
            session, "new", tmp_path / "back", timeout=10, options=options, progress=seen.append
        )
        assert (back.files, back.bytes, back.skipped) == (there.files, there.bytes, ())
        assert seen[-1] == back.bytes
    assert content_of(tmp_path / "back") == files
    script = (tmp_path / "back" / "run.sh").stat()
    assert script.st_mode & 0o777 == (0o750 if options.keep_mode else 0o644)
    assert (script.st_mtime_ns == 1_500_000_000_654_321_000) is options.keep_times


def test_what_exists_is_added_to(tmp_path: Path) -> None:
    files = make_tree(tmp_path / "top")
    (tmp_path / "back").mkdir()
    with daemon(tmp_path / "board") as address, connect(address) as session:
        send_directory(session, tmp_path / "top", ".", timeout=10)
        receive_directory(session, "top", tmp_path / "back", timeout=10)
    assert content_of(tmp_path / "back" / "top") == files


def test_what_cannot_be_read_here_is_left_out_and_told(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "good").write_bytes(b"good")
    (top / "linked").symlink_to("good")
    (top / "dangling").symlink_to("nowhere")
    (top / "100%").write_bytes(b"")
    (top / "loop").symlink_to(".")
    os.mkfifo(top / "pipe")
    with daemon(tmp_path / "board") as address, connect(address) as session:
        summary = send_directory(session, top, "new", timeout=5)
        receive_directory(session, "new", tmp_path / "back", timeout=5)
    assert [told.split(":")[0] for told in summary.skipped] == ["100%", "dangling", "loop", "pipe"]
    assert content_of(tmp_path / "back") == {"good": b"good", "linked": b"good"}


def test_a_directory_without_files(tmp_path: Path) -> None:
    (tmp_path / "top" / "sub").mkdir(parents=True)
    with daemon(tmp_path / "board") as address, connect(address) as session:
        summary = send_directory(session, tmp_path / "top", "new", timeout=5)
        assert (summary.files, summary.empty_directories) == (0, (".",))
        shutil.copytree(tmp_path / "top", tmp_path / "board" / "top")
        summary = receive_directory(session, "top", tmp_path / "back", timeout=5)
        assert (summary.files, summary.empty_directories) == (0, (".",))
    assert not (tmp_path / "back").exists()


def test_what_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with daemon(tmp_path / "board") as address, connect(address) as session:
        with pytest.raises(ConfigError, match="not a directory"):
            send_directory(session, tmp_path / "file", "new", timeout=5)
        with pytest.raises(ConfigError, match="without a name"):
            send_directory(session, Path("/"), "new", timeout=5)
        (tmp_path / "board" / "file").write_bytes(b"x")
        with pytest.raises(BoardError, match="not a directory"):
            receive_directory(session, "file", tmp_path / "back", timeout=5)
        with pytest.raises(BoardError, match="no such file"):
            receive_directory(session, "missing", tmp_path / "back", timeout=5)
        (tmp_path / "board" / "d").mkdir()
        (tmp_path / "board" / "d" / "x").write_bytes(b"x")
        with pytest.raises(ConfigError, match="not a directory"):
            receive_directory(session, "d", tmp_path / "file", timeout=5)
        assert (tmp_path / "file").read_bytes() == b"x"


def test_lz4_is_used_where_it_helps_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[bool] = []

    def watched(data: memoryview) -> bytes | None:
        block = compress_chunk(data)
        packed.append(block is not None)
        return block

    monkeypatch.setattr(sending, "compress_chunk", watched)
    (tmp_path / "text").write_bytes(b"all work and no play\n" * 100_000)
    (tmp_path / "noise").write_bytes(random.Random(1).randbytes(2_000_000))
    for version, name, chunks in (
        ("3.2.0c", "text", [True] * 2 + [True] * 6),  # two samples, six chunks
        ("3.2.0c", "noise", [False] * 2),
        ("3.1.0e", "text", []),
    ):
        packed.clear()
        with daemon(tmp_path / "board", version=version) as address, connect(address) as session:
            with (tmp_path / name).open("rb", buffering=0) as file:
                send_file(
                    session,
                    file,
                    name,
                    timeout=5,
                    on_chunk=lambda _: None,
                    options=FileOptions(compress=True),
                )
            assert packed == chunks
        assert (tmp_path / "board" / name).read_bytes() == (tmp_path / name).read_bytes()


def test_a_file_into_a_directory_gets_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "local name").write_bytes(b"x")
    with (
        daemon(tmp_path / "board") as address,
        connect(address) as session,
        (tmp_path / "local name").open("rb") as file,
    ):
        (tmp_path / "board" / "d").mkdir()
        send_file(session, file, "d", timeout=5, on_chunk=lambda _: None, name="local name")
    assert (tmp_path / "board" / "d" / "local name").read_bytes() == b"x"


def test_a_percent_sign_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    with (
        scripted_board(lambda peer: peer.accept_hands() and peer.receive() and None) as port,
        connect(port) as session,
        (tmp_path / "f").open("rb") as file,
        pytest.raises(ConfigError, match="percent"),
    ):
        send_file(session, file, "/x/%s%s", timeout=5, on_chunk=lambda _: None)


@pytest.fixture
def offering(tmp_path: Path) -> Iterator[Callable[..., LabctlError]]:
    """Receives a directory from a board that plays a script; the error that must come."""

    def receive(
        script: Callable[[RawPeer, int], object], options: FileOptions = PLAIN_FILES
    ) -> LabctlError:
        def board(peer: RawPeer) -> None:
            peer.accept_hands(supportfeatures="heartbeat")
            channel, command, _ = peer.receive()
            assert command == Command.FILE_INIT
            peer.send(channel, Command.WAKEUP_SLAVETASK)
            script(peer, channel)
            while True:
                peer.receive()

        with (
            scripted_board(board) as port,
            connect(port) as session,
            pytest.raises(LabctlError) as caught,
        ):
            receive_directory(session, "d", tmp_path / "in" / "to", timeout=0.5, options=options)
        return caught.value

    (tmp_path / "in").mkdir()
    return receive


def offer(peer: RawPeer, channel: int, name: str, content: bytes = b"x", size: int = 1) -> None:
    config = TransferConfig(file_size=size, optional_name=name)
    peer.send(channel, Command.FILE_CHECK, config.encode())
    if peer.receive()[1] == Command.FILE_BEGIN:
        area = TransferPayload(0, 0, len(content), len(content)).encode_area()
        peer.send(channel, Command.FILE_DATA, area + content)


@pytest.mark.parametrize(
    "name", ["d/../../out", "/etc/out", "../out", "d/sub/../../../out", "d//out", "d/\0", "d/"]
)
def test_a_hostile_board_writes_nowhere_else(
    offering: Callable[..., LabctlError], tmp_path: Path, name: str
) -> None:
    error = offering(lambda peer, channel: offer(peer, channel, name))
    assert isinstance(error, ProtocolError)
    assert {p.name for p in tmp_path.rglob("*")} == {"in", "board"}


@pytest.mark.parametrize("name", ["../../out", "/etc/out", "d/../../../out"])
def test_a_hostile_board_makes_directories_nowhere_else(
    offering: Callable[..., LabctlError], tmp_path: Path, name: str
) -> None:
    def script(peer: RawPeer, channel: int) -> None:
        peer.send(channel, Command.DIR_MODE, FileMode(0o40755, full_name=name).encode())
        assert peer.receive() == (channel, Command.FILE_MODE, b"")
        offer(peer, channel, "d/x")
        peer.receive()
        peer.send(channel, Command.FILE_FINISH, b"\0")

    error = offering(script, FileOptions(keep_mode=True))
    assert isinstance(error, ProtocolError)
    assert not (tmp_path / "out").exists()


def two_files(peer: RawPeer, channel: int, end: Callable[[RawPeer, int], object]) -> None:
    offer(peer, channel, "d/one")
    assert peer.receive() == (channel, Command.FILE_FINISH, b"\x01")
    peer.send(channel, Command.ECHO, b"\0Error opening file: permission denied, path:/d/two")
    end(peer, channel)


@pytest.mark.parametrize(
    ("end", "error", "says"),
    [
        (lambda p, c: p.send(c, CLOSE, b"\x01"), BoardError, "permission denied"),
        (lambda p, c: p.socket.shutdown(2), DeviceLost, "closed the connection"),
        (lambda p, c: None, CommandTimeout, "no answer"),
        (lambda p, c: offer(p, c, "d/three", b"toolong"), IntegrityError, "of d and sent more"),
        (lambda p, c: offer(p, c, "d/three", b"", size=5), IntegrityError, "and sent 0"),
        (lambda p, c: offer(p, c, "d/three", b"x", size=1 << 62), CommandTimeout, "no answer"),
        (lambda p, c: p.send(c, Command.FILE_FINISH, b"\x07"), ProtocolError, "FILE_CHECK"),
        (lambda p, c: p.send(c, Command.FILE_MODE, b""), ProtocolError, "FILE_CHECK"),
        (lambda p, c: p.send(c, Command.FILE_CHECK, b"\xff"), ProtocolError, ""),
    ],
)
def test_what_came_whole_stays_and_nothing_else(
    offering: Callable[..., LabctlError],
    tmp_path: Path,
    end: Callable[[RawPeer, int], object],
    error: type[LabctlError],
    says: str,
) -> None:
    caught = offering(lambda peer, channel: two_files(peer, channel, end))
    assert isinstance(caught, error)
    assert says in caught.message
    assert content_of(tmp_path / "in") == {"to/one": b"x"}


def test_a_block_that_is_no_lz4(offering: Callable[..., LabctlError], tmp_path: Path) -> None:
    for body, size in ((b"garbage", 1000), (b"", 1000), (b"\x10a", 1 << 40)):

        def script(peer: RawPeer, channel: int, body: bytes = body, size: int = size) -> None:
            config = TransferConfig(file_size=1000, optional_name="d/x", compress_type=1)
            peer.send(channel, Command.FILE_CHECK, config.encode())
            peer.receive()
            area = TransferPayload(0, 1, len(body), size).encode_area()
            peer.send(channel, Command.FILE_DATA, area + body)

        assert isinstance(offering(script, FileOptions(compress=True)), ProtocolError)
    assert content_of(tmp_path / "in") == {}


@pytest.mark.parametrize(
    ("late", "error"),
    [
        (b"\0Transfer Stop at:1/2(Bytes), Reason: no space left on device", BoardNoSpace),
        (b"\2FileTransfer finish, Size:0, File count = 0", IntegrityError),
    ],
)
def test_an_old_board_ends_a_directory_early(
    tmp_path: Path, late: bytes, error: type[LabctlError]
) -> None:
    for name in ("one", "two"):
        (tmp_path / "top").mkdir(exist_ok=True)
        (tmp_path / "top" / name).write_bytes(b"x")

    def board(peer: RawPeer) -> None:
        peer.accept_hands()
        channel = peer.receive()[0]
        peer.receive()
        peer.send(channel, Command.FILE_BEGIN, FILE_FEATURES)
        peer.receive()
        for counter in range(7, 0, -1):
            peer.send(channel, Command.FILE_FINISH, bytes([counter]))
            assert peer.receive() == (channel, Command.FILE_FINISH, bytes([counter - 1]))
        peer.send(channel, Command.ECHO, late)
        peer.send(channel, CLOSE, b"\x01")
        peer.receive()

    with scripted_board(board) as port, connect(port) as session, pytest.raises(error):
        send_directory(session, tmp_path / "top", "/x", timeout=5)


def test_one_file_that_turns_out_to_be_two() -> None:
    def board(peer: RawPeer) -> None:
        peer.accept_hands()
        channel = peer.receive()[0]
        peer.send(channel, Command.WAKEUP_SLAVETASK)
        offer(peer, channel, "x")
        peer.receive()
        offer(peer, channel, "y")

    with (
        scripted_board(board) as port,
        connect(port) as session,
        pytest.raises(ProtocolError, match="more than one"),
    ):
        receive_file(session, "x", timeout=5, write=lambda _: None)
