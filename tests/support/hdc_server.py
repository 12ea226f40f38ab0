"""A stand-in for the official hdc server: the channel protocol in front of our own sessions.

It says and keeps silent as the recorded server (3.2.0c) does: no status at the end of anything, a
lost board is an end like any other, boards on TCP stay Offline until somebody says ``tconn``.
"""

import ipaddress
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field

from labctl.errors import BoardError, ConfigError, HostError, LabctlError, LinkError
from labctl.hdc.host.channel import Channel
from labctl.hdc.host.nodes import Listener
from labctl.hdc.host.session import Session
from labctl.hdc.wire import Command

BANNER = b"OHOS HDC\0\0\0H"
#: Keys of boards on cables, in their real form: 32 hex digits on USB, a device file on UART.
USB_KEY = "7001005458323933328a01ce1c2f3900"
OTHER_USB_KEY = "7001005458323933328a01ce2d403a00"
UART_KEY = "/dev/ttyUSB0,1500000"
TASKS = {13, 3000, 3001, 3002, 3003, 3004, 3006, 3007}
PREFIXES = {0: b"[Fail]", 1: b"[Info]"}
EMPTY = b"[Empty]\r\n"
MAX_TARGETS = 128
NO_MATCH = "[Fail]Not match target founded, check connect-key please\r\n"
NEED_KEY = "[Fail]ExecuteCommand need connect-key? please confirm a device by help info\r\n"
NOT_CONNECTED = "[Fail][E001005] Device not found or connected\r\n"
UNAUTHORISED = (
    "[Fail][E000002]:The device unauthorized.\r\nThis server's public key is not set.\r\n"
    "Please check for a confirmation dialog on your device.\r\n"
    "Otherwise try 'hdc kill' if that seems wrong.\r\n"
)
DENIED = "[Fail][E000003]:The device unauthorized.\r\nThe user denied the access.\r\n"


@dataclass
class Board:
    """A board that the server lists. ``address`` is where our session finds it."""

    address: str
    connection: str = "USB"
    state: str | None = None  # None: as the session is
    name: str = "localhost"
    session: Session | None = None
    #: The server believes that it is connected, but nothing comes back: a cable was cut, say.
    is_dead: bool = False
    #: It answers a command only after this time (s).
    delay: float = 0
    #: Whoever leaves a command before the server has ended it takes the end of the next with it:
    #: its output begins, and neither the rest nor the end ever comes. What 3.1.0e is suspected of.
    loses_ends: bool = False
    was_left: bool = False
    #: It accepts connections and says nothing; the server waits for it without an end.
    hangs: bool = False
    #: Somebody has allowed the server's key since it was refused.
    is_allowed: bool = False
    #: Somebody has denied it.
    is_denied: bool = False
    rules: dict[tuple[str, str, str], ExitStack] = field(default_factory=dict)
    #: Reverse rules that do not stand yet: they go with the client that asked for them.
    agreeing: dict[tuple[str, str, str], ExitStack] = field(default_factory=dict)
    connecting: threading.Lock = field(default_factory=threading.Lock)

    def listed(self) -> str:
        if self.state is not None:
            return self.state
        alive = self.session is not None and self.session.failure is None
        return "Connected" if alive else "Offline"

    def connect(self) -> bool:
        host, _, port = self.address.rpartition(":")
        with self.connecting:
            if self.listed() == "Connected":
                return True  # somebody else was faster
            self.drop()
            with suppress(LinkError):
                self.session = Session.connect(host, int(port), timeout=20)
                return True
        return False

    def drop(self) -> None:
        """Lose the connection, and the rules with it."""
        self.is_dead = False
        if self.session is not None:
            self.session.close()
        for rules in (self.rules, self.agreeing):
            for key in list(rules):
                with suppress(LabctlError):
                    rules.pop(key).close()


