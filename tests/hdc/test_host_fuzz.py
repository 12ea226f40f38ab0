"""Whatever a board says, in any order: a value or a typed error, nothing hangs, nothing strays."""

import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from raw_hdc import RawPeer

from labctl.errors import CommandTimeout, LabctlError, LinkError
from labctl.hdc.host.files import receive_file, send_file
from labctl.hdc.host.handshake import BoardHandshake, Consent, Handshake
from labctl.hdc.host.link import Forwarding, hilog, interactive_shell, reboot, remount, shell
from labctl.hdc.host.nodes import Listener
from labctl.hdc.host.session import Session
from labctl.hdc.keys import HostKey
from labctl.hdc.lz4_chunks import compress_chunk
from labctl.hdc.messages import (
    FILE_FEATURES,
    Buffer,
    FileMode,
    SessionHandShake,
    TransferConfig,
    TransferPayload,
    encode_tlv,
)
from labctl.hdc.wire import Command, PacketDecoder, encode_packet

NAMES = st.sampled_from(
    ["x", "d/x", "d/sub/y", "d/../../z", "/abs", "d//x", "", "d/", "d/\0", "d/x/y", "e/%s", ".."]
) | st.text(max_size=12)


def chunk(draw_offset: int, kind: int, body: bytes, size: int) -> bytes:
    packed = (compress_chunk(body) or body) if kind == 1 else body
    return TransferPayload(draw_offset, kind, len(packed), size).encode_area() + packed


DATA = {
    Command.ECHO: st.builds(
        lambda level, text: bytes([level]) + text, st.integers(0, 3), st.binary()
    ),
    Command.CHANNEL_CLOSE: st.sampled_from([b"", b"\0", b"\1", b"\xff"]),
    Command.FILE_CHECK: st.builds(
        lambda size, name, times, kind: TransferConfig(
            file_size=size,
            optional_name=name,
            atime_ns=times,
            mtime_ns=times,
            hold_timestamp=int(times > 0),
            compress_type=kind,
        ).encode(),
        st.sampled_from([0, 1, 3, 1000, 1 << 40, (1 << 64) - 1]),
        NAMES,
        st.sampled_from([0, 1, 10**18, (1 << 64) - 1]),
        st.integers(0, 2),
    ),
    Command.FILE_BEGIN: st.sampled_from([FILE_FEATURES, b"", b"\0", b"\4"]),
    Command.FILE_DATA: st.builds(
        chunk,
        st.sampled_from([0, 0, 0, 1, 3]),
        st.sampled_from([0, 0, 1, 2]),
        st.sampled_from([b"", b"x", b"xyz", bytes(1000)]),
        st.sampled_from([0, 1, 3, 1000, 1 << 62]),
    ),
    Command.FILE_FINISH: st.sampled_from([b"", b"\0", b"\1", b"\1", b"\7", b"\xff"]),
    Command.FILE_MODE: st.builds(
        lambda mode: FileMode(mode).encode(), st.sampled_from([0, 0o107777, (1 << 64) - 1])
    )
    | st.just(b""),
    Command.DIR_MODE: st.builds(lambda name: FileMode(0o40755, full_name=name).encode(), NAMES),
}
COMMANDS = st.sampled_from(list(Command))
#: What belongs to a transfer comes often, so that conversations get somewhere.
SENSIBLE = st.sampled_from(list(DATA)).flatmap(
    lambda command: st.tuples(st.just(int(command)), DATA[command])
)
ANYTHING = st.tuples(COMMANDS.map(int) | st.integers(0, 1 << 32), st.binary(max_size=200))


def coming(name: str, content: bytes) -> list[tuple[int, bytes]]:
    """What a board says to send a file."""
    config = TransferConfig(file_size=len(content), optional_name=name)
    area = TransferPayload(0, 0, len(content), len(content)).encode_area()
    return [(Command.FILE_CHECK, config.encode()), (Command.FILE_DATA, area + content)]


def taken(files: int, size: int) -> list[tuple[int, bytes]]:
    """What a board says when it takes files."""
    summary = b"\2FileTransfer finish, Size:%d, File count = %d, time" % (size, files)
    each = [(Command.FILE_BEGIN, FILE_FEATURES), (Command.FILE_FINISH, b"\1")]
    return each * files + [(Command.ECHO, summary), (Command.CHANNEL_CLOSE, b"\1")]


