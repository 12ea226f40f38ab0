"""The host side against boards that misbehave."""

import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from raw_hdc import RawPeer, recorded, scripted_board

from labctl.errors import (
    BoardError,
    BoardNoSpace,
    BoardPermission,
    CommandTimeout,
    ConfigError,
    DeviceLost,
    HostError,
    IntegrityError,
    LabctlError,
    LinkRefused,
    ProtocolError,
)
from labctl.hdc.host.channel import Channel, Limits
from labctl.hdc.host.files import receive_file, send_file
from labctl.hdc.host.link import shell
from labctl.hdc.host.session import Session
from labctl.hdc.messages import (
    FILE_FEATURES,
    LARGE_CHUNK_BYTES,
    AuthType,
    SessionHandShake,
    TransferConfig,
    TransferPayload,
    decode_tlv,
)
from labctl.hdc.wire import Command, encode_packet
from labctl.retry import wait_until

CLOSE = Command.CHANNEL_CLOSE


def connect(port: int, timeout: float = 30, **limits: float) -> Session:
    return Session.connect("127.0.0.1", port, timeout=timeout, limits=Limits(**limits))  # type: ignore[arg-type]


def run(port: int, command: str = "x", timeout: float = 30) -> bytes:
    with connect(port) as session:
        return b"".join(shell(session, command, timeout=timeout))


def send(
    port: int,
    path: Path,
    timeout: float = 30,
    on_chunk: Callable[[memoryview], None] = lambda _: None,
) -> int:
    with connect(port) as session, path.open("rb") as file:
        return send_file(session, file, "/b/x", timeout=timeout, on_chunk=on_chunk)


def receive(port: int, timeout: float = 30) -> bytes:
    content = bytearray()
    with connect(port) as session:
        receive_file(session, "/b/x", timeout=timeout, write=content.extend)
    return bytes(content)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    assert {t for t in threading.enumerate() if t not in before and t.is_alive()} == set()


def test_the_handshake_is_what_the_recorded_daemon_accepted() -> None:
    seen: list[SessionHandShake] = []

    def board(peer: RawPeer) -> None:
        seen.append(peer.accept_hands(supportfeatures="heartbeat,encrypt_tcp"))
        peer.send(0, CLOSE, b"\x01")
        # The official host answers it with 00, and labctl says nothing: see the session's reader.
        assert peer.receive() == (7, CLOSE, b"\x00")
        assert peer.ended()

    with scripted_board(board) as port, connect(port) as session:
        assert session.handshake.name == "scripted"
        assert session.handshake.features == {"heartbeat", "encrypt_tcp"}
        session.send(7, CLOSE, b"\x00", timeout=30)
    (hello,) = seen
    theirs = SessionHandShake.decode(recorded("session-3.2.0c-basic.jsonl")[0].data)
    assert hello.banner == theirs.banner
    assert hello.auth_type == theirs.auth_type
    assert decode_tlv(hello.buf) == decode_tlv(theirs.buf)
    assert theirs.version.startswith(hello.version)


def test_the_recorded_answers_of_both_versions_are_understood() -> None:
    for name, heartbeat in (
        ("session-3.2.0c-basic.jsonl", True),
        ("session-3.1.0e-basic.jsonl", False),
    ):
        answers = [p.raw for p in recorded(name)[:4] if p.sender == "board"]

        def board(peer: RawPeer, answers: list[bytes] = answers) -> None:
            peer.receive()
            peer.socket.sendall(b"".join(answers))
            peer.receive()

        with scripted_board(board) as port, connect(port) as session:
            assert session.handshake.name == "vm"
            assert session.handshake.heartbeat is heartbeat


@pytest.mark.parametrize(
    ("version", "buf", "name"),
    [("Ver: 2.9", b"old board", "old board"), ("Ver: 3.2.0c", b"no tlv", None), ("x", b"", None)],
)
def test_odd_handshakes_are_accepted(version: str, buf: bytes, name: str | None) -> None:
    def board(peer: RawPeer) -> None:
        peer.receive()
        answer = SessionHandShake(auth_type=AuthType.OK, buf=buf, version=version)
        peer.send(0, Command.HANDSHAKE, answer.encode())
        peer.receive()

    with scripted_board(board) as port, connect(port) as session:
        assert session.handshake.name == name
        assert session.handshake.features == frozenset()


def test_nobody_listens() -> None:
    with scripted_board(lambda _: None) as port:
        pass
    with pytest.raises(LinkRefused, match=f"no board answers at 127.0.0.1:{port}"):
        connect(port)


