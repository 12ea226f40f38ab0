"""Forwarded connections, the host's end, against boards that are played by hand."""

import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from raw_hdc import RawPeer, scripted_board

from labctl.errors import (
    BoardError,
    CommandTimeout,
    ConfigError,
    DeviceLost,
    HostError,
    LabctlError,
)
from labctl.hdc.host import forwarding
from labctl.hdc.host.channel import LIMITS, Limits
from labctl.hdc.host.nodes import Listener, check_node, dial_node
from labctl.hdc.host.session import Session
from labctl.hdc.wire import Command
from labctl.retry import wait_until

SLAVE, MASTER = Command.FORWARD_ACTIVE_SLAVE, Command.FORWARD_ACTIVE_MASTER
DATA, FREE = Command.FORWARD_DATA, Command.FORWARD_FREE_CONTEXT
CLOSE = Command.CHANNEL_CLOSE


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    assert {t for t in threading.enumerate() if t not in before and t.is_alive()} == set()


@pytest.fixture(autouse=True)
def no_descriptor_is_left():
    before = len(list(Path("/proc/self/fd").iterdir()))
    yield
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def connect(port: int, limits: Limits = LIMITS) -> Session:
    return Session.connect("127.0.0.1", port, timeout=30, limits=limits)


def take_rule(peer: RawPeer, node: bytes = b"tcp:7") -> int:
    """Play a board up to its CHECK_RESULT of a forward; the channel."""
    peer.accept_hands()
    channel, command, _ = peer.receive()
    assert command == Command.WAKEUP_SLAVETASK
    _, command, data = peer.receive()
    assert command == Command.FORWARD_CHECK
    assert data[4:] == bytes(8) + node + b"\0"
    peer.send(channel, Command.FORWARD_CHECK_RESULT, data[:4] + b"\0")
    return channel


def shouting(peer: RawPeer) -> None:
    """A board whose port 7 answers in capitals, piece by piece."""
    channel = take_rule(peer)
    while True:
        number, command, data = peer.receive()
        assert number == channel
        if command == SLAVE:
            peer.send(channel, MASTER, data[:4])
        elif command == DATA:
            peer.send(channel, DATA, data[:4] + data[4:].upper())
        elif command == CLOSE:
            assert data == b"\0"  # the rule is removed
            return


def ask(port: int, request: bytes) -> bytes:
    """Say something, and read as many bytes back."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as sock:
        threading.Thread(target=sock.sendall, args=(request,)).start()
        answer = bytearray()
        while len(answer) < len(request):
            piece = sock.recv(1 << 16)
            if not piece:
                break
            answer += piece
        return bytes(answer)


def was_reset(sock: socket.socket) -> bool:
    """Whether what comes ends with a reset, not with an end in good order."""
    try:
        while sock.recv(1 << 20):
            pass
    except ConnectionResetError:
        return True
    return False


def user_is_reset(port: int) -> bool:
    """Whether a user of a forwarded port is reset; the reset may come while he still connects."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as user:
            return was_reset(user)
    except ConnectionResetError:
        return True


def test_a_port_of_the_board_answers_here() -> None:
    with scripted_board(shouting) as port, connect(port) as session:
        with session.forward("tcp:0", "tcp:7", timeout=30) as rule:
            assert rule.listen == f"tcp:{rule.port}"
            assert rule.connect == "tcp:7"
            assert ask(rule.port, b"hello") == b"HELLO"
            assert ask(rule.port, b"again") == b"AGAIN"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", rule.port))


def test_much_goes_both_ways_at_once_even_if_the_board_writes_before_it_reads() -> None:
    request = b"abcdefgh" * (1 << 21)
    with (
        scripted_board(shouting) as port,
        connect(port) as session,
        session.forward("tcp:0", "tcp:7", timeout=30) as rule,
    ):
        assert ask(rule.port, request) == request.upper()


