"""The client of an hdc server when server, board or the way between them break."""

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hdc_server import BANNER, read, task, write
from hypothesis import given, settings
from hypothesis import strategies as st
from raw_hdc import RawPeer, scripted_board

from labctl.errors import (
    BoardError,
    CommandTimeout,
    ConfigError,
    DeviceLost,
    LabctlError,
    LinkError,
    LinkRefused,
    NotAuthorised,
    ProtocolError,
)
from labctl.hdc.host.files import receive_file, send_file
from labctl.hdc.host.link import shell
from labctl.hdc.messages import FILE_FEATURES, TransferConfig, TransferPayload
from labctl.hdc.server_client.channel import ChannelKind, ServerChannel, refusal
from labctl.hdc.server_client.frames import Frames
from labctl.hdc.server_client.server import HdcServer, Rule, Target
from labctl.hdc.server_client.session import ServerSession
from labctl.hdc.wire import Command

HELLO = BANNER + bytes(32)
Script = Callable[[socket.socket], None]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    assert {t for t in threading.enumerate() if t not in before and t.is_alive()} == set()


def after_handshake(
    script: Script, hello: bytes = HELLO, version: bytes = b"\x0d\0Ver: 3.2.0c"
) -> Callable[[RawPeer], None]:
    """A server that sends its handshake, takes the answer and the command, and plays on.

    It says its ``version`` whatever it plays: it is well, where a board is lost.
    """

    def play(peer: RawPeer) -> None:
        write(peer.socket, hello)
        assert len(read(peer.socket)) == len(hello)
        if read(peer.socket) == b"checkserver\0":
            write(peer.socket, version)
        else:
            script(peer.socket)

    return play


def session(port: int) -> ServerSession:
    return ServerSession(HdcServer("127.0.0.1", port), "board1")


def run(port: int, timeout: float = 30) -> bytes:
    return b"".join(shell(session(port), "x", timeout=timeout))


def send(port: int, folder: Path, size: int = 10, timeout: float = 30) -> int:
    (folder / "x").write_bytes(bytes(size))
    with (folder / "x").open("rb", buffering=0) as file:
        return send_file(session(port), file, "/b/x", timeout=timeout, on_chunk=lambda _: None)


def receive(port: int, timeout: float = 30) -> bytes:
    content = bytearray()
    receive_file(session(port), "/b/x", timeout=timeout, write=content.extend)
    return bytes(content)


def refused(port: int, error: type[LabctlError], match: str | None = None) -> LabctlError:
    with pytest.raises(error, match=match) as caught:
        run(port)
    return caught.value


# The way to the server


def test_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    error = refused(port, LinkRefused, f"no hdc server answers at 127.0.0.1:{port}")
    assert "hdc start" in (error.hint or "")


def test_a_server_that_accepts_and_stays_silent() -> None:
    with scripted_board(lambda peer: peer.ended() and None) as port:
        began = time.monotonic()
        with pytest.raises(CommandTimeout, match="no answer"):
            run(port, timeout=0.3)
        assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    "handshake",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HW\0\0\1\0\x08\0\0\0\0",
        struct.pack(">I", 44) + b"something else".ljust(44, b"\0"),
        struct.pack(">I", 12) + BANNER,
        struct.pack(">I", 0),
    ],
)
def test_a_handshake_of_something_else(handshake: bytes) -> None:
    def script(peer: RawPeer) -> None:
        peer.socket.sendall(handshake)
        peer.ended()

    with scripted_board(script) as port:
        error = refused(port, ProtocolError)
        assert "8710" in (error.hint or "")


@pytest.mark.parametrize("sent", [b"", b"\0\0", b"\0\0\0\x2cOHOS"])
def test_a_server_that_leaves_in_its_handshake(sent: bytes) -> None:
    with scripted_board(lambda peer: peer.socket.sendall(sent)) as port:
        refused(port, DeviceLost)