GOOD = st.sampled_from(
    [
        [*coming("d/x", b"xyz"), *coming("d/sub/y", b"x"), (Command.FILE_FINISH, b"\0")],
        [*coming("x", bytes(1000)), (Command.FILE_FINISH, b"\0")],
        taken(1, 1000),
        taken(2, 1003),
    ]
)


@st.composite
def disturbed(draw: st.DrawFn) -> list[tuple[int, bytes]]:
    """A conversation in good order, but for a few packets more or less."""
    packets = list(draw(GOOD))
    for extra in draw(st.lists(SENSIBLE | ANYTHING, max_size=3)):
        packets.insert(draw(st.integers(0, len(packets))), extra)
    if draw(st.booleans()):
        del packets[draw(st.integers(0, len(packets) - 1))]
    return packets


PACKETS = disturbed() | st.lists(SENSIBLE | ANYTHING, max_size=14)


class Script:
    """A channel on which a board says what it likes, whatever it is told, then nothing."""

    timeout = 5.0

    def __init__(self, packets: list[tuple[int, bytes]]):
        self._packets = packets[::-1]

    def send(self, command: Command, *data: Buffer) -> None:
        assert all(isinstance(part, (bytes, bytearray, memoryview)) for part in data)

    def pending(self) -> bool:
        return bool(self._packets)

    def receive(self, timeout: float | None = None) -> tuple[int, bytes]:
        if not self._packets:
            raise CommandTimeout("nothing more")
        return self._packets.pop()


class ScriptedLink:
    """A link to such a board."""

    label = "scripted"
    failure: LinkError | None = None
    can_compress = True

    def __init__(self, packets: list[tuple[int, bytes]]):
        self._script = Script(packets)

    @contextmanager
    def open_task(self, command: Command, data: bytes, *, text: str, timeout: float):
        yield self._script

    @contextmanager
    def open_send(self, remote: str, *, timeout: float, compress: bool = False):
        yield self._script

    open_receive = open_send

    def forward(self, *_: object, **__: object) -> AbstractContextManager[Forwarding]:
        raise NotImplementedError

    reverse = forward

    def close(self) -> None:
        pass


def type_something(link: ScriptedLink) -> None:
    with interactive_shell(link, timeout=1) as typing:
        typing.send(b"x")
        while typing.receive(1):
            pass


@pytest.fixture(scope="module")
def source() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "a"
        path.write_bytes(bytes(1000))
        yield path


def is_value_or_typed_error(work: Callable[[], object]) -> None:
    with suppress(LabctlError):
        work()


@settings(max_examples=150, deadline=None)
@given(PACKETS)
def test_tasks(packets: list[tuple[int, bytes]]) -> None:
    for ask in (
        lambda link: list(shell(link, "x", timeout=1)),
        lambda link: list(hilog(link, timeout=1)),
        lambda link: reboot(link, timeout=1),
        lambda link: remount(link, timeout=1),
        type_something,
    ):
        is_value_or_typed_error(lambda ask=ask: ask(ScriptedLink(packets)))


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(PACKETS, st.booleans())
def test_sending(source: Path, packets: list[tuple[int, bytes]], compress: bool) -> None:
    def one() -> None:
        with source.open("rb") as file:
            sent = send_file(
                ScriptedLink(packets), file, "/x", timeout=1, on_chunk=len, compress=compress
            )
            assert sent == 1000

    is_value_or_typed_error(one)


@settings(max_examples=300, deadline=None)
@given(PACKETS, st.booleans())
def test_receiving(packets: list[tuple[int, bytes]], compress: bool) -> None:
    got = bytearray()
    with suppress(LabctlError):
        size = receive_file(
            ScriptedLink(packets), "/x", timeout=1, write=got.extend, compress=compress
        )
        assert len(got) == size