def test_many_connections_at_once() -> None:
    answers: dict[int, bytes] = {}

    def one(number: int, port: int) -> None:
        answers[number] = ask(port, b"x%d," % number * 3000)

    with (
        scripted_board(shouting) as port,
        connect(port) as session,
        session.forward("tcp:0", "tcp:7", timeout=30) as rule,
    ):
        threads = [threading.Thread(target=one, args=(n, rule.port)) for n in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == {n: b"X%d," % n * 3000 for n in range(40)}


def test_what_nobody_takes_on_the_board_is_reset_here() -> None:
    def refusing(peer: RawPeer) -> None:
        channel = take_rule(peer)
        _, command, data = peer.receive()
        assert command == SLAVE
        assert data[4:] == bytes(8) + b"tcp:7\0"
        peer.send(channel, FREE, data[:4])
        assert peer.receive() == (channel, CLOSE, b"\0")

    with (
        scripted_board(refusing) as port,
        connect(port) as session,
        session.forward("tcp:0", "tcp:7", timeout=30) as rule,
        socket.create_connection(("127.0.0.1", rule.port)) as sock,
    ):
        assert was_reset(sock)


def test_an_answer_that_is_faster_than_the_thread_that_asks_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class SlowlyStarting(threading.Thread):
        """The new thread is far ahead of whoever starts it, as on a busy host."""

        def start(self) -> None:
            super().start()
            time.sleep(0.2)  # how far it is ahead

    with scripted_board(shouting) as port, connect(port) as session:
        monkeypatch.setattr(forwarding.threading, "Thread", SlowlyStarting)
        with session.forward("tcp:0", "tcp:7", timeout=30) as rule:
            assert ask(rule.port, b"hello") == b"HELLO"


def test_a_host_without_another_thread_refuses_and_serves_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class CannotStart(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    with (
        scripted_board(shouting) as port,
        connect(port) as session,
        session.forward("tcp:0", "tcp:7", timeout=30) as rule,
    ):
        with monkeypatch.context() as full:
            full.setattr(forwarding.threading, "Thread", CannotStart)
            with socket.create_connection(("127.0.0.1", rule.port)) as sock:
                assert sock.recv(1) == b""
        assert ask(rule.port, b"again") == b"AGAIN"


def test_the_end_on_the_board_comes_after_all_its_bytes() -> None:
    content = bytes(range(256)) * 4000
    freed: list[object] = []

    def board(peer: RawPeer) -> None:
        channel = take_rule(peer)
        context = peer.receive()[2][:4]
        peer.send(channel, MASTER, context)
        for start in range(0, len(content), 60_000):
            peer.send(channel, DATA, context + content[start : start + 60_000])
        peer.send(channel, FREE, context)
        peer.send(channel, DATA, context + b"for nobody")
        freed.append(peer.receive())  # not answered with another FREE

    with (
        scripted_board(board) as port,
        connect(port) as session,
        session.forward("tcp:0", "tcp:7", timeout=30) as rule,
        socket.create_connection(("127.0.0.1", rule.port)) as sock,
    ):
        time.sleep(0.2)  # the user is slow: bytes and end wait for it
        got = bytearray()
        while piece := sock.recv(1 << 16):
            got += piece
        assert bytes(got) == content
    assert freed[0][1:] == (CLOSE, b"\0")


def test_the_end_here_is_told_once() -> None:
    said: list[tuple[int, bytes]] = []

    def board(peer: RawPeer) -> None:
        channel = take_rule(peer)
        context = peer.receive()[2][:4]
        peer.send(channel, MASTER, context)
        while not said or said[-1][0] != CLOSE:
            _, command, data = peer.receive()
            said.append((command, data.removeprefix(context)))

    with (
        scripted_board(board) as port,
        connect(port) as session,
        session.forward("tcp:0", "tcp:7", timeout=30) as rule,
    ):
        with socket.create_connection(("127.0.0.1", rule.port)) as sock:
            sock.sendall(b"last words")
        assert wait_until(lambda: (FREE, b"") in said, timeout=30, interval=0.01)
    assert said == [(DATA, b"last words"), (FREE, b""), (CLOSE, b"\0")]


def test_a_lost_link_resets_connections_and_refuses_new_ones() -> None:
    gone = threading.Event()

    def board(peer: RawPeer) -> None:
        channel = take_rule(peer)
        context = peer.receive()[2][:4]
        peer.send(channel, MASTER, context)
        peer.send(channel, DATA, context + b"x")
        gone.wait(30)

    with (
        scripted_board(board) as port,
        connect(port) as session,
        session.forward("tcp:0", "tcp:7", timeout=30) as rule,
        socket.create_connection(("127.0.0.1", rule.port)) as sock,
    ):
        assert sock.recv(1) == b"x"
        gone.set()
        assert was_reset(sock)

        def is_refused() -> bool:
            try:
                socket.create_connection(("127.0.0.1", rule.port)).close()
            except ConnectionRefusedError:
                return True
            return False

        assert wait_until(is_refused, timeout=30, interval=0.01)


@pytest.mark.parametrize(
    ("answers", "error", "says", "timeout"),
    [
        (
            [(FREE, b"rule"), (Command.ECHO, b"\0Forward parament failed")],
            BoardError,
            "parament",
            30,
        ),
        ([(Command.ECHO, b"\0[E005] no such node")], BoardError, "no such node", 30),
        ([], CommandTimeout, "no answer", 0.3),
    ],
)
def test_a_board_that_takes_no_rule(
    answers: list[tuple[int, bytes]], error: type[LabctlError], says: str, timeout: float
) -> None:
    def board(peer: RawPeer) -> None:
        peer.accept_hands()
        channel = peer.receive()[0]
        peer.receive()
        for command, data in answers:
            peer.send(channel, command, data)
        peer.receive()

    with scripted_board(board) as port, connect(port) as session:
        rule = session.forward("tcp:0", "tcp:7", timeout=timeout)
        with pytest.raises(error, match=says), rule:
            pass


def test_a_user_who_reads_nothing_is_cut_and_the_others_go_on() -> None:
    limits = Limits(connection_bytes=200_000, connection_stall_seconds=0.3)

    def board(peer: RawPeer) -> None:
        channel = take_rule(peer)
        flooded = b""
        while True:
            _, command, data = peer.receive()
            if command == SLAVE and not flooded:
                flooded = data[:4]
                peer.send(channel, MASTER, flooded)
                for _ in range(500):
                    peer.send(channel, DATA, flooded + bytes(60_000))
            elif command == SLAVE:
                peer.send(channel, MASTER, data[:4])
            elif command == DATA:
                peer.send(channel, DATA, data[:4] + data[4:].upper())

    with (
        scripted_board(board) as port,
        connect(port, limits) as session,
        session.forward("tcp:0", "tcp:7", timeout=30) as rule,
        socket.create_connection(("127.0.0.1", rule.port)) as lazy,
    ):
        lazy.sendall(b"x")
        began = time.monotonic()
        assert ask(rule.port, b"still here") == b"STILL HERE"
        assert time.monotonic() - began < 20
        assert was_reset(lazy)


def breaking(pieces: int) -> Callable[[RawPeer], None]:
    """A board that is lost after so many pieces of an answer."""

    def board(peer: RawPeer) -> None:
        channel = take_rule(peer)
        _, command, data = peer.receive()
        assert command == SLAVE
        peer.send(channel, MASTER, data[:4])
        for _ in range(pieces):
            peer.send(channel, DATA, data[:4] + bytes(60_000))

    return board


def test_what_a_lost_link_cut_short_never_looks_complete() -> None:
    for pieces in range(1, 41):  # the loss meets the user in all states
        with (
            scripted_board(breaking(pieces)) as port,
            connect(port) as session,
            session.forward("tcp:0", "tcp:7", timeout=30) as rule,
        ):
            assert user_is_reset(rule.port), pieces


def test_a_host_without_another_descriptor_cuts_a_user_who_has_to_be_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def exhausted(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("labctl.hdc.host.forwarded.os.eventfd", exhausted)
    with (
        scripted_board(breaking(200)) as port,
        connect(port) as session,
        session.forward("tcp:0", "tcp:7", timeout=30) as rule,
    ):
        assert user_is_reset(rule.port)


def test_a_slow_user_gets_all_of_it() -> None:
    limits = Limits(connection_bytes=200_000, connection_stall_seconds=3.0)
    pieces, size = 200, 60_000

    def board(peer: RawPeer) -> None:
        channel = take_rule(peer)
        _, command, data = peer.receive()
        assert command == SLAVE
        peer.send(channel, MASTER, data[:4])
        for _ in range(pieces):
            peer.send(channel, DATA, data[:4] + bytes(size))
        peer.send(channel, FREE, data[:4])
        while peer.receive()[1] != CLOSE:
            pass

    with (
        scripted_board(board) as port,
        connect(port, limits) as session,
        session.forward("tcp:0", "tcp:7", timeout=30) as rule,
        socket.socket() as slow,
    ):
        # With a big buffer the kernel tells the sender of room in steps that take longer than
        # the stall: the user would seem dead.
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 128 << 10)
        slow.settimeout(30)
        slow.connect(("127.0.0.1", rule.port))
        got, began = 0, time.monotonic()
        while piece := slow.recv(1 << 16):
            got += len(piece)
            if time.monotonic() - began < 5:
                time.sleep(0.3)  # the user is slow, for longer than the stall
    assert got == pieces * size


def test_connections_are_limited() -> None:
    limits = Limits(connections=1)
    with (
        scripted_board(shouting) as port,
        connect(port, limits) as session,
        session.forward("tcp:0", "tcp:7", timeout=30) as rule,
        socket.create_connection(("127.0.0.1", rule.port)) as first,
    ):
        first.sendall(b"a")
        assert first.recv(1) == b"A"
        with socket.create_connection(("127.0.0.1", rule.port)) as second:
            assert second.recv(1) == b""
        first.sendall(b"b")
        assert first.recv(1) == b"B"


@contextmanager
def echo_here() -> Iterator[str]:
    """A service of this host that echoes; its node."""
    with closing(Listener("tcp:0")) as listener:

        def answer(sock: socket.socket) -> None:
            with sock, suppress(ConnectionResetError):  # the rule may go first
                while data := sock.recv(1 << 16):
                    sock.sendall(data)

        def serve() -> None:
            answering: list[threading.Thread] = []
            while (sock := listener.accept()) is not None:
                answering.append(threading.Thread(target=answer, args=(sock,)))
                answering[-1].start()
            for one in answering:
                one.join()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.node
        finally:
            listener.stop()
            thread.join()


def play_reverse(peer: RawPeer, play: Callable[[RawPeer, int], None]) -> None:
    peer.accept_hands()
    channel, command, data = peer.receive()
    assert command == Command.FORWARD_INIT
    listen, there = data.decode().split(" ")
    peer.send(channel, Command.WAKEUP_SLAVETASK)
    peer.send(channel, Command.FORWARD_CHECK, b"rule" + bytes(8) + there.encode() + b"\0")
    assert peer.receive() == (channel, Command.FORWARD_CHECK_RESULT, b"rule\0")
    peer.send(channel, Command.ECHO, b"\x02Forwardport result:OK")
    peer.send(channel, Command.FORWARD_SUCCESS, f"0|{listen} {there}\0".encode())
    play(peer, channel)


def test_a_port_of_this_host_answers_on_the_board() -> None:
    done = threading.Event()

    def play(peer: RawPeer, channel: int) -> None:
        # Whatever node the board names, it gets the one that was meant.
        peer.send(channel, SLAVE, b"ctx1" + bytes(8) + b"tcp:22\0")
        assert peer.receive() == (channel, MASTER, b"ctx1")
        peer.send(channel, DATA, b"ctx1hello")
        assert peer.receive() == (channel, DATA, b"ctx1hello")
        peer.send(channel, FREE, b"ctx1")
        done.set()
        while (said := peer.receive()) == (channel, FREE, b"ctx1"):
            pass  # the rule was removed before our own end was seen
        assert said == (channel, CLOSE, b"\0")

    with (
        echo_here() as node,
        scripted_board(lambda peer: play_reverse(peer, play)) as port,
        connect(port) as session,
        session.reverse("tcp:9000", node, timeout=30) as rule,
    ):
        assert rule.port == 9000
        assert done.wait(30)


@pytest.mark.parametrize("when", [Command.WAKEUP_SLAVETASK, Command.FORWARD_CHECK, Command.ECHO])
def test_connections_that_meet_the_start_are_held_and_forwarded(when: Command) -> None:
    """The board accepts as soon as it listens, and says so whenever that is."""
    contexts = [b"%04d" % number for number in range(64)]
    answered: dict[bytes, bytes] = {}
    done = threading.Event()

    def board(peer: RawPeer) -> None:
        peer.accept_hands()
        channel = peer.receive()[0]

        def say(command: Command, data: bytes = b"") -> None:
            peer.send(channel, command, data)
            if command == when:
                for context in contexts:
                    peer.send(channel, SLAVE, context + bytes(8) + b"tcp:1\0")

        say(Command.WAKEUP_SLAVETASK)
        say(Command.FORWARD_CHECK, b"rule" + bytes(8) + b"tcp:1\0")
        assert peer.receive() == (channel, Command.FORWARD_CHECK_RESULT, b"rule\0")
        say(Command.ECHO, b"\x02Forwardport result:OK")
        assert peer.is_silent(0.2)  # held: the rule does not stand yet
        say(Command.FORWARD_SUCCESS, b"0|tcp:9000 tcp:1\0")
        while len(answered) < len(contexts):
            _, command, data = peer.receive()
            if command == MASTER:
                peer.send(channel, DATA, data[:4] + b"I am " + data[:4])
            else:
                assert command == DATA
                answered[data[:4]] = answered.get(data[:4], b"") + data[4:]
        done.set()
        peer.ended()

    with (
        echo_here() as node,
        scripted_board(board) as port,
        connect(port) as session,
        session.reverse("tcp:9000", node, timeout=30),
    ):
        assert done.wait(30)
    assert answered == {context: b"I am " + context for context in contexts}


def test_a_rule_that_a_connection_met_too_early() -> None:
    """So hdcd does, by its source: it drops the connection, and ends the rule without a word."""

    def board(peer: RawPeer) -> None:
        peer.accept_hands()
        channel = peer.receive()[0]
        peer.send(channel, Command.WAKEUP_SLAVETASK)
        peer.send(channel, Command.FORWARD_CHECK, b"rule" + bytes(8) + b"tcp:1\0")
        peer.send(channel, CLOSE, b"\1")
        peer.ended()

    with (
        scripted_board(board) as port,
        connect(port) as session,
        pytest.raises(DeviceLost, match="ended the forwarding of tcp:9000") as lost,
        session.reverse("tcp:9000", "tcp:1", timeout=30),
    ):
        pass
    assert "try again" in (lost.value.hint or "")


def test_nobody_answers_on_this_host() -> None:
    done = threading.Event()

    def play(peer: RawPeer, channel: int) -> None:
        peer.send(channel, SLAVE, b"ctx1" + bytes(8) + b"tcp:22\0")
        assert peer.receive() == (channel, FREE, b"ctx1")
        done.set()

    with closing(Listener("tcp:0")) as listener:
        node = listener.node
    with (
        scripted_board(lambda peer: play_reverse(peer, play)) as port,
        connect(port) as session,
        session.reverse("tcp:9000", node, timeout=30),
    ):
        assert done.wait(30)


def test_a_board_cannot_listen() -> None:
    def board(peer: RawPeer) -> None:
        peer.accept_hands()
        channel = peer.receive()[0]
        peer.send(channel, Command.WAKEUP_SLAVETASK)
        peer.send(channel, Command.ECHO, b"\0TCP Port listen failed at 9000")
        peer.send(channel, CLOSE, b"\1")
        peer.receive()

    with (
        scripted_board(board) as port,
        connect(port) as session,
        pytest.raises(BoardError, match="listen failed at 9000"),
        session.reverse("tcp:9000", "tcp:1", timeout=30),
    ):
        pass


def test_nodes_that_cannot_be() -> None:
    with (
        scripted_board(lambda peer: peer.accept_hands() and peer.ended()) as port,
        connect(port) as session,
    ):
        for listen, there in (
            ("tcp:0", "tcp:1 tcp:2"),
            ("tcp:0", "nothing"),
            ("tcp:70000", "tcp:1"),
            ("tcp:x", "tcp:1"),
            ("jdwp:1", "tcp:1"),
            ("tcp:0", "tcp:1\0"),
        ):
            with pytest.raises(ConfigError), session.forward(listen, there, timeout=1):
                pass
        for listen, there in (("tcp:0", "tcp:1"), ("tcp:1", "jdwp:1"), ("tcp:1 x", "tcp:1")):
            with pytest.raises(ConfigError), session.reverse(listen, there, timeout=1):
                pass


def test_a_port_that_is_taken_is_this_hosts_fault() -> None:
    with (
        scripted_board(lambda peer: peer.accept_hands() and peer.ended()) as port,
        connect(port) as session,
        closing(Listener("tcp:0")) as taken,
        pytest.raises(HostError, match="cannot listen"),
        session.forward(taken.node, "tcp:1", timeout=1),
    ):
        pass


def test_what_is_no_node_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^not a port or socket: 'bar'$"):
        check_node("bar")


@pytest.mark.parametrize("kind", ["localfilesystem", "localabstract"])
def test_nodes_that_are_no_ports(kind: str, tmp_path: Path) -> None:
    name = str(tmp_path / "s") if kind == "localfilesystem" else f"labctl-test-{tmp_path.name}"
    node = check_node(f"{kind}:{name}")
    with closing(Listener(node)) as listener, dial_node(node, timeout=1) as sock:
        other = listener.accept()
        assert other is not None
        with other:
            sock.sendall(b"x")
            assert other.recv(1) == b"x"
    assert not (tmp_path / "s").exists()
    with pytest.raises(OSError, match=r"refused|No such file"):
        dial_node(node, timeout=1)