@pytest.mark.parametrize(
    ("script", "error", "says"),
    [
        (lambda peer: peer.ended(), CommandTimeout, "does not speak hdc"),
        (lambda peer: peer.receive() and peer.socket.shutdown(2), DeviceLost, "closed the conn"),
        (lambda peer: peer.socket.sendall(b"SSH-2.0-OpenSSH\r\n"), ProtocolError, "SSH-2.0"),
        (
            lambda peer: peer.send(0, Command.HANDSHAKE, SessionHandShake(auth_type=6).encode()),
            ProtocolError,
            "unknown kind of authentication",
        ),
        (
            lambda peer: peer.socket.sendall(encode_packet(0, 1, b"x" * 50)[:20]) or peer.ended(),
            CommandTimeout,
            "does not speak hdc",
        ),
    ],
)
def test_handshakes_that_go_wrong(script, error: type[LabctlError], says: str) -> None:
    def board(peer: RawPeer) -> None:
        script(peer)
        peer.receive()

    with scripted_board(board) as port:
        began = time.monotonic()
        with pytest.raises(error, match=says):
            connect(port, timeout=0.5)
        assert time.monotonic() - began < 20


def test_a_peer_that_never_stops_to_say_other_things_is_no_board() -> None:
    def board(peer: RawPeer) -> None:
        peer.receive()
        while True:
            peer.socket.sendall(encode_packet(0, Command.HEARTBEAT, b"\x08\0\x12\0") * 200)

    with scripted_board(board) as port:
        began = time.monotonic()
        with pytest.raises(CommandTimeout, match="does not speak hdc"):
            connect(port, timeout=0.5)
        assert time.monotonic() - began < 20


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".lab"])
def test_what_is_no_name_of_a_host_is_the_users_error(host: str) -> None:
    with pytest.raises(ConfigError, match="not the name of a host"):
        Session.connect(host, 5555, timeout=1)


def test_a_dead_link_is_bounded_also_while_heartbeats_are_unacknowledged() -> None:
    with (
        scripted_board(lambda peer: peer.accept_hands() and None) as port,
        connect(port) as session,
    ):
        option = (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        assert 0 < session._socket.getsockopt(*option) <= 60_000


def test_output_comes_in_order_and_binary() -> None:
    def board(peer: RawPeer) -> None:
        peer.accept_hands()
        channel, command, data = peer.receive()
        assert (command, data) == (Command.UNITY_EXECUTE, b"x")
        peer.send(channel ^ 1, Command.ECHO_RAW, b"for nobody")
        for piece in (b"\xff\0", b"", b"\r\n[Fail]"):
            peer.send(channel, Command.ECHO_RAW, piece)
        peer.send(channel, CLOSE, b"\x01")
        assert peer.receive() == (channel, CLOSE, b"\x00")

    with scripted_board(board) as port:
        assert run(port) == b"\xff\0\r\n[Fail]"


@pytest.mark.parametrize(
    ("ending", "error", "says"),
    [
        (b"", DeviceLost, "it closed the connection"),
        (encode_packet(1, 10, b"x" * 50)[:20], DeviceLost, "it closed the connection"),
        (b"garbage and more garbage", ProtocolError, "garbage"),
    ],
)
def test_a_board_lost_in_mid_command(ending: bytes, error: type[LabctlError], says: str) -> None:
    def board(peer: RawPeer) -> None:
        peer.accept_hands()
        channel = peer.receive()[0]
        peer.send(channel, Command.ECHO_RAW, b"partial")
        peer.socket.sendall(ending)

    with scripted_board(board) as port, pytest.raises(error, match=says):
        run(port)


def test_what_ended_before_the_link_broke_has_ended() -> None:
    def board(peer: RawPeer) -> None:
        peer.accept_hands()
        channel = peer.receive()[0]
        peer.send(channel, Command.ECHO_RAW, b"all of it")
        peer.send(channel, CLOSE, b"\x01")

    with scripted_board(board) as port, connect(port) as session:
        pieces = shell(session, "x", timeout=30)
        said = next(pieces)
        assert wait_until(lambda: session.failure is not None, timeout=30, interval=0.01)
        assert said + b"".join(pieces) == b"all of it"


def test_an_interrupt_in_the_middle_of_a_packet_ends_the_session() -> None:
    got: list[tuple[int, int, bytes]] = []
    interrupted = threading.Event()

    def board(peer: RawPeer) -> None:
        peer.accept_hands()
        interrupted.wait(30)
        while True:
            got.append(peer.receive())

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def flood(channel: Channel) -> None:
        while True:
            channel.send(Command.FILE_DATA, bytes(4 << 20))

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with scripted_board(board) as port, connect(port) as session:
            channel = session.channel(timeout=30)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(KeyboardInterrupt):
                flood(channel)
            # Whatever is sent now would be taken as the rest of the file's bytes.
            with pytest.raises(DeviceLost, match="cut short"):
                list(shell(session, "kill", timeout=1))
            interrupted.set()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert {command for _, command, _ in got} <= {Command.FILE_DATA}


def test_a_session_whose_reader_fails_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Session) -> None:
        raise LookupError("a bug")

    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with scripted_board(lambda peer: peer.accept_hands() and peer.receive() and None) as port:
        monkeypatch.setattr(Session, "_dispatch", broken)
        with connect(port) as session, pytest.raises(DeviceLost):
            list(shell(session, "x", timeout=30))


