"""Every recorded session, played to a daemon by its host: each packet is answered as recorded."""

import os
import re
import socket
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from daemons import daemon
from raw_hdc import RawPeer, Recorded, raw_host, recorded

from labctl.daemon.board import Limits
from labctl.hdc.daemon import handshake as handshake_module
from labctl.hdc.daemon.authorisation import Authorisation
from labctl.hdc.daemon.version_profile import Version
from labctl.hdc.messages import AuthType, FileMode, SessionHandShake, TransferConfig
from labctl.hdc.wire import Command

_THERE = re.compile(rb"/data/local/tmp(/xtra-board)?")
_PORT = re.compile(rb"\b18\d{3}\b")
_FORWARDED = range(Command.FORWARD_ACTIVE_SLAVE, Command.FORWARD_FREE_CONTEXT + 1)


class Player:
    """Plays one recorded connection: sends what the host sent, expects what the board said.

    Directories and ports are those of this test; numbers that the board chooses are translated.
    What applications sent through forwarded connections is sent by this test again.
    """

    def __init__(self, packets: list[Recorded], directory: Path, peer: RawPeer, stack: ExitStack):
        self._packets = deque(packets)
        self._directory = bytes(directory)
        self._peer = peer
        self._stack = stack
        self._arrived: dict[int, deque[tuple[int, bytes]]] = defaultdict(deque)
        self._printed: dict[int, list[bytes]] = defaultdict(lambda: [b"", b""])
        self._ports: dict[bytes, int] = {}
        self._listening: dict[int, bytes] = {}  # by channel: where the board listens
        self._numbers: dict[bytes, bytes] = {}
        self._applications: dict[bytes, socket.socket] = {}
        self._carried: dict[bytes, bytes] = defaultdict(bytes)

    def play(self) -> None:
        while self._packets:
            packet = self._packets.popleft()
            if packet.command == Command.HEARTBEAT:
                continue
            if packet.sender == "host":
                self._send(packet)
            elif packet.command == Command.ECHO_RAW:
                self._printed[packet.channel][0] += packet.data
                if packet.data == b"# ":
                    self._see_prompt(packet.channel)
            elif packet.command in _FORWARDED:
                self._expect_forwarded(packet)
            else:
                self._expect(packet)

    # What the host sent

    def _send(self, packet: Recorded) -> None:
        number, data = packet.data[:4], self._here(packet)
        if packet.command in (*_FORWARDED, Command.FORWARD_CHECK_RESULT):
            data = self._numbers.get(number, number) + data[4:]
        if packet.command == Command.FORWARD_INIT:
            self._listening[packet.channel] = data.split()[0].removeprefix(b"tcp:")
        if packet.command == Command.FORWARD_ACTIVE_SLAVE and self._answer_to(number) == 2504:
            with socket.create_server(("127.0.0.1", int(data[16:].rstrip(b"\0")))) as server:
                self._peer.send(packet.channel, packet.command, data)
                self._applications[number] = self._stack.enter_context(server.accept()[0])
            return
        self._peer.send(packet.channel, packet.command, data)
        if packet.command == Command.FORWARD_DATA:
            assert self._applications[number].recv(len(data) - 4, socket.MSG_WAITALL) == data[4:]
        elif packet.command == Command.FORWARD_FREE_CONTEXT and number in self._applications:
            assert self._applications[number].recv(1) == b""

    def _answer_to(self, number: bytes) -> int:
        return next(
            p.command for p in self._packets if p.sender == "board" and p.data[:4] == number
        )

    def _here(self, packet: Recorded) -> bytes:
        if packet.command == Command.FILE_CHECK:
            config = TransferConfig.decode(packet.data)
            return replace(
                config,
                path=os.fsdecode(self._moved(os.fsencode(config.path))),
                client_cwd=os.fsdecode(self._moved(os.fsencode(config.client_cwd))),
            ).encode()
        return self._moved(packet.data)

    def _moved(self, data: bytes) -> bytes:
        """A text with this test's directory and ports, and without waiting."""
        data = _THERE.sub(lambda _: self._directory, data)
        data = re.sub(rb"sleep [0-9.]+", b"sleep 0", data)
        return _PORT.sub(lambda port: b"%d" % self._port(port[0]), data)

    def _port(self, name: bytes) -> int:
        if name not in self._ports:
            with socket.create_server(("127.0.0.1", 0)) as server:
                self._ports[name] = server.getsockname()[1]
        return self._ports[name]

    # What the board said

    def _next(self, channel: int) -> tuple[int, bytes]:
        while not self._arrived[channel]:
            number, command, data = self._peer.receive()
            self._arrived[number].append((command, data))
        return self._arrived[channel].popleft()

    def _see_prompt(self, channel: int) -> None:
        while not self._printed[channel][1].endswith(b"# "):
            command, data = self._next(channel)
            assert command == Command.ECHO_RAW
            self._printed[channel][1] += data

    def _expect(self, packet: Recorded) -> None:
        command, data = self._next(packet.channel)
        while command == Command.ECHO_RAW:  # in pieces of any size
            self._printed[packet.channel][1] += data
            command, data = self._next(packet.channel)
        expected, said = self._printed.pop(packet.channel, (b"", b""))
        assert _output(said) == _output(expected)
        assert command == packet.command
        if command == Command.FORWARD_CHECK:
            self._numbers[packet.data[:4]] = data[:4]
            assert data[4:] == self._here(packet)[4:]
        else:
            assert _comparable(command, data) == _comparable(command, self._here(packet))

    def _expect_forwarded(self, packet: Recorded) -> None:
        number, body = packet.data[:4], packet.data[4:]
        match packet.command:
            case Command.FORWARD_ACTIVE_SLAVE:
                port = int(self._listening[packet.channel])
                self._applications[number] = self._stack.enter_context(
                    socket.create_connection(("127.0.0.1", port), timeout=30)
                )
                command, data = self._next(packet.channel)
                assert (command, data[4:]) == (packet.command, self._here(packet)[4:])
                self._numbers[number] = data[:4]
                return
            case Command.FORWARD_DATA:
                self._applications[number].sendall(body)
                while len(self._carried[number]) < len(body):  # in pieces of any size
                    command, data = self._next(packet.channel)
                    assert command == Command.FORWARD_DATA
                    assert data[:4] == self._numbers.get(number, number)
                    self._carried[number] += data[4:]
                assert self._carried[number][: len(body)] == body
                self._carried[number] = self._carried[number][len(body) :]
                return
            case Command.FORWARD_FREE_CONTEXT if number in self._applications:
                self._applications[number].close()
        assert self._next(packet.channel) == (
            packet.command,
            self._numbers.get(number, number) + body,
        )