@dataclass
class StandInServer:
    boards: dict[str, Board]
    hello_bytes: int = 44
    #: Where the boards of all keys are, when not where their keys say.
    dial: str | None = None
    port: int = 0
    #: It says that a forwarding is made, and never ends the conversation by itself.
    keeps_open: bool = False
    #: Each command that came, with the key it came with.
    commands: list[tuple[str, str]] = field(default_factory=list)
    hellos: list[bytes] = field(default_factory=list)
    _clients: set[socket.socket] = field(default_factory=set)

    def drop_clients(self) -> None:
        """End every client's connection, as a server that is killed."""
        for client in list(self._clients):
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def restart(self) -> None:
        """As `hdc kill -r`: boards on TCP are forgotten."""
        self.drop_clients()
        for key, board in list(self.boards.items()):
            if board.connection == "TCP":
                board.drop()
                del self.boards[key]

    def said(self, command: str) -> int:
        """How often a client has said it."""
        return [known for _, known in self.commands].count(command)

    def serve(self, client: socket.socket) -> None:
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
        # A server that compares versions keeps the last byte of the key for a NUL.
        key = hello[12 : 43 if version else 44].rstrip(b"\0").decode()
        if key and key not in self.boards:
            write(client, NO_MATCH.encode())
            return
        raw = read(client).removesuffix(b"\0")
        command = raw.decode(errors="surrogateescape")
        self.commands.append((key, command))
        if key:
            self._for_board(client, key, command, raw)
        else:
            self._globally(client, command)

    def _globally(self, client: socket.socket, command: str) -> None:
        if command == "alive":
            while True:
                again = read(client).removesuffix(b"\0").decode()
                write(client, self._answer(again, client) or b"")
        answer = self._answer(command, client)
        if answer is not None:
            write(client, answer)

    def _answer(self, command: str, client: socket.socket) -> bytes | None:
        verb, _, rest = command.partition(" ")
        if verb == "tconn":
            key, _, remove = rest.partition(" ")
            return self._remove(key) if remove else self._connect(key, client)
        if verb == "fport":
            return self._list_or_remove(*rest.split())
        if verb in ("shell", "file"):
            return NEED_KEY.encode()
        if command == "list targets":
            return self._listed()
        if command == "list targets -v":
            return self._listed_with_states()
        fixed = {"checkserver": b"\x0d\0Ver: 3.2.0c", "version": b"Ver: 3.2.0c\n"}
        return fixed.get(command, b"[Fail]Unknown command...\n")

    def _known(self) -> list[tuple[str, Board]]:
        """All boards now; other clients add theirs meanwhile."""
        return list(self.boards.items())

    def _listed(self) -> bytes:
        ends = {"Connected": "\n", "Unauthorized": "\tUnauthorized\n"}
        shown = [(key, ends.get(board.listed())) for key, board in self._known()]
        return "".join(key + end for key, end in shown if end).encode() or EMPTY

    def _listed_with_states(self) -> bytes:
        lines = [
            f"{key}\t\t{board.connection}\t{board.listed()}\t{board.name}\n"
            for key, board in self._known()
        ]
        return "".join(lines).encode() or EMPTY

    def _remove(self, key: str) -> bytes | None:
        if key not in self.boards:
            return b"[Fail]No target available\r\n"
        board = self.boards[key]
        board.drop()
        if board.state == "Unknown" or (board.state == "Unauthorized" and board.is_allowed):
            board.state = "Offline"
        return None

    def _connect(self, key: str, client: socket.socket) -> bytes | None:
        host, colon, _ = key.rpartition(":")
        if not colon:
            return b"[Fail]No target available\r\n"
        if not is_ipv4(host):
            return b"[Fail][E001104]:IP address incorrect\n"
        if key not in self.boards and len(self.boards) < MAX_TARGETS:
            self.boards[key] = Board(self.dial or key, "TCP", name="unknown...")
        board = self.boards.get(key)
        if board is not None and board.listed() == "Connected":
            return b"[Info]Target is connected, repeat operation\r\n"
        if board is not None and board.hangs:
            board.state = "Unknown"
            client.recv(1)  # until the client has enough
            return None
        if board is not None and board.state in ("Offline", "Unknown"):
            board.state = None
        is_connected = board is not None and board.connect()
        return b"Connect OK\r\n" if is_connected else b"[Fail]Connect failed\r\n"

    def _list_or_remove(self, what: str = "", listen: str = "", connect: str = "") -> bytes:
        if what == "ls":
            lines = [
                f"{key}    {listen} {connect}    [{kind}]\n"
                for key, board in self._known()
                for listen, connect, kind in list(board.rules)
            ]
            return "".join(lines).encode() or EMPTY
        for _, board in self._known():
            for rule in list(board.rules):
                if rule[:2] == (listen, connect):
                    board.rules.pop(rule).close()
                    return f"Remove forward ruler success, ruler:{listen} {connect}\r\n".encode()
        words = f"Remove forward ruler failed, ruler is not exist {listen} {connect}"
        return f"[Fail]{words}\r\n".encode()

    def _for_board(self, client: socket.socket, key: str, command: str, raw: bytes) -> None:
        board = self.boards[key]
        if board.listed() == "Unauthorized":
            write(client, (DENIED if board.is_denied else UNAUTHORISED).encode())
        elif board.listed() != "Connected":
            write(client, NOT_CONNECTED.encode())
        elif board.is_dead:
            client.recv(1)  # nothing ever comes
        elif command.startswith(("fport ", "rport ")):
            self._forward(client, board, *command.split())
        else:
            assert board.session is not None
            time.sleep(board.delay)  # its answer is late
            with suppress(LabctlError), board.session.channel(timeout=60) as channel:
                self._relay(client, board, channel, command, raw)

    def _forward(self, client: socket.socket, board: Board, kind: str, *nodes: str) -> None:
        """Say at once that the rule is made, and end the conversation when the board has agreed.

        A client that does not wait for that takes a reverse rule with it; a forward rule stands.
        But it is listened for before it stands, and who connects then ends it without a word.
        """
        if kind == "fport" and is_met(nodes[0]):
            return
        write(client, forward(board, kind, *nodes))
        left = has_left(client, None if self.keeps_open else random.uniform(0.045, 0.2))
        rule = board.agreeing.pop((*nodes, "Reverse"), None)  # type: ignore[call-overload]
        if rule is not None and left:
            rule.close()
        elif rule is not None:
            board.rules[(nodes[0], nodes[1], "Reverse")] = rule

    def _relay(
        self, client: socket.socket, board: Board, channel: Channel, command: str, raw: bytes
    ) -> None:
        is_file = command.startswith("file ")
        if command == "shell":
            channel.send(Command.SHELL_INIT)
        elif command.startswith("shell "):
            channel.send(Command.UNITY_EXECUTE, raw.removeprefix(b"shell "))
        elif command.startswith("file send remote "):
            task(client, Command.FILE_INIT, raw.removeprefix(b"file send remote "))
        elif command.startswith("file recv remote "):
            channel.send(Command.FILE_INIT, raw.removeprefix(b"file recv remote "))
        elif command == "target mount":
            channel.send(Command.UNITY_REMOUNT)
        elif command.startswith("target boot"):
            how = raw.removeprefix(b"target boot").strip().removeprefix(b"-")
            channel.send(Command.UNITY_REBOOT, how)
        elif command == "hilog" or command.startswith("hilog "):
            channel.send(Command.UNITY_HILOG, raw.removeprefix(b"hilog").strip())
        else:
            write(client, b"[Fail]Unknown command...\n")
            return
        ended = threading.Event()
        is_cut = board.loses_ends and board.was_left and not is_file
        board.was_left = False

        def take() -> None:
            self._from_client(client, channel, is_file, command == "shell")
            board.was_left = board.was_left or not ended.is_set()

        upwards = threading.Thread(target=take)
        upwards.start()
        try:
            self._to_client(client, channel, is_file, ends_after=1 if is_cut else None)
            if is_cut:
                upwards.join()  # for ever, as far as the client sees
            elif board.loses_ends:
                time.sleep(0.045)  # what passes between the last output and the end
            ended.set()
        finally:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            upwards.join()

    def _from_client(
        self, client: socket.socket, channel: Channel, is_file: bool, is_shell: bool
    ) -> None:
        """Whatever a client in file mode sends goes to the board; its end ends the channel."""
        with suppress(OSError, EOFError, LinkError):
            while True:
                frame = read(client)
                if is_file and (number := int.from_bytes(frame[:2], "little")):
                    channel.send(number, frame[2:])  # type: ignore[arg-type]
                elif is_shell:
                    channel.send(Command.SHELL_DATA, frame)
        channel.close()
        channel.deliver(Command.CHANNEL_CLOSE, b"", timeout=30)

    def _to_client(
        self, client: socket.socket, channel: Channel, is_file: bool, ends_after: int | None
    ) -> None:
        pieces = 0
        while True:
            command, data = channel.receive()
            if command == Command.CHANNEL_CLOSE:
                return
            if command == Command.ECHO_RAW:
                write(client, data)
                pieces += 1
                if pieces == ends_after:
                    return
            elif command == Command.ECHO:
                text = PREFIXES.get(data[0], b"") + data[1:]
                write(client, text if text.endswith(b"\n") else text + b"\r\n")
            elif is_file and command in TASKS:
                task(client, command, data)