def test_a_reset_is_a_lost_board() -> None:
    def board(peer: RawPeer) -> None:
        peer.accept_hands()
        peer.receive()
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with scripted_board(board) as port, pytest.raises(DeviceLost, match="reset"):
        run(port)


def test_a_silent_command_is_timed_out_and_closed_on_the_board() -> None:
    closed = threading.Event()

    def board(peer: RawPeer) -> None:
        peer.accept_hands()
        channel = peer.receive()[0]
        if peer.receive() == (channel, CLOSE, b"\x01"):
            closed.set()

    with scripted_board(board) as port:
        began = time.monotonic()
        with pytest.raises(CommandTimeout, match=r"0\.3 s"):
            run(port, timeout=0.3)
        assert time.monotonic() - began < 20
        assert closed.wait(30)


def test_a_chatty_command_is_timed_out_too() -> None:
    def board(peer: RawPeer) -> None:
        peer.accept_hands()
        channel = peer.receive()[0]
        while True:
            peer.send(channel, Command.ECHO_RAW, b"y\n" * 1000)

    with scripted_board(board) as port, pytest.raises(CommandTimeout):
        run(port, timeout=0.3)


def test_a_refusal_in_words_is_an_error_of_the_board() -> None:
    def board(peer: RawPeer) -> None:
        peer.accept_hands()
        channel = peer.receive()[0]
        peer.send(channel, Command.ECHO, b"\x00[E002105] Unsupport command\r\n")
        peer.send(channel, CLOSE, b"\x01")
        peer.receive()

    with scripted_board(board) as port, pytest.raises(BoardError, match="E002105"):
        run(port)


def _take_file(peer: RawPeer) -> int:
    """Play a board up to its FILE_BEGIN; the channel."""
    peer.accept_hands()
    channel, command, _ = peer.receive()
    assert command == Command.WAKEUP_SLAVETASK
    assert peer.receive()[1] == Command.FILE_CHECK
    peer.send(channel, Command.FILE_BEGIN, FILE_FEATURES)
    return channel


def _finish(peer: RawPeer, channel: int, size: int) -> None:
    peer.send(channel, Command.ECHO, b"\x02FileTransfer finish, Size:%d, File count = 1" % size)
    peer.send(channel, CLOSE, b"\x01")
    assert peer.receive() == (channel, CLOSE, b"\x00")


def test_a_file_is_sent_in_chunks_with_offsets(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(range(256)) * 2000)
    got = bytearray()

    def board(peer: RawPeer) -> None:
        channel = _take_file(peer)
        sizes = []
        while len(got) < path.stat().st_size:
            _, command, data = peer.receive()
            assert command == Command.FILE_DATA
            payload, body = TransferPayload.decode_packet(memoryview(data))
            assert payload.offset == len(got)
            got.extend(body)
            sizes.append(len(body))
        assert sizes == [LARGE_CHUNK_BYTES, 512_000 - LARGE_CHUNK_BYTES]
        for counter in (7, 6, 5, 4, 3, 2, 1):  # as 3.1.0e counts; each is answered with one less
            peer.send(channel, Command.FILE_FINISH, bytes([counter]))
            assert peer.receive() == (channel, Command.FILE_FINISH, bytes([counter - 1]))
        _finish(peer, channel, len(got))

    with scripted_board(board) as port:
        assert send(port, path) == 512_000
    assert bytes(got) == path.read_bytes()


