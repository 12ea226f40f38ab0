"""Forwarded connections, seen from a hand-driven host and from the applications on the board."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from daemons import daemon
from raw_hdc import RawPeer, raw_host

from labctl.hdc.wire import Command
from labctl.retry import wait_until

RULE, ID = 7, b"\1\2\3\4"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[RawPeer]:
    with daemon(tmp_path) as address, raw_host(address) as peer:
        peer.shake_hands()
        yield peer


def named(number: bytes, node: str) -> bytes:
    return number + bytes(8) + node.encode() + b"\0"


def forward(host: RawPeer, node: str) -> None:
    host.send(RULE, Command.WAKEUP_SLAVETASK)
    host.send(RULE, Command.FORWARD_CHECK, named(b"\0\0\0\1", node))
    assert host.receive() == (RULE, Command.FORWARD_CHECK_RESULT, b"\0\0\0\1\0")


def reverse(host: RawPeer, node: str) -> None:
    host.send(RULE, Command.FORWARD_INIT, f"{node} tcp:7".encode())
    assert host.receive() == (RULE, Command.WAKEUP_SLAVETASK, b"")
    _, command, data = host.receive()
    assert (command, data[4:]) == (Command.FORWARD_CHECK, bytes(8) + b"tcp:7\0")
    host.send(RULE, Command.FORWARD_CHECK_RESULT, data[:4] + b"\0")
    assert host.receive() == (RULE, Command.ECHO, b"\2Forwardport result:OK")
    success = f"0|{node} tcp:7\0".encode()
    assert host.receive() == (RULE, Command.FORWARD_SUCCESS, success)


@contextmanager
def application() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        yield server


def node_of(server: socket.socket) -> str:
    return f"tcp:{server.getsockname()[1]}"


def connected(host: RawPeer, server: socket.socket, number: bytes = ID) -> socket.socket:
    host.send(RULE, Command.FORWARD_ACTIVE_SLAVE, named(number, node_of(server)))
    sock, _ = server.accept()
    sock.settimeout(30)
    assert host.receive() == (RULE, Command.FORWARD_ACTIVE_MASTER, number)
    return sock


def fill(host: RawPeer) -> int:
    """Send to an application that reads nothing, until nothing is taken any more; the bytes."""
    host.socket.settimeout(0.5)
    sent = 0
    with suppress(TimeoutError):
        while sent < 200_000_000:
            host.send(RULE, Command.FORWARD_DATA, ID + bytes(60_000))
            sent += 60_000
    return sent


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.mark.parametrize(
    "node", ["tcp:0", "tcp:65536", "tcp:x", "tcp:", "tcp:١٢", "cable:1", "", "localfilesystem:"]
)
def test_nodes_that_a_board_has_not_are_refused(host: RawPeer, node: str) -> None:
    host.send(RULE, Command.WAKEUP_SLAVETASK)
    host.send(RULE, Command.FORWARD_CHECK, named(ID, node))
    assert host.until_close(RULE) == [
        (Command.FORWARD_FREE_CONTEXT, ID),
        (Command.ECHO, b"\0Forward parament failed"),
        (Command.CHANNEL_CLOSE, b"\1"),
    ]
    host.send(RULE, Command.FORWARD_INIT, f"{node} tcp:1".encode())
    assert host.until_close(RULE)[-2:] == [
        (Command.ECHO, b"\0Forward parament failed"),
        (Command.CHANNEL_CLOSE, b"\1"),
    ]


def test_connections_of_a_rule_do_not_mix(host: RawPeer) -> None:
    with application() as server:
        forward(host, node_of(server))
        numbers = [bytes([n]) * 4 for n in range(1, 21)]
        socks = [connected(host, server, number) for number in numbers]
        for number, sock in zip(numbers, socks, strict=True):
            host.send(RULE, Command.FORWARD_DATA, number + number * 5000)
            assert sock.recv(20_000, socket.MSG_WAITALL) == number * 5000
            sock.sendall(number)
            assert host.receive() == (RULE, Command.FORWARD_DATA, number + number)
            sock.close()
            assert host.receive() == (RULE, Command.FORWARD_FREE_CONTEXT, number)


def test_what_was_sent_before_the_end_arrives(host: RawPeer) -> None:
    with application() as server:
        forward(host, node_of(server))
        with connected(host, server) as sock:
            for _ in range(50):
                host.send(RULE, Command.FORWARD_DATA, ID + bytes(60_000))
            host.send(RULE, Command.FORWARD_FREE_CONTEXT, ID)
            time.sleep(0.2)  # the application is slow, and all of it waits for it
            got = 0
            while piece := sock.recv(1 << 16):
                got += len(piece)
            assert got == 50 * 60_000


def test_a_slow_application_slows_the_host_down_and_loses_nothing(host: RawPeer) -> None:
    with application() as server:
        forward(host, node_of(server))
        with connected(host, server) as sock:
            sent = fill(host)
            assert sent < 50_000_000  # what the kernel and one inbox hold
            got = 0
            while got < sent:
                got += len(sock.recv(1 << 20))


def test_a_slow_host_slows_the_application_down(host: RawPeer) -> None:
    with application() as server:
        forward(host, node_of(server))
        with connected(host, server) as sock:
            sock.settimeout(0.5)
            sent = 0
            with suppress(TimeoutError):
                while sent < 200_000_000:
                    sent += sock.send(bytes(1 << 16))
            assert sent < 50_000_000
            sock.close()
            got = 0
            while (packet := host.receive())[1] == Command.FORWARD_DATA:
                got += len(packet[2]) - 4
            assert packet[1:] == (Command.FORWARD_FREE_CONTEXT, ID)
            assert got == sent


def test_a_host_that_leaves_a_stuck_application_is_noticed(tmp_path: Path) -> None:
    with daemon(tmp_path) as address, application() as server:
        with raw_host(address) as host:
            host.shake_hands()
            forward(host, node_of(server))
            sock = connected(host, server)
            fill(host)
        with sock:  # it has read nothing, and now its connection ends
            ended = wait_until(lambda: _is_over(sock), timeout=30, interval=0.1)
        assert ended


def _is_over(sock: socket.socket) -> bool:
    try:
        return not sock.recv(1 << 20)
    except ConnectionResetError:
        return True


def test_the_end_of_a_rule_ends_its_connections(host: RawPeer) -> None:
    with application() as server:
        forward(host, node_of(server))
        with connected(host, server) as sock:
            host.send(RULE, Command.CHANNEL_CLOSE, b"\0")
            assert _is_over(sock)
        host.send(RULE, Command.FORWARD_ACTIVE_SLAVE, named(ID, node_of(server)))
        assert host.is_silent()


def test_a_board_listens_for_the_host_until_the_rule_ends(host: RawPeer) -> None:
    port = free_port()
    reverse(host, f"tcp:{port}")
    with socket.create_connection(("127.0.0.1", port), timeout=30) as sock:
        _, command, data = host.receive()
        assert (command, data[4:]) == (Command.FORWARD_ACTIVE_SLAVE, bytes(8) + b"tcp:7\0")
        number = data[:4]
        sock.sendall(b"early")
        assert host.is_silent()  # nothing is sent before the host is connected
        host.send(RULE, Command.FORWARD_ACTIVE_MASTER, number)
        assert host.receive() == (RULE, Command.FORWARD_DATA, number + b"early")
        host.send(RULE, Command.FORWARD_FREE_CONTEXT, number)
        assert _is_over(sock)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as sock:
        number = host.receive()[2][:4]
        host.send(RULE, Command.FORWARD_FREE_CONTEXT, number)  # it could not connect
        assert _is_over(sock)
    host.send(RULE, Command.CHANNEL_CLOSE, b"\0")
    assert wait_until(lambda: not _listens(port), timeout=30, interval=0.02)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def test_unix_sockets_can_be_both_ends(host: RawPeer, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{tmp_path}/app")
        server.listen()
        forward(host, "localfilesystem:app")
        host.send(RULE, Command.FORWARD_ACTIVE_SLAVE, named(ID, "localfilesystem:app"))
        with server.accept()[0] as sock:
            assert host.receive() == (RULE, Command.FORWARD_ACTIVE_MASTER, ID)
            host.send(RULE, Command.FORWARD_DATA, ID + b"hi")
            assert sock.recv(2) == b"hi"
    host.send(RULE, Command.CHANNEL_CLOSE, b"\0")
    for kind, address in (
        (f"localfilesystem:{tmp_path}/own", f"{tmp_path}/own"),
        ("localabstract:name", f"{tmp_path}/name"),  # a file of this name, as hdcd makes it
    ):
        host = _fresh(host)
        reverse(host, kind)
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(address)
            assert host.receive()[1] == Command.FORWARD_ACTIVE_SLAVE
        host.send(RULE, Command.CHANNEL_CLOSE, b"\0")
    assert wait_until(lambda: not (tmp_path / "own").exists(), timeout=30, interval=0.02)


@pytest.mark.parametrize(
    "node",
    ["localreserved:x", "dev:/dev/null", "dev:/dev/nope", "jdwp:1", "jdwp:abc", "ark:1@2"],
)
def test_a_rule_for_what_a_board_of_software_has_not_stands(host: RawPeer, node: str) -> None:
    forward(host, node)
    host.send(RULE, Command.FORWARD_ACTIVE_SLAVE, named(ID, node))
    assert host.receive() == (RULE, Command.FORWARD_FREE_CONTEXT, ID)


@pytest.mark.parametrize("node", ["dev:/dev/null", "jdwp:1"])
def test_so_does_one_that_nobody_will_ever_use(host: RawPeer, node: str) -> None:
    reverse(host, node)
    host.send(RULE, Command.CHANNEL_CLOSE, b"\0")
    assert host.is_silent()


def test_a_reserved_socket_lies_below_the_board(host: RawPeer, tmp_path: Path) -> None:
    (tmp_path / "dev/unix/socket").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{tmp_path}/dev/unix/socket/app")
        server.listen()
        forward(host, "localreserved:app")
        host.send(RULE, Command.FORWARD_ACTIVE_SLAVE, named(ID, "localreserved:app"))
        assert host.receive() == (RULE, Command.FORWARD_ACTIVE_MASTER, ID)


@pytest.mark.parametrize(
    ("nodes", "answer"),
    [
        ("localfilesystem:nodir/x tcp:7", b"Unix pipe bind failed"),
        ("localabstract:taken tcp:7", b"Unix pipe bind failed"),
        ("ark:1@2@x tcp:7", b"Not supoort forward-type"),
        ("localabstract:free nothing", b"Forward parament failed"),
    ],
)
def test_why_a_board_cannot_listen_is_said(
    host: RawPeer, tmp_path: Path, nodes: str, answer: bytes
) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(f"{tmp_path}/taken")
        host.send(RULE, Command.FORWARD_INIT, nodes.encode())
        assert host.until_close(RULE)[1:] == [
            (Command.ECHO, b"\0" + answer),
            (Command.CHANNEL_CLOSE, b"\1"),
        ]
    assert (tmp_path / "taken").exists()


def test_a_port_where_nobody_listens_ends_the_connection(host: RawPeer) -> None:
    node = f"tcp:{free_port()}"
    forward(host, node)
    host.send(RULE, Command.FORWARD_ACTIVE_SLAVE, named(ID, node))
    assert host.receive() == (RULE, Command.FORWARD_FREE_CONTEXT, ID)
    assert host.is_silent()


def _fresh(host: RawPeer) -> RawPeer:
    """The same host, when what its last rule may still have said has been read."""
    while not host.is_silent(0.1):
        host.receive()
    return host


def test_a_port_that_is_taken_is_said(host: RawPeer) -> None:
    with application() as server:
        host.send(RULE, Command.FORWARD_INIT, f"{node_of(server)} tcp:7".encode())
        port = server.getsockname()[1]
        assert host.until_close(RULE) == [
            (Command.WAKEUP_SLAVETASK, b""),
            (Command.ECHO, b"\0TCP Port listen failed at %d" % port),
            (Command.CHANNEL_CLOSE, b"\1"),
        ]


def test_connections_without_end_are_refused(host: RawPeer) -> None:
    with application() as server:
        forward(host, "tcp:1")
        server.listen(1000)
        for number in range(600):
            node = named(number.to_bytes(4, "big"), node_of(server))
            host.send(RULE, Command.FORWARD_ACTIVE_SLAVE, node)
        answers = [host.receive()[1] for _ in range(600)]
    assert answers.count(Command.FORWARD_ACTIVE_MASTER) == 512
    assert answers.count(Command.FORWARD_FREE_CONTEXT) == 88


def test_connections_that_meet_the_start_of_a_reverse_rule_are_held(host: RawPeer) -> None:
    port = free_port()
    host.send(RULE, Command.FORWARD_INIT, f"tcp:{port} tcp:7".encode())
    assert host.receive() == (RULE, Command.WAKEUP_SLAVETASK, b"")
    _, command, check = host.receive()
    assert command == Command.FORWARD_CHECK
    with ExitStack() as stack:
        users = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            for _ in range(64)
        ]
        assert host.is_silent(0.1)
        host.send(RULE, Command.FORWARD_CHECK_RESULT, check[:4] + b"\0")
        assert [host.receive()[1] for _ in range(2)] == [Command.ECHO, Command.FORWARD_SUCCESS]
        said = set()
        for _ in users:
            _, command, data = host.receive()
            assert (command, data[4:]) == (Command.FORWARD_ACTIVE_SLAVE, bytes(8) + b"tcp:7\0")
            host.send(RULE, Command.FORWARD_ACTIVE_MASTER, data[:4])
            host.send(RULE, Command.FORWARD_DATA, data[:4] * 2)
            said.add(data[:4])
        assert {user.recv(8, socket.MSG_WAITALL)[:4] for user in users} == said