def test_a_server_that_refuses_before_it_hears_anything() -> None:
    def script(peer: RawPeer) -> None:
        write(peer.socket, HELLO)
        write(peer.socket, b"[Fail]Not match target founded, check connect-key please\r\n")

    with scripted_board(script) as port:
        refused(port, LinkRefused, "Not match target founded")


def test_servers_that_compare_versions_hear_their_own() -> None:
    heard: list[bytes] = []
    version = b"Ver: 3.2.0f".ljust(64, b"\0")

    def script(peer: RawPeer) -> None:
        write(peer.socket, HELLO + version)
        heard.append(read(peer.socket))
        heard.append(read(peer.socket))
        write(peer.socket, b"out")

    with scripted_board(script) as port:
        assert run(port) == b"out"
    assert heard == [BANNER + b"board1".ljust(32, b"\0") + version, b"shell x\0"]


@given(st.binary(max_size=400))
def test_no_bytes_of_a_server_do_more_than_a_typed_error(data: bytes) -> None:
    near, far = socket.socketpair()
    with near, far:
        far.sendall(data)
        far.close()
        frames = Frames(near, "a server")
        try:
            while frames.read(1) is not None:
                pass
        except LinkError:
            pass


@given(st.lists(st.binary(max_size=40), max_size=5), st.sampled_from(ChannelKind))
def test_no_frame_of_a_server_does_more_than_a_typed_error(
    frames: list[bytes], kind: ChannelKind
) -> None:
    near, far = socket.socketpair()
    with near, far:
        for frame in frames:
            write(far, frame)
        far.close()
        failures: list[LinkError] = []
        with ServerChannel(
            Frames(near, "a board"),
            timeout=1,
            kind=kind,
            large_buffers=True,
            on_refusal=failures.append,
        ) as channel:
            raised: list[LinkError] = []
            try:
                while channel.receive()[0] != Command.CHANNEL_CLOSE:
                    pass
                assert channel.receive() == (Command.CHANNEL_CLOSE, b"")  # again and again
            except LinkError as error:
                raised.append(error)
        assert raised == failures


# Commands


def test_a_server_that_dies_in_a_frame() -> None:
    with scripted_board(after_handshake(lambda s: s.sendall(b"\0\0\0\x09half"))) as port:
        refused(port, DeviceLost, "middle of a frame")


def test_a_server_that_resets_the_connection() -> None:
    def script(sock: socket.socket) -> None:
        write(sock, b"begun\n")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with scripted_board(after_handshake(script)) as port:
        refused(port, DeviceLost)


def test_a_frame_in_pieces_is_one() -> None:
    def script(sock: socket.socket) -> None:
        for byte in b"\0\0\0\x05hello":
            sock.sendall(bytes([byte]))
            time.sleep(0.01)  # each byte in a packet of its own

    with scripted_board(after_handshake(script)) as port:
        assert run(port) == b"hello"


def test_a_huge_frame_is_refused() -> None:
    with scripted_board(after_handshake(lambda s: s.sendall(b"\x7f\xff\xff\xff"))) as port:
        refused(port, ProtocolError, "length of a frame")


def test_silence_in_mid_frame_ends_in_time() -> None:
    def script(sock: socket.socket) -> None:
        sock.sendall(b"\0\0\0\x09half")
        sock.recv(1)

    with scripted_board(after_handshake(script)) as port:
        began = time.monotonic()
        with pytest.raises(CommandTimeout):
            run(port, timeout=0.3)
        assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("words", "error", "match"),
    [
        ("[E001005] Device not found or connected", LinkRefused, "cannot reach"),
        ("Device not founded or connected", LinkRefused, "cannot reach"),
        ("Not match target founded, check connect-key please", LinkRefused, "cannot reach"),
        ("[E000004]:The channel is being established", LinkRefused, "cannot reach"),
        ("[E000002]:The device unauthorized.\r\nThis server's", NotAuthorised, "not accept"),
        ("[E000003]:The device unauthorized.\r\nThe user denied", NotAuthorised, "not accept"),
        ("[E000010]:Auth failed, cannt login the device.", NotAuthorised, "not accept"),
        ("[E003003] Unsupport shell option: -x", BoardError, "Unsupport shell option"),
    ],
)
def test_refusals_have_their_types(words: str, error: type[LabctlError], match: str) -> None:
    def script(sock: socket.socket) -> None:
        write(sock, f"[Fail]{words}\r\n".encode())

    with scripted_board(after_handshake(script)) as port:
        raised = refused(port, error, match)
        if error is NotAuthorised:
            assert "screen" in (raised.hint or "")
            assert words.split("\r\n", maxsplit=1)[0] in (raised.details or "")


