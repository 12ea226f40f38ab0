"""Forwarded ports, files, a shell, a reboot: everything over a server as over a session."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from hdc_server import USB_KEY, Board, StandInServer, stand_in_server

from labctl.errors import (
    BoardError,
    CommandTimeout,
    ConfigError,
    DeviceLost,
    HostError,
    LinkRefused,
    ProtocolError,
)
from labctl.hdc.host.files import receive_file, send_file
from labctl.hdc.host.link import RebootTarget, hilog, interactive_shell, reboot, remount, shell
from labctl.hdc.server_client.server import HdcServer, Rule
from labctl.hdc.server_client.session import ServerSession
from labctl.retry import wait_until
from labctl.virtual.board import VirtualBoard, serving


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StandInServer]:
    with (
        serving(VirtualBoard("b", tmp_path / "board")) as (board,),
        stand_in_server({USB_KEY: Board(board.address)}) as server,
    ):
        yield server


@pytest.fixture
def link(server: StandInServer) -> Iterator[ServerSession]:
    session = ServerSession.connect(HdcServer("127.0.0.1", server.port), USB_KEY, timeout=30)
    yield session
    session.close()


@pytest.fixture
def upper() -> Iterator[int]:
    """Says everything again in capitals; its port. One connection at a time."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client, suppress(OSError):  # who asked may be gone
                    while data := client.recv(65536):
                        client.sendall(data.upper())

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def ask(port: int, words: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as sock:
        sock.sendall(words)
        answer = b""
        while len(answer) < len(words):
            piece = sock.recv(65536)
            assert piece
            answer += piece
        return answer


def can_connect(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


# Ports


def test_a_port_of_the_board(link: ServerSession, server: StandInServer, upper: int) -> None:
    hdc = HdcServer("127.0.0.1", server.port)
    with link.forward("tcp:0", f"tcp:{upper}", timeout=30) as forwarding:
        assert ask(forwarding.port, b"over there\0" * 10_000) == b"OVER THERE\0" * 10_000
        assert ask(forwarding.port, b"again") == b"AGAIN"
        rule = Rule(USB_KEY, forwarding.listen, f"tcp:{upper}", is_reverse=False)
        assert hdc.rules(timeout=30) == [rule]
    assert hdc.rules(timeout=30) == []
    with pytest.raises(ConnectionRefusedError):
        ask(forwarding.port, b"gone")


def test_a_port_for_the_board(link: ServerSession, server: StandInServer, upper: int) -> None:
    port = free_port()
    with link.reverse(f"tcp:{port}", f"tcp:{upper}", timeout=30) as forwarding:
        assert forwarding.port == port
        assert ask(port, b"over here") == b"OVER HERE"
        assert HdcServer("127.0.0.1", server.port).rules(timeout=30)[0].is_reverse
    assert server.boards[USB_KEY].rules == {}


def test_a_client_that_leaves_early_takes_a_reverse_rule_with_it(
    link: ServerSession, server: StandInServer, upper: int
) -> None:
    """What the stand-in has from the official server; a forward rule survives."""
    hdc, port = HdcServer("127.0.0.1", server.port), free_port()
    frames, _ = hdc.open(USB_KEY, f"rport tcp:{port} tcp:{upper}".encode(), label="x", timeout=30)
    assert frames.read(5) == b"Forwardport result:OK\r\n"
    frames.close()
    there = free_port()
    frames, _ = hdc.open(USB_KEY, f"fport tcp:{there} tcp:{upper}".encode(), label="x", timeout=30)
    assert frames.read(5) == b"Forwardport result:OK\r\n"
    frames.close()
    assert wait_until(
        lambda: not server.boards[USB_KEY].agreeing and not can_connect(port),
        timeout=30,
        interval=0.02,
    )
    assert hdc.rules(timeout=30) == [
        Rule(USB_KEY, f"tcp:{there}", f"tcp:{upper}", is_reverse=False)
    ]
    assert ask(there, b"stands") == b"STANDS"


@pytest.mark.parametrize("reverse", [True, False])
def test_a_server_that_does_not_confirm_a_rule(
    link: ServerSession, server: StandInServer, upper: int, reverse: bool
) -> None:
    server.keeps_open = True
    start, port = link.reverse if reverse else link.forward, free_port()
    began = time.monotonic()
    with (
        pytest.raises(CommandTimeout, match="did not confirm"),
        start(f"tcp:{port}", f"tcp:{upper}", timeout=0.5),
    ):
        pass
    assert 0.4 < time.monotonic() - began < 20
    board = server.boards[USB_KEY]
    assert wait_until(
        lambda: not (board.rules or board.agreeing or can_connect(port)), timeout=30, interval=0.02
    )


def test_a_rule_that_is_ended_without_a_word(
    link: ServerSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a board's hdcd does, by its source, when a connection meets a reverse rule too early."""
    monkeypatch.setattr("hdc_server.forward", lambda *_: b"")
    with (
        pytest.raises(DeviceLost, match="without a reason") as lost,
        link.reverse("tcp:9000", "tcp:1", timeout=30),
    ):
        pass
    assert "try again" in (lost.value.hint or "")


def test_a_port_that_is_taken(link: ServerSession, server: StandInServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(HostError, match="cannot listen at"),
            link.forward(f"tcp:{port}", "tcp:1", timeout=30),
        ):
            pass
        with (
            pytest.raises(BoardError, match="the board cannot listen at"),
            link.reverse(f"tcp:{port}", "tcp:1", timeout=30),
        ):
            pass
    assert server.boards[USB_KEY].rules == {}


def test_the_same_rule_twice(link: ServerSession, server: StandInServer, upper: int) -> None:
    """Another board's rule must not be ended in place of ours."""
    port = free_port()
    with link.reverse(f"tcp:{port}", f"tcp:{upper}", timeout=30):
        with (
            pytest.raises(HostError, match=f"already forwards .*, for {USB_KEY}"),
            link.reverse(f"tcp:{port}", f"tcp:{upper}", timeout=30),
        ):
            pass
        assert ask(port, b"still") == b"STILL"


@pytest.mark.parametrize(
    ("listen", "connect"),
    [("5000", "tcp:1"), ("tcp:1", "tcp:2 x"), ("tcp:99999", "tcp:1"), ("jdwp:1", "tcp:1")],
)
def test_what_is_no_node(
    link: ServerSession, server: StandInServer, listen: str, connect: str
) -> None:
    with pytest.raises(ConfigError), link.forward(listen, connect, timeout=30):
        pass
    assert not [command for _, command in server.commands if command.startswith("fport tcp")]


def test_no_ports_through_a_server_elsewhere(link: ServerSession) -> None:
    link._server.is_here = False  # what its address would show
    for begin in (link.forward, link.reverse):
        with (
            pytest.raises(ConfigError, match="on another host") as caught,
            begin("tcp:5000", "tcp:1", timeout=30),
        ):
            pass
        assert "link: tcp" in (caught.value.hint or "")


def test_the_other_end_of_a_tunnel_is_found_out(
    link: ServerSession, server: StandInServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It seems to be here, but nothing listens here."""

    def elsewhere(board: Board, kind: str, listen: str, connect: str) -> bytes:
        board.rules[(listen, connect, "Forward")] = ExitStack()
        return b"Forwardport result:OK\r\n"

    monkeypatch.setattr("hdc_server.forward", elsewhere)
    with (
        pytest.raises(ConfigError, match="on another host"),
        link.forward("tcp:0", "tcp:1", timeout=30),
    ):
        pass
    assert server.boards[USB_KEY].rules == {}


def test_a_rule_that_is_not_listed_does_not_stand(
    link: ServerSession, server: StandInServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hdc_server.forward", lambda *_: b"Forwardport result:OK\r\n")
    with (
        pytest.raises(ProtocolError, match="does not list it"),
        link.forward("tcp:0", "tcp:1", timeout=2),
    ):
        pass


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (b"[Fail]Forward parament failed\r\n", ConfigError),
        (b"[Fail]Something else\r\n", BoardError),
        (b"[Fail][E001005] Device not found or connected\r\n", LinkRefused),
        (b"[Fail]Device not founded or connected\r\n", LinkRefused),  # 3.1.0e
        (b"Forwardport result:?\r\n", ProtocolError),
    ],
)
def test_words_instead_of_a_rule(
    link: ServerSession, monkeypatch: pytest.MonkeyPatch, words: bytes, error: type[Exception]
) -> None:
    monkeypatch.setattr("hdc_server.forward", lambda *_: words)
    with pytest.raises(error), link.forward("tcp:0", "tcp:1", timeout=30):
        pass


def test_rules_go_with_the_board(link: ServerSession, server: StandInServer, upper: int) -> None:
    with link.forward("tcp:0", f"tcp:{upper}", timeout=30):
        server.boards[USB_KEY].drop()
    assert server.boards[USB_KEY].rules == {}


# Files


@pytest.mark.parametrize("compress", [False, True])
def test_a_file_goes_there_and_back_as_it_is(
    link: ServerSession, server: StandInServer, tmp_path: Path, compress: bool
) -> None:
    content, there = os.urandom(900_000), tmp_path / "two words"
    (tmp_path / "here").write_bytes(content)
    with (tmp_path / "here").open("rb", buffering=0) as file:
        send_file(link, file, str(there), timeout=30, on_chunk=lambda _: None, compress=compress)
    assert there.read_bytes() == content
    got = bytearray()
    size = receive_file(link, str(there), timeout=30, write=got.extend, compress=compress)
    assert (size, bytes(got)) == (900_000, content)
    # Whether the board handles LZ4 well is not known of a board behind a server: no -z.
    assert server.said(f'file recv remote -cwd "/" "{there}" file') == 1


@pytest.mark.parametrize("path", ["/data/100%", "/data/%s%s%s%s"])
def test_paths_that_crash_hdcd(
    link: ServerSession, server: StandInServer, tmp_path: Path, path: str
) -> None:
    (tmp_path / "x").write_bytes(b"x")
    with (tmp_path / "x").open("rb", buffering=0) as file, pytest.raises(ConfigError, match="%"):
        send_file(link, file, path, timeout=30, on_chunk=lambda _: None)
    with pytest.raises(ConfigError, match="%"):
        receive_file(link, path, timeout=30, write=lambda _: None)
    assert not [command for _, command in server.commands if path in command]


# Commands


def test_long_commands(link: ServerSession) -> None:
    words = "x" * 120_000
    assert b"".join(shell(link, f": {words}; echo ${{#0}} done", timeout=30)).endswith(b"done\n")
    with pytest.raises(ConfigError, match="NUL"):
        b"".join(shell(link, "echo a\0b", timeout=30))


def test_bytes_that_are_no_text(link: ServerSession) -> None:
    assert b"".join(shell(link, "printf '\udcff\\0z' | od -An -tx1", timeout=30)) == (
        b" ff 00 7a\n"
    )


def test_a_command_that_looks_like_an_option(link: ServerSession, server: StandInServer) -> None:
    assert b"".join(shell(link, "-x", timeout=30))  # the board's own shell complains of it
    assert server.commands[-1] == (USB_KEY, 'shell "-x"')


def test_a_shell_to_type_into(link: ServerSession) -> None:
    heard = b""
    with interactive_shell(link, timeout=30) as terminal:
        terminal.send(b"echo $((6 * 7))\n")
        while b"42" not in heard:
            piece = terminal.receive(30)
            assert piece
            heard += piece
        terminal.send(b"exit\n")
        while terminal.receive(30) is not None:
            pass


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("", "target boot"),
        ("bootloader", "target boot -bootloader"),
        ("recovery", "target boot -recovery"),
        ("flashd", "target boot -flashd"),
        ("shutdown", "target boot shutdown"),
    ],
)
def test_reboot(link: ServerSession, server: StandInServer, how: RebootTarget, text: str) -> None:
    reboot(link, how, timeout=30)
    assert server.commands[-1] == (USB_KEY, text)


def test_words_of_the_board(link: ServerSession, server: StandInServer) -> None:
    try:
        said = remount(link, timeout=30)
    except BoardError as error:
        said = error.message
    assert said
    log = hilog(link, timeout=30)
    try:
        next(log, None)
    except (BoardError, DeviceLost):
        pass
    finally:
        log.close()
    assert server.said("hilog") == 1
