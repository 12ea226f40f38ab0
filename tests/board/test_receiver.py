"""The host's part of the conversation with ``agent receive``, against agents that misbehave."""

import errno
import hashlib
import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from labctl.board.upload.client import WINDOW, Busy, ChunkedFile, Counters, send_chunks
from labctl.errors import (
    BoardError,
    BoardNoSpace,
    BoardPermission,
    CommandTimeout,
    DeviceLost,
    IntegrityError,
    ProtocolError,
)
from labctl.transport.linked import Stream

CHUNK = 1000
COUNT = 12
TOKEN = "t" * 64
HEAD = struct.Struct(">cII32s")

Script = Callable[["Agent"], None]


class Agent:
    """An agent's end of a connection."""

    def __init__(self, sock: socket.socket):
        self.sock = sock
        self.chunks: dict[int, bytes] = {}
        self.taken = 0

    def take(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.sock.recv(count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def say(self, kind: bytes, number: int | None = None, rest: bytes = b"") -> None:
        self.sock.sendall(kind + (b"" if number is None else struct.pack(">I", number)) + rest)

    def take_chunk(self) -> int:
        kind, index, length, digest = HEAD.unpack(self.take(HEAD.size))
        assert kind == b"C"
        data = self.take(length)
        assert hashlib.sha256(data).digest() == digest
        self.chunks[index] = data
        self.taken += 1
        return int(index)

    def end_with(self, number: int) -> None:
        """Say why it is the end, and take what is still sent, as the agent does."""
        self.say(b"E", number)
        while self.sock.recv(1 << 16):
            pass

    def take_all(self) -> None:
        for _ in range(COUNT - len(self.chunks)):
            self.say(b"A", self.take_chunk())
        assert self.take(1) == b"F"
        self.say(b"D")


@contextmanager
def agent(script: Script) -> Iterator[tuple[Stream, list[Agent]]]:
    met: list[Agent] = []

    def serve(server: socket.socket) -> None:
        sock, _ = server.accept()
        sock.settimeout(20)
        with sock:
            met.append(Agent(sock))
            assert met[0].take(len(TOKEN)) == TOKEN.encode()
            # The host has hung up: this is the end of what it would hear.
            with suppress(EOFError, ConnectionError):
                script(met[0])

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        served = pool.submit(serve, server)
        with socket.create_connection(server.getsockname()) as connected:
            yield Stream("board", connected, timeout=20), met
        served.result()


@pytest.fixture
def source(tmp_path: Path) -> Iterator[ChunkedFile]:
    path = tmp_path / "model.gguf"
    raw = bytes(index % 251 for index in range(COUNT * CHUNK - 300))
    path.write_bytes(raw)
    with ChunkedFile(path, hashlib.sha256(raw).hexdigest(), len(raw), CHUNK) as made:
        yield made


def send(stream: Stream, source: ChunkedFile, counters: Counters, stall: float = 20) -> bool:
    stream.timeout = stall
    return send_chunks(
        stream,
        TOKEN,
        source,
        counters,
        finish_timeout=stall,
        progress=lambda _done: None,
        pace=lambda _count: None,
    )


def test_only_what_is_not_there_as_it_should_be_is_sent(source: ChunkedFile) -> None:
    raw = source.path.read_bytes()
    good = hashlib.sha256(raw[3 * CHUNK : 4 * CHUNK]).digest()
    other = hashlib.sha256(b"of another file").digest()

    def script(agent: Agent) -> None:
        agent.say(b"G", 3, good)
        agent.say(b"G", 4, other)
        agent.say(b"B", 5)
        agent.say(b"R")
        agent.chunks[3] = b""
        agent.take_all()

    counters = Counters()
    with agent(script) as (stream, met):
        assert send(stream, source, counters)
    assert (met[0].taken, counters.present_bytes) == (COUNT - 1, source.size_bytes)
    assert counters.sent_bytes == source.size_bytes - CHUNK


def test_no_more_than_the_window_is_under_way(source: ChunkedFile) -> None:
    def script(agent: Agent) -> None:
        agent.say(b"R")
        for _ in range(WINDOW):
            agent.say(b"A", agent.take_chunk())
        while True:
            agent.take_chunk()  # and never acknowledge one again

    counters = Counters()
    with agent(script) as (stream, met), pytest.raises(CommandTimeout, match="no progress"):
        send(stream, source, counters, stall=0.3)
    assert met[0].taken == 2 * WINDOW
    assert counters.sent_bytes == 2 * WINDOW * CHUNK
    assert counters.present_bytes == WINDOW * CHUNK


def test_the_first_progress_needs_one_chunk_alone(source: ChunkedFile) -> None:
    """On a slow link nothing would be shown for all of the window."""

    def script(agent: Agent) -> None:
        agent.say(b"R")
        while True:
            agent.take_chunk()  # and never acknowledge one

    counters = Counters()
    with agent(script) as (stream, met), pytest.raises(CommandTimeout, match="no progress"):
        send(stream, source, counters, stall=0.3)
    assert (met[0].taken, counters.sent_bytes) == (1, CHUNK)


def test_a_chunk_that_arrives_damaged_is_sent_again(source: ChunkedFile) -> None:
    def script(agent: Agent) -> None:
        agent.say(b"R")
        index = agent.take_chunk()
        del agent.chunks[index]
        agent.say(b"B", index)
        agent.take_all()

    counters = Counters()
    with agent(script) as (stream, met):
        assert send(stream, source, counters)
    assert b"".join(met[0].chunks[i] for i in range(COUNT)) == source.path.read_bytes()
    assert counters.sent_bytes == source.size_bytes + CHUNK


def test_a_way_that_damages_everything_is_given_up(source: ChunkedFile) -> None:
    def script(agent: Agent) -> None:
        agent.say(b"R")
        while True:
            agent.say(b"B", agent.take_chunk())

    with agent(script) as (stream, _), pytest.raises(IntegrityError, match="damaged"):
        send(stream, source, Counters())


def test_who_comes_second_is_told_so(source: ChunkedFile) -> None:
    with agent(lambda agent: agent.end_with(errno.EAGAIN)) as (stream, _), pytest.raises(Busy):
        send(stream, source, Counters())
    with agent(lambda agent: agent.end_with(errno.EEXIST)) as (stream, _):
        assert not send(stream, source, Counters())


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.ENOSPC, BoardNoSpace, r"10.7 kB of 11.7 kB are still missing"),
        (errno.EDQUOT, BoardNoSpace, "quota"),
        (errno.EROFS, BoardPermission, "Read-only"),
        (errno.EFBIG, BoardError, "too large"),
        (errno.EIO, BoardError, "Input/output"),
    ],
)
def test_a_board_that_cannot_write_says_why(
    source: ChunkedFile, number: int, kind: type[BoardError], words: str
) -> None:
    def script(agent: Agent) -> None:
        agent.say(b"R")
        agent.say(b"A", agent.take_chunk())
        agent.take_chunk()
        agent.end_with(number)

    with agent(script) as (stream, _), pytest.raises(kind, match=words):
        send(stream, source, Counters())


@pytest.mark.parametrize(
    "said",
    [
        b"X",
        b"G" + struct.pack(">I", COUNT) + bytes(32),
        b"G" + struct.pack(">I", 0xFFFFFFFF) + bytes(32),
        b"R" + b"A" + struct.pack(">I", 11),
        b"R" + b"D",
    ],
    ids=["unknown", "no such chunk", "a huge number", "not under way", "too early"],
)
def test_what_no_agent_says_ends_the_conversation(source: ChunkedFile, said: bytes) -> None:
    def script(agent: Agent) -> None:
        agent.say(said)
        agent.say(bytes(100))
        while True:
            agent.take(1)

    with agent(script) as (stream, _), pytest.raises(ProtocolError, match="unexpected"):
        send(stream, source, Counters())


@pytest.mark.parametrize("said", [b"", b"G\0", b"R", b"RA\0\0"])
def test_an_agent_that_is_gone_is_a_lost_link(source: ChunkedFile, said: bytes) -> None:
    with agent(lambda agent: agent.say(said)) as (stream, _), pytest.raises(DeviceLost):
        send(stream, source, Counters())
