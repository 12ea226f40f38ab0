"""Files: our host with our daemon, and with hostile boards."""

import random
from pathlib import Path

import pytest
from daemons import daemon
from raw_hdc import RawPeer, scripted_board

from labctl.errors import (
    BoardNoSpace,
    CommandTimeout,
    ConfigError,
    DeviceLost,
    IntegrityError,
    LabctlError,
    ProtocolError,
)
from labctl.hdc.host import files
from labctl.hdc.host.files import Sending, receive_file, send_file
from labctl.hdc.host.session import Session
from labctl.hdc.lz4_chunks import compress_chunk
from labctl.hdc.messages import (
    FILE_FEATURES,
    TransferConfig,
    TransferPayload,
)
from labctl.hdc.wire import Command

CLOSE = Command.CHANNEL_CLOSE


@pytest.fixture(autouse=True)
def board_directory(tmp_path: Path) -> None:
    (tmp_path / "board").mkdir()


def connect(address: str | int) -> Session:
    host, _, port = str(address).rpartition(":")
    return Session.connect(host or "127.0.0.1", int(port), timeout=30)


def test_lz4_is_used_where_it_helps_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[bool] = []

    def watched(data: memoryview) -> bytes | None:
        block = compress_chunk(data)
        packed.append(block is not None)
        return block

    monkeypatch.setattr(files, "compress_chunk", watched)
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
                    timeout=30,
                    on_chunk=lambda _: None,
                    compress=True,
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
        send_file(session, file, "d", timeout=30, on_chunk=lambda _: None, name="local name")
    assert (tmp_path / "board" / "d" / "local name").read_bytes() == b"x"


def test_a_percent_sign_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    with (
        scripted_board(lambda peer: peer.accept_hands() and peer.receive() and None) as port,
        connect(port) as session,
        (tmp_path / "f").open("rb") as file,
        pytest.raises(ConfigError, match="percent"),
    ):
        send_file(session, file, "/x/%s%s", timeout=30, on_chunk=lambda _: None)


def offer(peer: RawPeer, channel: int, name: str, content: bytes = b"x", size: int = 1) -> None:
    config = TransferConfig(file_size=size, optional_name=name)
    peer.send(channel, Command.FILE_CHECK, config.encode())
    if peer.receive()[1] == Command.FILE_BEGIN:
        area = TransferPayload(0, 0, len(content), len(content)).encode_area()
        peer.send(channel, Command.FILE_DATA, area + content)


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
        receive_file(session, "x", timeout=30, write=lambda _: None)


def test_a_block_that_is_no_lz4() -> None:
    for body, size in ((b"garbage", 1000), (b"", 1000), (b"\x10a", 1 << 40)):

        def board(peer: RawPeer, body: bytes = body, size: int = size) -> None:
            peer.accept_hands(supportfeatures="heartbeat")
            channel = peer.receive()[0]
            peer.send(channel, Command.WAKEUP_SLAVETASK)
            config = TransferConfig(file_size=1000, optional_name="x", compress_type=1)
            peer.send(channel, Command.FILE_CHECK, config.encode())
            peer.receive()
            area = TransferPayload(0, 1, len(body), size).encode_area()
            peer.send(channel, Command.FILE_DATA, area + body)
            peer.receive()

        got = bytearray()
        with scripted_board(board) as port, connect(port) as session, pytest.raises(ProtocolError):
            receive_file(session, "x", timeout=30, write=got.extend, compress=True)
        assert got == b""


@pytest.mark.parametrize(
    ("packets", "error", "says"),
    [
        ([(CLOSE, b"\x01")], DeviceLost, "broke off the transfer"),
        ([], CommandTimeout, "no answer"),
        ([(Command.FILE_FINISH, b"\x07")], ProtocolError, "FILE_CHECK"),
        ([(Command.FILE_MODE, b"")], ProtocolError, "FILE_CHECK"),
        ([(Command.FILE_CHECK, b"\xff")], ProtocolError, ""),
    ],
)
def test_a_board_that_announces_no_file(
    packets: list[tuple[int, bytes]], error: type[LabctlError], says: str
) -> None:
    def board(peer: RawPeer) -> None:
        peer.accept_hands()
        channel = peer.receive()[0]
        peer.send(channel, Command.WAKEUP_SLAVETASK)
        for command, data in packets:
            peer.send(channel, command, data)
        peer.receive()

    with scripted_board(board) as port, connect(port) as session, pytest.raises(error) as caught:
        receive_file(session, "x", timeout=0.5, write=lambda _: None)
    assert says in caught.value.message


@pytest.mark.parametrize(
    ("content", "size", "error", "says"),
    [
        (b"toolong", 1, IntegrityError, "of x and sent more"),
        (b"", 5, IntegrityError, "and sent 0"),
        (b"x", 1 << 62, CommandTimeout, "no answer"),
    ],
)
def test_a_file_of_another_size_than_announced(
    content: bytes, size: int, error: type[LabctlError], says: str
) -> None:
    def board(peer: RawPeer) -> None:
        peer.accept_hands()
        channel = peer.receive()[0]
        peer.send(channel, Command.WAKEUP_SLAVETASK)
        offer(peer, channel, "x", content, size)
        peer.receive()

    with scripted_board(board) as port, connect(port) as session, pytest.raises(error, match=says):
        receive_file(session, "x", timeout=0.5, write=lambda _: None)


@pytest.mark.parametrize(
    ("late", "error"),
    [
        (b"\0Transfer Stop at:1/2(Bytes), Reason: no space left on device", BoardNoSpace),
        (b"\2FileTransfer finish, Size:0, File count = 0", IntegrityError),
    ],
)
def test_an_old_board_ends_a_transfer_of_several_files_early(
    tmp_path: Path, late: bytes, error: type[LabctlError]
) -> None:
    (tmp_path / "x").write_bytes(b"x")

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

    with (
        scripted_board(board) as port,
        connect(port) as session,
        (tmp_path / "x").open("rb", buffering=0) as file,
        session.open_send("/x", timeout=30) as channel,
    ):
        sending = Sending(channel, "/x")
        sending.send(file, "top/one", lambda _: None)
        with pytest.raises(error):
            sending.send(file, "top/two", lambda _: None)