def is_ipv4(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def forward(board: Board, kind: str, *nodes: str) -> bytes:
    """What a server says to `fport` and `rport`; the rule stays with the board.

    A reverse rule does not stand yet.
    """
    if len(nodes) != 2:
        return b"[Fail]Incorrect forward command\n"
    assert board.session is not None
    listen, connect = nodes
    begin = board.session.forward if kind == "fport" else board.session.reverse
    rule = ExitStack()
    try:
        rule.enter_context(begin(listen, connect, timeout=30))
    except HostError:
        return f"[Fail]TCP Port listen failed at {listen.partition(':')[2]}\r\n".encode()
    except BoardError as error:
        return f"[Fail]{error.message.partition(': ')[2]}\r\n".encode()
    except ConfigError:
        return b"[Fail]Forward parament failed\r\n"
    if kind == "fport":
        board.rules[(listen, connect, "Forward")] = rule
    else:
        board.agreeing[(listen, connect, "Reverse")] = rule
    return b"Forwardport result:OK\r\n"


def is_met(node: str) -> bool:
    """Whether somebody connects to a port within the moment in which a rule is made."""
    try:
        with closing(Listener(node)) as listener, listener.detached() as listening:
            listening.settimeout(0.05)
            listening.accept()[0].close()
            return True
    except (HostError, ConfigError, TimeoutError):
        return False


def has_left(client: socket.socket, within: float | None) -> bool:
    """Whether a client ends its connection within some seconds; None: wait for that."""
    client.settimeout(within)
    try:
        return not client.recv(1)
    except TimeoutError:
        return False
    finally:
        client.settimeout(None)


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
def stand_in_server(
    boards: dict[str, Board], hello_bytes: int = 44, *, port: int = 0, dial: str | None = None
) -> Iterator[StandInServer]:
    """Serve on loopback; boards on USB are connected at once, as a server does."""
    server = StandInServer(boards, hello_bytes, dial)
    for board in boards.values():
        if board.connection == "USB" and board.state is None:
            board.connect()
    players: list[threading.Thread] = []

    def accept(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server._clients.add(client)
                players.append(threading.Thread(target=server.serve, args=(client,)))
                players[-1].start()

    with socket.create_server(("127.0.0.1", port)) as listener:
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
                board.drop()