def test_an_old_board_gets_small_chunks(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x" * 60_000)
    sizes = []

    def board(peer: RawPeer) -> None:
        peer.accept_hands()
        channel = peer.receive()[0]
        peer.receive()
        peer.send(channel, Command.FILE_BEGIN)
        sizes.extend(len(peer.receive()[2]) - 64 for _ in range(2))
        peer.send(channel, Command.FILE_FINISH, b"\x01")
        peer.receive()
        _finish(peer, channel, 60_000)

    with scripted_board(board) as port:
        send(port, path)
    assert sizes == [49_152, 60_000 - 49_152]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"Transfer Stop at:0/6(Bytes), Reason: no space left on device", BoardNoSpace),
        (b"Error opening file: permission denied, path:/sys/x", BoardPermission),
        (b"Error opening file: read-only file system, path:/system/x", BoardPermission),
        (b"Error opening file: no such file or directory, path:/b/x", BoardError),
    ],
)
@pytest.mark.parametrize("when", ["instead of begin", "between chunks", "instead of summary"])
def test_the_board_may_fail_at_any_point(
    tmp_path: Path, text: bytes, error: type[LabctlError], when: str
) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(50 * LARGE_CHUNK_BYTES))

    def board(peer: RawPeer) -> None:
        if when == "instead of begin":
            peer.accept_hands()
            channel = peer.receive()[0]
            peer.receive()
        else:
            channel = _take_file(peer)
            for _ in range(50 if when == "instead of summary" else 2):
                peer.receive()
        if when == "instead of summary":
            peer.send(channel, Command.FILE_FINISH, b"\x01")
            peer.receive()
        peer.send(channel, Command.ECHO, b"\x00" + text)
        peer.send(channel, CLOSE, b"\x01")
        peer.send(channel, Command.FILE_FINISH, b"\x01")
        while True:
            peer.receive()

    with scripted_board(board) as port, pytest.raises(error, match=text[:15].decode()):
        send(port, path)


def test_an_old_board_says_only_at_the_end_why_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(30 * LARGE_CHUNK_BYTES))

    def board(peer: RawPeer) -> None:  # as 3.1.0e does
        channel = _take_file(peer)
        peer.receive()
        peer.send(channel, Command.FILE_FINISH, b"\x01")
        while peer.receive()[1] != Command.FILE_FINISH:
            pass
        peer.send(
            channel,
            Command.ECHO,
            b"\x00Transfer Stop at:0/9(Bytes), Reason: no space left on device",
        )
        peer.send(channel, CLOSE, b"\x01")
        peer.receive()

    with scripted_board(board) as port, pytest.raises(BoardNoSpace):
        # We are slow: the refusal comes while chunks are on their way.
        send(port, path, on_chunk=lambda _: time.sleep(0.01))


def test_words_between_chunks_are_no_end_and_no_progress(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(10 * LARGE_CHUNK_BYTES))

    def board(peer: RawPeer) -> None:
        channel = _take_file(peer)
        peer.send(channel, Command.ECHO, b"\x01by the way")
        for _ in range(10):
            peer.receive()
        while True:
            peer.send(channel, Command.ECHO, b"\x01still busy")
            time.sleep(0.1)  # it talks on and on, never silent for a whole second

    with scripted_board(board) as port:
        began = time.monotonic()
        with pytest.raises(CommandTimeout):
            # We are slow: its words come between chunks.
            send(port, path, timeout=1, on_chunk=lambda _: time.sleep(0.01))
        assert 1 < time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("summary", "error"),
    [
        (b"\x02FileTransfer finish, Size:0, File count = 0", IntegrityError),
        (b"\x02all good", IntegrityError),
        (b"\x00FileTransfer finish, Size:3, File count = 1", BoardError),
    ],
)
def test_a_summary_that_disagrees_is_an_error(
    tmp_path: Path, summary: bytes, error: type[LabctlError]
) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abc")

    def board(peer: RawPeer) -> None:
        channel = _take_file(peer)
        peer.receive()
        peer.send(channel, Command.FILE_FINISH, b"\x01")
        peer.receive()
        peer.send(channel, Command.ECHO, summary)
        peer.send(channel, CLOSE, b"\x01")
        peer.receive()

    with scripted_board(board) as port, pytest.raises(error):
        send(port, path)