def test_output_that_looks_like_a_refusal_is_output() -> None:
    def script(sock: socket.socket) -> None:
        write(sock, b"first\n")
        write(sock, b"[Fail][E001005] Device not found or connected\r\n")

    with scripted_board(after_handshake(script)) as port:
        assert run(port).endswith(b"not found or connected\r\n")


def test_a_path_in_an_answer_is_no_refusal() -> None:
    assert (
        refusal(b"Error opening file: no such file, path:/[E001005] Device not found", "x") is None
    )


def test_closing_the_session_ends_what_waits() -> None:
    link: list[ServerSession] = []

    def script(sock: socket.socket) -> None:
        write(sock, b"begun\n")
        sock.recv(1)

    with scripted_board(after_handshake(script)) as port:
        link.append(session(port))
        pieces = shell(link[0], "x", timeout=30)
        assert next(pieces) == b"begun\n"
        closing = threading.Timer(0.1, link[0].close)
        closing.start()
        assert list(pieces) == []  # the end; that it is none is the sentinel's to tell
        closing.join()
        with pytest.raises(DeviceLost, match="was closed"):
            run_on(link[0])


def run_on(link: ServerSession) -> bytes:
    return b"".join(shell(link, "x", timeout=30))


# Files


def begun(sock: socket.socket) -> None:
    """Up to the board's readiness for chunks."""
    task(sock, Command.FILE_INIT, b"")
    assert read(sock) == b"\x0c\0"
    assert read(sock).startswith(b"\xb9\x0b")
    task(sock, Command.FILE_BEGIN, FILE_FEATURES)


def test_a_board_lost_before_a_send_begins(tmp_path: Path) -> None:
    with (
        scripted_board(after_handshake(lambda _: None)) as port,
        pytest.raises(DeviceLost, match="broke off the transfer"),
    ):
        send(port, tmp_path)


def test_a_board_lost_in_a_send(tmp_path: Path) -> None:
    def script(sock: socket.socket) -> None:
        begun(sock)
        read(sock)  # one chunk, and no more

    with scripted_board(after_handshake(script)) as port, pytest.raises(DeviceLost):
        send(port, tmp_path, 20_000_000)


def test_a_send_without_a_summary_is_no_success(tmp_path: Path) -> None:
    def script(sock: socket.socket) -> None:
        begun(sock)
        read(sock)
        task(sock, Command.FILE_FINISH, b"\1")
        read(sock)

    with scripted_board(after_handshake(script)) as port, pytest.raises(DeviceLost):
        send(port, tmp_path)


def test_a_server_that_takes_no_more_bytes(tmp_path: Path) -> None:
    def script(sock: socket.socket) -> None:
        begun(sock)
        time.sleep(1.5)  # it takes nothing, for longer than the client waits

    with (
        scripted_board(after_handshake(script)) as port,
        pytest.raises(CommandTimeout, match="no bytes"),
    ):
        send(port, tmp_path, 50_000_000, timeout=0.4)


