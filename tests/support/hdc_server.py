"""A stand-in for the official hdc server: the channel protocol in front of our own sessions.

It says and keeps silent as the recorded server (3.2.0c) does: no status at the end of anything, a
lost board is an end like any other, boards on TCP stay Offline until somebody says ``tconn``.
"""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from labctl.errors import LabctlError, LinkError
from labctl.hdc import Session
from labctl.hdc.host.channel import Channel
from labctl.hdc.wire import Command

BANNER = b"OHOS HDC\0\0\0H"
TASKS = {13, 3000, 3001, 3002, 3003, 3004, 3006, 3007}
PREFIXES = {0: b"[Fail]", 1: b"[Info]"}
NO_MATCH = "[Fail]Not match target founded, check connect-key please\r\n"
NEED_KEY = "[Fail]ExecuteCommand need connect-key? please confirm a device by help info\r\n"
NOT_CONNECTED = "[Fail][E001005] Device not found or connected\r\n"
UNAUTHORISED = (
    "[Fail][E000002]:The device unauthorized.\r\nThis server's public key is not set.\r\n"
    "Please check for a confirmation dialog on your device.\r\n"
    "Otherwise try 'hdc kill' if that seems wrong.\r\n"
)


@dataclass
class Board:
    """A board that the server lists. ``address`` is where our session finds it."""

    address: str
    connection: str = "USB"
    state: str | None = None  # None: as the session is
    name: str = "localhost"
    session: Session | None = None

    def listed(self) -> str:
        if self.state is not None:
            return self.state
        alive = self.session is not None and self.session.failure is None
        return "Connected" if alive else "Offline"

    def connect(self) -> bool:
        host, _, port = self.address.rpartition(":")
        if self.session is not None:
            self.session.close()
        with suppress(LinkError):
            self.session = Session.connect(host, int(port), timeout=5)
            return True
        return False


@dataclass
class StandInServer:
    boards: dict[str, Board]
    hello_bytes: int = 44
    port: int = 0
    #: Each command that came, with the key it came with.
    commands: list[tuple[str, str]] = field(default_factory=list)
    hellos: list[bytes] = field(default_factory=list)
    _clients: set[socket.socket] = field(default_factory=set)

    def drop_clients(self) -> None:
        """End every client's connection, as a server that is killed."""
        for client in list(self._clients):
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def serve(self, client: socket.socket) -> None:
        self._clients.add(client)
        try:
            with client, suppress(OSError, EOFError, struct.error):
                self._serve(client)
        finally:
            self._clients.discard(client)

    def _serve(self, client: socket.socket) -> None:
        version = b"Ver: 3.2.0f".ljust(64, b"\0") if self.hello_bytes == 108 else b""
        write(client, BANNER + b"\x12\x34\x56\x78" + bytes(28) + version)
        hello = read(client)
        self.hellos.append(hello)
        assert len(hello) == self.hello_bytes, hello
        assert hello[:12] == BANNER
        key = hello[12:44].rstrip(b"\0").decode()
        if key and key not in self.boards:
            write(client, NO_MATCH.encode())
            return
        raw = read(client).removesuffix(b"\0")
        command = raw.decode(errors="surrogateescape")
        self.commands.append((key, command))
        if key:
            self._for_board(client, self.boards[key], command, raw)
        else:
            self._globally(client, command)

    def _globally(self, client: socket.socket, command: str) -> None:
        if command == "checkserver":
            write(client, b"\x0d\0Ver: 3.2.0c")
        elif command == "list targets -v":
            lines = [
                f"{key}\t\t{board.connection}\t{board.listed()}\t{board.name}\n"
                for key, board in self.boards.items()
            ]
            write(client, ("".join(lines) or "[Empty]\r\n").encode())
        elif command.startswith("tconn "):
            key = command.removeprefix("tconn ")
            board = self.boards.setdefault(key, Board(key, "TCP"))
            if board.listed() == "Connected":
                write(client, b"[Info]Target is connected, repeat operation\r\n")
            else:
                write(client, b"Connect OK\r\n" if board.connect() else b"[Fail]Connect failed\r\n")
        elif command.split(maxsplit=1)[0] in ("shell", "file"):
            write(client, NEED_KEY.encode())
        else:
            write(client, b"[Fail]Unknown command...\n")

    def _for_board(self, client: socket.socket, board: Board, command: str, raw: bytes) -> None:
        if board.listed() == "Unauthorized":
            write(client, UNAUTHORISED.encode())
        elif board.listed() != "Connected":
            write(client, NOT_CONNECTED.encode())
        else:
            assert board.session is not None
            with suppress(LabctlError), board.session.channel(timeout=60) as channel:
                self._relay(client, channel, command, raw)

    def _relay(self, client: socket.socket, channel: Channel, command: str, raw: bytes) -> None:
        is_file = command.startswith("file ")
        if command.startswith("shell "):
            channel.send(Command.UNITY_EXECUTE, raw.removeprefix(b"shell "))
        elif command.startswith("file send remote "):
            task(client, Command.FILE_INIT, raw.removeprefix(b"file send remote "))
        elif command.startswith("file recv remote "):
            channel.send(Command.FILE_INIT, raw.removeprefix(b"file recv remote "))
        else:
            write(client, b"[Fail]Unknown command...\n")
            return
        upwards = threading.Thread(target=self._from_client, args=(client, channel, is_file))
        upwards.start()
        try:
            self._to_client(client, channel, is_file)
        finally:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            upwards.join()

    def _from_client(self, client: socket.socket, channel: Channel, is_file: bool) -> None:
        """Whatever a client in file mode sends goes to the board; its end ends the channel."""
        with suppress(OSError, EOFError, LinkError):
            while True:
                frame = read(client)
                if is_file and (number := int.from_bytes(frame[:2], "little")):
                    channel.send(number, frame[2:])  # type: ignore[arg-type]
        channel.close()
        channel.deliver(Command.CHANNEL_CLOSE, b"")

    def _to_client(self, client: socket.socket, channel: Channel, is_file: bool) -> None:
        while True:
            command, data = channel.receive()
            if command == Command.CHANNEL_CLOSE:
                return
            if command == Command.ECHO_RAW:
                write(client, data)
            elif command == Command.ECHO:
                text = PREFIXES.get(data[0], b"") + data[1:]
                write(client, text if text.endswith(b"\n") else text + b"\r\n")
            elif is_file and command in TASKS:
                task(client, command, data)


def read(sock: socket.socket) -> bytes:
    def exactly(count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = sock.recv(count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)

    (size,) = struct.unpack(">I", exactly(4))
    return exactly(size)


def write(sock: socket.socket, data: bytes) -> None:
    sock.sendall(struct.pack(">I", len(data)) + data)


def task(sock: socket.socket, command: int, data: bytes) -> None:
    write(sock, struct.pack("<H", command) + data)


@contextmanager
def stand_in_server(boards: dict[str, Board], hello_bytes: int = 44) -> Iterator[StandInServer]:
    """Serve on loopback; boards on USB are connected at once, as a server does."""
    server = StandInServer(boards, hello_bytes)
    for board in boards.values():
        if board.connection == "USB" and board.state is None:
            board.connect()
    players: list[threading.Thread] = []

    def accept(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                players.append(threading.Thread(target=server.serve, args=(client,)))
                players[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server.port = listener.getsockname()[1]
        acceptor = threading.Thread(target=accept, args=(listener,))
        acceptor.start()
        try:
            yield server
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            acceptor.join()
            server.drop_clients()
            for player in players:
                player.join()
            for board in server.boards.values():
                if board.session is not None:
                    board.session.close()