def test_a_board_that_takes_no_bytes_is_timed_out_and_the_session_is_over(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with path.open("wb") as file:
        file.truncate(100_000_000)
    freed = threading.Event()

    def board(peer: RawPeer) -> None:
        _take_file(peer)
        freed.wait(20)

    with scripted_board(board) as port, connect(port) as session:
        with path.open("rb") as file, pytest.raises(CommandTimeout, match="took no bytes"):
            send_file(session, file, "/b/x", timeout=0.5, on_chunk=lambda _: None)
        with pytest.raises(CommandTimeout):
            session.channel(timeout=1)
        freed.set()


def test_a_file_that_shrinks_while_it_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(2 * LARGE_CHUNK_BYTES))
    closed = threading.Event()

    def board(peer: RawPeer) -> None:
        channel = _take_file(peer)
        while peer.receive() != (channel, CLOSE, b"\x01"):
            pass
        closed.set()

    def shrink(_: memoryview) -> None:
        path.write_bytes(b"short")

    with scripted_board(board) as port, connect(port) as session:
        with path.open("rb", buffering=0) as file, pytest.raises(HostError, match="shorter"):
            send_file(session, file, "/b/x", timeout=30, on_chunk=shrink)
        assert closed.wait(30)


def _offer(peer: RawPeer, size: int, name: str = "x") -> int:
    """Play a board up to the host's FILE_BEGIN; the channel."""
    peer.accept_hands()
    channel, command, data = peer.receive()
    assert (command, data) == (Command.FILE_INIT, b'"/b/x" file')
    peer.send(channel, Command.WAKEUP_SLAVETASK)
    config = TransferConfig(file_size=size, optional_name=name)
    peer.send(channel, Command.FILE_CHECK, config.encode())
    assert peer.receive() == (channel, Command.FILE_BEGIN, FILE_FEATURES)
    return channel


def _chunk(peer: RawPeer, channel: int, offset: int, body: bytes, kind: int = 0) -> None:
    area = TransferPayload(offset, kind, len(body), len(body)).encode_area()
    peer.send(channel, Command.FILE_DATA, area + body)


@pytest.mark.parametrize("content", [b"", b"abc", b"\0" * 1000])
def test_a_file_is_received(content: bytes) -> None:
    def board(peer: RawPeer) -> None:
        channel = _offer(peer, len(content))
        _chunk(peer, channel, 0, content[:500])
        if content[500:]:
            _chunk(peer, channel, 500, content[500:])
        assert peer.receive() == (channel, Command.FILE_FINISH, b"\x01")
        peer.send(channel, Command.FILE_FINISH, b"\x00")
        assert peer.receive() == (channel, CLOSE, b"\x01")
        peer.send(channel, CLOSE, b"\x00")
        assert peer.ended()

    with scripted_board(board) as port:
        assert receive(port) == content


@pytest.mark.parametrize(
    ("play", "error", "says"),
    [
        (lambda p, c: _chunk(p, c, 3, b"abc"), ProtocolError, "unexpected chunk"),
        (lambda p, c: _chunk(p, c, 0, b"abc", 1), ProtocolError, "unexpected chunk"),
        (lambda p, c: _chunk(p, c, 0, b"a" * 11), IntegrityError, "10 bytes of /b/x and sent more"),
        (lambda p, c: _chunk(p, c, 0, b""), IntegrityError, "and sent 0"),
        (lambda p, c: p.send(c, Command.FILE_DATA, b"abc"), ProtocolError, "chunk"),
        (lambda p, c: p.send(c, Command.FILE_BEGIN), ProtocolError, "expected FILE_DATA"),
        (lambda p, c: p.send(c, CLOSE, b"\x01"), DeviceLost, "without a reason"),
        (lambda p, c: p.send(c, Command.ECHO, b"\x00Error: gone"), BoardError, "gone"),
        (lambda p, c: p.socket.shutdown(2), DeviceLost, "closed the connection"),
        (lambda p, c: None, CommandTimeout, "no answer"),
    ],
)
def test_receiving_what_is_not_as_announced(play, error: type[LabctlError], says: str) -> None:
    def board(peer: RawPeer) -> None:
        channel = _offer(peer, 10)
        play(peer, channel)
        while True:
            peer.receive()

    with scripted_board(board) as port, pytest.raises(error, match=says):
        receive(port, timeout=0.5 if error is CommandTimeout else 30)


def test_a_directory_is_not_a_file() -> None:
    def board(peer: RawPeer) -> None:
        peer.accept_hands()
        channel = peer.receive()[0]
        peer.send(channel, Command.WAKEUP_SLAVETASK)
        config = TransferConfig(file_size=4, optional_name="dir/sub/two.txt")
        peer.send(channel, Command.FILE_CHECK, config.encode())
        peer.receive()

    with scripted_board(board) as port, pytest.raises(BoardError, match="directory"):
        receive(port)