def _output(text: bytes) -> bytes:
    return re.sub(rb"(?m)^.*not found$", b"not found", text)  # shells word it differently


def _comparable(command: int, data: bytes) -> object:
    match command:
        case Command.ECHO:
            return re.sub(rb"time:\d+ms rate:[\d.]+kB/s", b"time rate", data)
        case Command.FILE_CHECK:
            config = TransferConfig.decode(data)
            return replace(
                config,
                atime_ns=bool(config.atime_ns),
                mtime_ns=bool(config.mtime_ns),
                optional_name=re.sub(r"^bd/f\d$", "bd/f", config.optional_name),  # any order
            )
        case Command.FILE_MODE | Command.DIR_MODE if data:
            return replace(FileMode.decode(data), uid=0, gid=0)
    return data


def play(name: str, connection: int, directory: Path, version: Version, **options: object) -> None:
    packets = [p for p in recorded(name) if p.connection == connection]
    with (
        daemon(directory, version=version, limits=NO_HEARTBEATS, **options) as address,
        raw_host(address) as peer,
        ExitStack() as stack,
    ):
        Player(packets, directory, peer, stack).play()


NO_HEARTBEATS = Limits(heartbeat_seconds=1000)


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    umask = os.umask(0o022)
    yield
    os.umask(umask)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("3.1.0e-basic", "3.1.0e"),
        ("3.2.0c-basic", "3.2.0c"),
        ("3.2.0f-basic", "3.2.0f"),
        ("3.2.0c-more", "3.2.0c"),
        ("3.2.0c-raw", "3.2.0c"),
    ],
)
def test_a_recorded_session_is_answered_packet_by_packet(
    tmp_path: Path, name: str, version: Version
) -> None:
    play(f"session-{name}.jsonl", 1, tmp_path, version)


def test_the_session_of_errors_and_modes_is_answered_as_recorded(tmp_path: Path) -> None:
    for directory, mode in (("sd/sub", 0o750), ("sd/emptyd", 0o755), ("sd", 0o755)):
        (tmp_path / directory).mkdir(parents=True, exist_ok=True)
        (tmp_path / directory).chmod(mode)
    (tmp_path / "sd/sub/two.txt").write_text("two\n")
    (tmp_path / "sd/one.txt").write_text("one\n")
    (tmp_path / "sd/one.txt").chmod(0o4755)
    (tmp_path / "a.txt").write_text("hello\n")
    for empty in ("dst", "all", "bd"):
        (tmp_path / empty).mkdir()
    (tmp_path / "bd/f1").write_text("1\n")
    (tmp_path / "bd/f3").write_text("3\n")
    (tmp_path / "bd/dang").symlink_to("nowhere")
    play("session-3.2.0c-extra.jsonl", 1, tmp_path, "3.2.0c")
    modes = {
        path: (tmp_path / path).stat().st_mode & 0o7777
        for path in ("dst/sd", "dst/sd/sub", "dst/sd/one.txt", "dst/new/sub", "dst/am.txt")
    }
    assert modes == {
        "dst/sd": 0o755,
        "dst/sd/sub": 0o750,
        "dst/sd/one.txt": 0o755,  # without its set-id bit
        "dst/new/sub": 0o750,
        "dst/am.txt": 0o640,
    }
    assert (tmp_path / "dst/am.txt").stat().st_mtime_ns == 1_577_934_245_678_000_000


@pytest.mark.parametrize("connection", [1, 2])  # denied, let in
def test_the_recorded_host_is_asked_for_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connection: int
) -> None:
    packets = [p for p in recorded("session-3.2.0c-auth.jsonl") if p.connection == connection]
    dialog = [SessionHandShake.decode(p.data) for p in packets if p.command == Command.HANDSHAKE]
    (shown,) = (d.buf for d in dialog if d.auth_type == AuthType.PUBLICKEY and b"PUBLIC" in d.buf)
    key = shown.decode().partition("\x0c")[2]
    tokens = [d.buf.decode() for d in dialog if d.auth_type == AuthType.SIGNATURE]
    if connection == 2:
        monkeypatch.setattr(handshake_module.secrets, "token_hex", lambda _: tokens[0])
    authorisation = Authorisation("accept-known", [key] if connection == 2 else [])
    play("session-3.2.0c-auth.jsonl", connection, tmp_path, "3.2.0c", authorisation=authorisation)