@contextmanager
def session_over_a_pair() -> Iterator[tuple[Session, socket.socket]]:
    ours, theirs = socket.socketpair()
    handshake = BoardHandshake("fuzz", frozenset({"heartbeat"}))
    with theirs, Session(ours, PacketDecoder(), handshake, "fuzz") as session:
        yield session, theirs


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.binary(max_size=400)
        | st.builds(encode_packet, st.integers(0, 3), COMMANDS, st.binary(max_size=50)),
        max_size=8,
    )
)
def test_bytes_on_the_wire(pieces: list[bytes]) -> None:
    with session_over_a_pair() as (session, peer), session.channel(timeout=30) as channel:
        with suppress(OSError):  # the session may have had enough
            for piece in pieces:
                peer.sendall(piece)
            peer.shutdown(socket.SHUT_RDWR)
        with suppress(LinkError):
            while True:
                channel.receive(30)
    assert session.failure is not None


HANDSHAKES = st.builds(
    lambda kind, buf, version: (
        int(Command.HANDSHAKE),
        SessionHandShake(auth_type=kind, buf=buf, version=version).encode(),
    ),
    st.integers(0, 7),
    st.sampled_from(
        [
            b"",
            b"a82096a0e619e1115c08",
            encode_tlv({"authtype": "1"}),
            encode_tlv({"emgmsg": "[E000002] wait", "daemonauthstatus": "DAEMON_UNAUTH"}),
            encode_tlv({"emgmsg": "", "devname": "x", "daemonauthstatus": "SUCCESS"}),
        ]
    )
    | st.binary(max_size=60),
    st.sampled_from(["", "Ver: 3.2.0c", "Ver: 2"]),
)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> HostKey:
    return HostKey.create(tmp_path_factory.mktemp("keys") / "hdckey")


@settings(max_examples=150, deadline=None)
@given(st.lists(HANDSHAKES | SENSIBLE | ANYTHING, max_size=6), st.binary(max_size=30))
def test_handshakes(key: HostKey, packets: list[tuple[int, bytes]], rest: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for command, data in packets:
            theirs.sendall(encode_packet(0, command, data))
        theirs.sendall(rest)
        theirs.shutdown(socket.SHUT_WR)
        handshake = Handshake(
            ours,
            PacketDecoder(),
            "fuzz",
            deadline=threading.TIMEOUT_MAX,
            find_key=lambda: key,
            consent=Consent(1.0),
        )
        is_value_or_typed_error(handshake.shake)


FORWARDED = st.tuples(
    st.sampled_from(range(Command.FORWARD_CHECK, Command.FORWARD_FREE_CONTEXT + 1)),
    st.builds(
        lambda context, body: context + body,
        st.sampled_from([b"", b"one1", b"two2", b"rule"]),
        st.binary(max_size=50),
    ),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(FORWARDED | SENSIBLE | ANYTHING, max_size=20), st.booleans())
def test_forwarded_connections(packets: list[tuple[int, bytes]], reverse: bool) -> None:
    before = set(threading.enumerate())
    with ExitStack() as held:
        listener = held.enter_context(closing(Listener("tcp:0")))

        def take() -> None:
            while (user := listener.accept()) is not None:
                with user, suppress(OSError):
                    user.sendall(b"hello")
                    user.recv(10)

        service = threading.Thread(target=take)
        service.start()
        held.callback(service.join)
        held.callback(listener.stop)
        session, sock = held.enter_context(session_over_a_pair())
        peer = RawPeer(sock)

        def play() -> None:
            channel = peer.receive()[0]
            if reverse:
                peer.send(channel, Command.WAKEUP_SLAVETASK)
                peer.send(channel, Command.FORWARD_CHECK, b"rule")
                peer.send(channel, Command.FORWARD_SUCCESS)
            else:
                peer.send(channel, Command.FORWARD_CHECK_RESULT, b"rule\0")
            with suppress(OSError, EOFError):
                for command, data in packets:
                    peer.send(channel, command, data)
                sock.shutdown(socket.SHUT_RDWR)

        board = threading.Thread(target=play)
        board.start()
        held.callback(board.join)
        if reverse:
            rule = session.reverse("tcp:9", listener.node, timeout=30)
        else:
            rule = session.forward("tcp:0", "tcp:9", timeout=30)
        with suppress(LabctlError), rule as forwarding:
            if not reverse:
                address = ("127.0.0.1", forwarding.port)
                with suppress(OSError), socket.create_connection(address, timeout=30) as user:
                    user.sendall(b"hello")
                    user.recv(10)
            board.join()
    assert {thread for thread in threading.enumerate() if thread.is_alive()} <= before