def test_old_servers_get_small_chunks(tmp_path: Path) -> None:
    sizes: list[int] = []

    def script(sock: socket.socket) -> None:
        begun(sock)
        sizes.extend(len(read(sock)) for _ in range(3))
        task(sock, Command.FILE_FINISH, b"\1")
        read(sock)
        write(sock, b"FileTransfer finish, Size:100000, File count = 1\r\n")

    old = HELLO[:11] + b"\0" + HELLO[12:]
    with scripted_board(after_handshake(script, old)) as port:
        assert send(port, tmp_path, 100_000) == 100_000
    assert sizes == [2 + 64 + 49_152, 2 + 64 + 49_152, 2 + 64 + 1_696]


def chunk(offset: int, body: bytes) -> bytes:
    return TransferPayload(offset, 0, len(body), len(body)).encode_area() + body


def test_a_board_lost_in_a_receive() -> None:
    def script(sock: socket.socket) -> None:
        task(sock, Command.FILE_CHECK, TransferConfig(file_size=10, optional_name="x").encode())
        read(sock)
        task(sock, Command.FILE_DATA, chunk(0, b"12345"))

    with scripted_board(after_handshake(script)) as port, pytest.raises(DeviceLost):
        receive(port)


def test_the_client_ends_a_receive() -> None:
    last: list[bytes] = []

    def script(sock: socket.socket) -> None:
        task(sock, Command.FILE_CHECK, TransferConfig(file_size=5, optional_name="x").encode())
        read(sock)
        task(sock, Command.FILE_DATA, chunk(0, b"12345"))
        assert read(sock) == b"\xbc\x0b\1"
        task(sock, Command.FILE_FINISH, b"\0")
        last.append(read(sock))

    with scripted_board(after_handshake(script)) as port:
        assert receive(port) == b"12345"
    assert last == [b"\2\0\1"]


def test_a_silent_board_in_a_receive() -> None:
    def script(sock: socket.socket) -> None:
        task(sock, Command.FILE_CHECK, TransferConfig(file_size=5, optional_name="x").encode())
        while sock.recv(1000):
            pass

    with scripted_board(after_handshake(script)) as port, pytest.raises(CommandTimeout):
        receive(port, timeout=0.3)


@pytest.mark.parametrize("path", ['/a"b', "/a\0b"])
def test_paths_that_hdc_cannot_name(path: str) -> None:
    with scripted_board(after_handshake(lambda _: None)) as port:
        with pytest.raises(ConfigError):
            receive_file(session(port), path, timeout=30, write=lambda _: None)
        with pytest.raises(ConfigError), Path("/dev/null").open("rb", buffering=0) as file:
            send_file(session(port), file, path, timeout=30, on_chunk=lambda _: None)


# Global commands


@pytest.mark.parametrize(
    "answer", [b"[Fail]Something\r\n", b"KEY\tUSB\n", b"\xff\xfe", b"a\tb\tc\td\te\tf\tg\n"]
)
def test_a_list_that_is_none(answer: bytes) -> None:
    with (
        scripted_board(after_handshake(lambda s: write(s, answer))) as port,
        pytest.raises(ProtocolError, match="lists a board as"),
    ):
        HdcServer("127.0.0.1", port).list_targets(timeout=30)


ODD_LINES = [
    b"KEY\tUSB\tConnected\tfour",
    b"[Info]Something\tto\tknow",
    b"[Info]Nothing",
    b"one column",
    b"\xff\xfe\0",
    b"a\tb\tc\td\te\tf\tg",
]


@pytest.mark.parametrize("odd", ODD_LINES)
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_one_odd_line_costs_no_other_board(odd: bytes, end: bytes) -> None:
    good = b"board1\t\tUSB\tConnected\tname"
    for lines in ([odd, good], [good, odd]):
        answer = end.join(lines) + end
        with scripted_board(after_handshake(lambda s, a=answer: write(s, a))) as port:
            server = HdcServer("127.0.0.1", port)
            assert server.find("board1", timeout=30) == Target("board1", "USB", "Connected", "name")
            assert [target.key for target in server.list_targets(timeout=30)] == ["board1"]