def test_a_quote_in_a_path_is_refused_before_anything_is_sent() -> None:
    with (
        scripted_board(lambda peer: peer.accept_hands() and None) as port,
        connect(port) as session,
        pytest.raises(ConfigError, match="double quote"),
    ):
        receive_file(session, '/b/"x', timeout=1, write=lambda _: None)


def test_channels_do_not_disturb_each_other() -> None:
    def board(peer: RawPeer) -> None:
        peer.accept_hands()
        first, second = peer.receive(), peer.receive()
        for channel, _, data in (second, first):  # in the other order, mixed
            peer.send(channel, Command.ECHO_RAW, data)
        for channel, _, data in (first, second):
            peer.send(channel, Command.ECHO_RAW, data)
            peer.send(channel, CLOSE, b"\x01")
        peer.receive(), peer.receive()

    with scripted_board(board) as port, connect(port) as session:
        results: dict[str, bytes] = {}

        def ask(word: str) -> None:
            results[word] = b"".join(shell(session, word, timeout=30))

        threads = [threading.Thread(target=ask, args=(word,)) for word in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == {"one": b"oneone", "two": b"twotwo"}


def test_a_consumer_that_sleeps_does_not_make_us_hoard() -> None:
    total = 60 << 20
    sent = 0

    def board(peer: RawPeer) -> None:
        nonlocal sent
        peer.accept_hands()
        channel = peer.receive()[0]
        while sent < total:
            peer.send(channel, Command.ECHO_RAW, bytes(1 << 16))
            sent += 1 << 16
        peer.send(channel, CLOSE, b"\x01")
        peer.receive()

    with scripted_board(board) as port, connect(port, queue_bytes=1 << 20) as session:
        pieces = shell(session, "x", timeout=30)
        got = len(next(pieces))
        time.sleep(0.5)  # the consumer sleeps: long enough for all to come
        assert sent < total  # the board was held back by TCP
        got += sum(map(len, pieces))
    assert got == total


def test_packets_without_data_are_not_hoarded_either() -> None:
    total, sent = 2_000_000, 0

    def board(peer: RawPeer) -> None:
        nonlocal sent
        peer.accept_hands()
        channel = peer.receive()[0]
        while sent < total:
            peer.socket.sendall(encode_packet(channel, Command.ECHO_RAW) * 1000)
            sent += 1000

    with scripted_board(board) as port, connect(port, queue_bytes=100_000) as session:
        with session.channel(timeout=30) as channel:
            channel.send(Command.UNITY_EXECUTE, b"x")
            time.sleep(1)  # nobody takes the packets: long enough for all to come
            assert len(channel._arrived) < 10_000
        assert sent < total


def test_heartbeats_are_sent_to_boards_that_want_them() -> None:
    beats: list[tuple[int, int, bytes]] = []
    enough = threading.Event()

    def board(peer: RawPeer) -> None:
        peer.accept_hands(supportfeatures="heartbeat")
        while len(beats) < 3:
            peer.send(0, Command.HEARTBEAT, bytes.fromhex("08001200"))  # theirs are no matter
            beats.append(peer.receive())
        enough.set()
        peer.receive()

    with scripted_board(board) as port, connect(port, heartbeat_seconds=0.05):
        assert enough.wait(30)
    expected = [(0, Command.HEARTBEAT, bytes([8, count, 0x12, 0])) for count in range(3)]
    assert beats == expected


def test_closing_wakes_everyone_who_waits() -> None:
    asked = threading.Event()

    def board(peer: RawPeer) -> None:
        peer.accept_hands()
        peer.receive()
        asked.set()
        peer.receive()

    with scripted_board(board) as port:
        session = connect(port)
        caught: list[LabctlError] = []

        def wait() -> None:
            try:
                list(shell(session, "x", timeout=30))
            except LabctlError as error:
                caught.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        assert asked.wait(30)
        session.close()
        thread.join(30)
        session.close()
    assert [type(error) for error in caught] == [DeviceLost]
    assert "was closed" in caught[0].message


def test_closing_does_not_wait_for_ever_for_a_lock_that_nobody_releases() -> None:
    """Ctrl-C may strike a thread between the moment that it has a lock and the next."""

    def board(peer: RawPeer) -> None:
        peer.accept_hands()
        assert peer.ended()

    with scripted_board(board) as port:
        session = connect(port, close_seconds=0.05)
        session._sending.acquire()
        session.close()
        session._sending.release()
        session.close()
