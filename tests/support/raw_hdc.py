"""A hand-driven end of an hdc session, to see and to send exactly what is on the wire."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from labctl.hdc.messages import AuthType, SessionHandShake, encode_tlv
from labctl.hdc.wire import Command, PacketDecoder, encode_packet

FIXTURES = Path(__file__).parent.parent / "fixtures" / "hdc"
RECORDINGS = sorted(path.name for path in FIXTURES.glob("session-*.jsonl"))


class Recorded(NamedTuple):
    connection: int
    sender: str  # "host" or "board"
    raw: bytes
    channel: int
    command: int
    data: bytes


def recorded(name: str) -> list[Recorded]:
    packets = []
    for line in (FIXTURES / name).read_text().splitlines():
        entry = json.loads(line)
        raw = bytes.fromhex(entry["hex"])
        if "fill" in entry:  # the rest was one byte over and over, or noise
            byte, count = entry["fill"]
            raw += bytes.fromhex(byte) * count
        ((channel, command, data),) = PacketDecoder().feed(raw)
        packets.append(Recorded(entry["conn"], entry["from"], raw, channel, command, data))
    return packets


class RawPeer:
    """One end of a connection; packets are (channel, command, data)."""

    def __init__(self, sock: socket.socket):
        self.socket = sock
        self.socket.settimeout(30)
        self._decoder = PacketDecoder()
        self._waiting: list[tuple[int, int, bytes]] = []

    def send(self, channel: int, command: int, data: bytes = b"") -> None:
        self.socket.sendall(encode_packet(channel, command, data))

    def receive(self, timeout: float = 30) -> tuple[int, int, bytes]:
        self.socket.settimeout(timeout)
        while not self._waiting:
            piece = self.socket.recv(1 << 16)
            if not piece:
                raise EOFError
            self._waiting += self._decoder.feed(piece)
        return self._waiting.pop(0)

    def until_close(self, channel: int) -> list[tuple[int, bytes]]:
        """Everything on one channel up to its CHANNEL_CLOSE."""
        found = []
        while not found or found[-1][0] != Command.CHANNEL_CLOSE:
            number, command, data = self.receive()
            if number == channel:
                found.append((command, data))
        return found

    def is_silent(self, seconds: float = 0.3) -> bool:
        try:
            self._waiting.insert(0, self.receive(seconds))
        except TimeoutError:
            return True
        return False

    def ended(self) -> bool:
        """Whether the other end closes the connection without another packet."""
        try:
            self.receive()
        except (EOFError, ConnectionResetError):
            return True
        return False

    def shake_hands(self) -> SessionHandShake:
        """As a host: greet, take the answer, settle channel 0."""
        hello = SessionHandShake(
            session_id=7,
            buf=encode_tlv({"authtype": "1", "supportfeatures": "Ver: 3.2.0c,TCP,linux"}),
            version="Ver: 3.2.0c",
        )
        self.send(0, Command.HANDSHAKE, hello.encode())
        _, command, data = self.receive()
        assert command == Command.HANDSHAKE
        assert self.receive() == (0, Command.CHANNEL_CLOSE, b"\x01")
        self.send(0, Command.CHANNEL_CLOSE, b"\x00")
        return SessionHandShake.decode(data)

    def accept_hands(self, **tlv: str) -> SessionHandShake:
        """As a board: take the greeting and answer it."""
        _, command, data = self.receive()
        assert command == Command.HANDSHAKE
        hello = SessionHandShake.decode(data)
        entries = {"emgmsg": "", "devname": "scripted", "daemonauthstatus": "SUCCESS", **tlv}
        answer = SessionHandShake(
            auth_type=AuthType.OK, buf=encode_tlv(entries), version=hello.version
        )
        self.send(0, Command.HANDSHAKE, answer.encode())
        return hello


@contextmanager
def raw_host(address: str) -> Iterator[RawPeer]:
    """Connect to a daemon."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as sock:
        yield RawPeer(sock)


@contextmanager
def scripted_board(script: Callable[[RawPeer], None]) -> Iterator[int]:
    """A board that plays ``script`` on each connection; the port. Its failures fail the test."""
    failures: list[BaseException] = []
    players: list[threading.Thread] = []
    sockets: list[socket.socket] = []

    def play(sock: socket.socket) -> None:
        with sock:
            try:
                script(RawPeer(sock))
            except (EOFError, ConnectionError, TimeoutError):
                pass  # the host has enough
            except BaseException as error:
                failures.append(error)

    def accept(server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                sock, _ = server.accept()
                sockets.append(sock)
                players.append(threading.Thread(target=play, args=(sock,)))
                players[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        acceptor = threading.Thread(target=accept, args=(server,))
        acceptor.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            acceptor.join()
            for sock in sockets:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            for player in players:
                player.join()
    assert not failures, failures