def test_a_board_whose_own_line_is_odd_is_not_a_missing_board() -> None:
    with (
        scripted_board(after_handshake(lambda s: write(s, ODD_LINES[0] + b"\n"))) as port,
        pytest.raises(ProtocolError, match="lists a board as 'KEY"),
    ):
        HdcServer("127.0.0.1", port).find("KEY", timeout=30)


@pytest.mark.parametrize("end", ["\v", "\f", "\x1c", "\x1e", "\x85", "\u2028", "\u2029", "\r"])
def test_a_name_may_hold_what_python_takes_for_the_end_of_a_line(end: str) -> None:
    name = f"my{end}board"
    answer = f"board1\t\tUSB\tConnected\t{name}\nboard2\t\tUSB\tConnected\tother\n"
    rules = (
        f"board1    tcp:1 localabstract:a{end}b    [Forward]\nboard2    tcp:2 tcp:3    [Reverse]\n"
    )
    with scripted_board(after_handshake(lambda s: write(s, answer.encode()))) as port:
        found = HdcServer("127.0.0.1", port).list_targets(timeout=30)
    assert [(target.key, target.name) for target in found] == [
        ("board1", name),
        ("board2", "other"),
    ]
    with scripted_board(after_handshake(lambda s: write(s, rules.encode()))) as port:
        listed = HdcServer("127.0.0.1", port).rules(timeout=30)
    assert listed[-1] == Rule("board2", "tcp:2", "tcp:3", is_reverse=True)


def test_an_answer_without_an_end() -> None:
    def script(sock: socket.socket) -> None:
        while True:
            write(sock, bytes(100_000))

    with (
        scripted_board(after_handshake(script)) as port,
        pytest.raises(ProtocolError, match="without end"),
    ):
        HdcServer("127.0.0.1", port).list_targets(timeout=30)


def test_empty_frames_without_an_end() -> None:
    def script(sock: socket.socket) -> None:
        while True:
            sock.sendall(bytes(4 * 1000))

    with (
        scripted_board(after_handshake(script)) as port,
        pytest.raises(ProtocolError, match="without end"),
    ):
        HdcServer("127.0.0.1", port).list_targets(timeout=0.3)


def test_a_version_that_is_none() -> None:
    with (
        scripted_board(after_handshake(lambda _: None, version=b"Ver: 3")) as port,
        pytest.raises(ProtocolError, match="checkserver"),
    ):
        HdcServer("127.0.0.1", port).version(timeout=30)


class Saying(HdcServer):
    """A server that answers every question alike."""

    def __init__(self, answer: bytes):
        super().__init__("127.0.0.1", 8710)
        self._answer = answer

    def _ask(self, command: str, timeout: float, *, of_board: bool = False) -> bytes:
        return self._answer


@given(
    st.binary(max_size=200)
    | st.from_regex(
        rb"\A(\S+ {4}\S+ \S+ {4}\[(Forward|Reverse)\]\n?|\[Empty\]|\w\t\t\w\t\w\t\w\n)*\Z"
    )
)
def test_no_answer_does_more_than_a_typed_error(answer: bytes) -> None:
    server = Saying(answer)
    with suppress(ProtocolError):
        for target in server.list_targets(timeout=1):
            assert "\n" not in target.key
    with suppress(ProtocolError):
        for rule in server.rules(timeout=1):
            assert rule.listen
    with suppress(ProtocolError):
        assert isinstance(server.version(timeout=1), str)


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=300))
def test_no_handshake_does_more_than_a_typed_error(data: bytes) -> None:
    def script(peer: RawPeer) -> None:
        with suppress(OSError):
            peer.socket.sendall(data)
            peer.socket.shutdown(socket.SHUT_WR)
            while peer.socket.recv(1000):
                pass

    with scripted_board(script) as port, suppress(LinkError):
        assert HdcServer("127.0.0.1", port).list_targets(timeout=30) == []
