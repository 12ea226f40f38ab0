"""The hdc transport against boards that no virtual board can play."""

import re
import socket
import threading
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import ClassVar

import pytest
from listening_sockets import listening
from raw_hdc import RawPeer, scripted_board

from labctl import process
from labctl.errors import (
    BoardError,
    CommandTimeout,
    ConfigError,
    DeviceLost,
    LabctlError,
    LinkError,
)
from labctl.hdc.host.link import shell
from labctl.hdc.host.session import Session
from labctl.hdc.wire import Command
from labctl.transport.base import OpenOptions, Transport
from labctl.transport.hdc import HdcTcpConfig
from labctl.transport.sentinel import Framed, execute
from labctl.virtual.board import VirtualBoard, serving


def test_many_who_wait_for_a_silent_board_wait_once() -> None:
    def silent(peer: RawPeer) -> None:
        peer.receive()
        peer.receive()

    def ask(transport: Transport) -> LabctlError | None:
        try:
            transport.run("true", timeout=30)
        except LabctlError as error:
            return error
        return None

    with scripted_board(silent) as port:
        transport = HdcTcpConfig(address=f"127.0.0.1:{port}").open(OpenOptions(timeout=2))
        began = time.monotonic()
        with ThreadPoolExecutor(16) as pool:
            errors = list(pool.map(ask, [transport] * 16))
        assert time.monotonic() - began < 30  # not 32 s
        assert {type(error) for error in errors} == {CommandTimeout}
        assert len({id(error) for error in errors}) == 16
        began = time.monotonic()
        assert isinstance(ask(transport), CommandTimeout)  # who asks later gets a new attempt
        assert time.monotonic() - began > 0.9


@pytest.mark.parametrize(("pid", "kills"), [(0, False), (1, False), (4711, True)])
def test_nothing_but_the_commands_own_group_is_killed(pid: int, kills: bool) -> None:
    asked: list[bytes] = []

    def board(peer: RawPeer) -> None:
        peer.accept_hands()
        channel, _, script = peer.receive()
        nonce = re.match(rb"{ echo (labctl-\w+):", script)
        assert nonce is not None
        peer.send(channel, Command.ECHO_RAW, b"%s:%d\n" % (nonce[1], pid))
        while True:
            channel, command, data = peer.receive()
            if command == Command.UNITY_EXECUTE:
                asked.append(data)
                peer.send(channel, Command.ECHO_RAW, b"done\n")
                peer.send(channel, Command.CHANNEL_CLOSE, b"\x01")

    with (
        scripted_board(board) as port,
        HdcTcpConfig(address=f"127.0.0.1:{port}").open() as transport,
    ):
        with pytest.raises(CommandTimeout) as caught:
            transport.run("sleep 9", timeout=1)
        assert ("may still run" in str(caught.value.hint)) != kills
    assert [b"kill -9 -%d;" % pid in command for command in asked] == [True] * kills


def test_a_command_whose_caller_leaves_before_its_id_is_told_is_killed(tmp_path: Path) -> None:
    """As a notebook's Ctrl-C, that comes between any two steps."""

    class Leaving:
        failure = None
        scripts: ClassVar[list[str]] = []

        def __call__(self, script: str, *, timeout: float) -> Generator[bytes, None, None]:
            self.scripts.append(script)
            if len(self.scripts) > 1:
                yield from shell(session, script, timeout=timeout)
                return
            with closing(shell(session, script, timeout=timeout)) as pieces:
                next(pieces)  # the id, which the caller does not see
                raise KeyboardInterrupt

    with serving(VirtualBoard("b", tmp_path)) as (board,):
        session = Session.connect(board.host, board.port, timeout=30)
        framed = Framed.around("sleep 600 & sleep 600")
        try:
            with pytest.raises(KeyboardInterrupt):
                execute(Leaving(), framed, label="b", timeout=30, write=print)
            assert marked(framed.nonce) == []
            # Nobody is there any more, and the command that looks for it does not find itself.
            assert b"".join(shell(session, framed.killing(None), timeout=30)) == b""
        finally:
            session.close()


def marked(nonce: str) -> list[Path]:
    """Processes with this nonce in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if nonce.encode() in path.read_bytes():
                found.append(path)
    return found


def test_a_process_id_that_became_somebody_elses_is_spared(tmp_path: Path) -> None:
    """The shell says the id of a group that is not its own, as if it had been given away."""
    with serving(VirtualBoard("b", tmp_path)) as (board,):
        session = Session.connect(board.host, board.port, timeout=30)
        bystander = process.start(["sleep", "60"], stdout=None, stderr=None)
        framed = Framed.around("true")
        try:
            assert b"".join(shell(session, framed.killing(bystander.pid), timeout=30)) == b"done\n"
            assert bystander.poll() is None
        finally:
            process.stop(bystander)
            session.close()


def test_what_the_board_does_not_understand_is_the_users_error(tmp_path: Path) -> None:
    long = "(" + "echo a;" * 10_000
    with (
        serving(VirtualBoard("b", tmp_path)) as (board,),
        HdcTcpConfig(address=board.address).open() as transport,
    ):
        for command in ("echo 'x", long):
            with pytest.raises(ConfigError, match="does not understand") as caught:
                transport.run(command, timeout=30)
            assert caught.value.hint is not None
        for command, told in (
            ("echo a )", "unexpected ')'"),
            ("if true", "unmatched 'if'"),
            ("echo 'x", "no closing quote"),
        ):
            printed: list[bytes] = []
            with pytest.raises(ConfigError) as caught:
                transport.stream(command, timeout=30, write=printed.append)
            where = f"the board's shell does not understand: {command}"
            assert (caught.value.message, caught.value.details) == (where, told)
            assert printed == []  # neither a part of it was run, nor the shell's path shown
        assert list((board.directory / "data/local/tmp").iterdir()) == [board.workdir]


def test_without_room_for_standard_error_the_board_is_to_blame(tmp_path: Path) -> None:
    with (
        serving(VirtualBoard("b", tmp_path)) as (board,),
        HdcTcpConfig(address=board.address).open() as transport,
    ):
        board.workdir.rmdir()
        (board.directory / "data/local/tmp").rmdir()
        with pytest.raises(BoardError, match="no place for the standard error"):
            transport.run("true", timeout=30, separate_stderr=True)
        assert transport.run("true", timeout=30).exit_status == 0


def test_a_link_that_breaks_in_its_opening_is_opened_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connections: list[int] = []

    def board(peer: RawPeer) -> None:
        connections.append(1)
        if len(connections) < 3:
            peer.receive()
            return  # hdcd starts again, say
        peer.accept_hands()
        channel, _, script = peer.receive()
        nonce = re.match(rb"{ echo (labctl-\w+):", script)
        assert nonce is not None
        peer.send(channel, Command.ECHO_RAW, b"%s:7\n\x1e%s:5\n" % (nonce[1], nonce[1]))
        peer.send(channel, Command.CHANNEL_CLOSE, b"\x01")
        peer.receive()

    with (
        scripted_board(board) as port,
        HdcTcpConfig(address=f"127.0.0.1:{port}").open() as transport,
    ):
        assert transport.run("true", timeout=30).exit_status == 5
    assert len(connections) == 3
    assert caplog.text.count("opening it again") == 2


def test_a_command_is_never_run_twice() -> None:
    asked: list[bytes] = []

    def board(peer: RawPeer) -> None:
        peer.accept_hands()
        while True:
            _, command, data = peer.receive()
            if command == Command.UNITY_EXECUTE:
                asked.append(data)
                return  # lost during the command

    with (
        scripted_board(board) as port,
        HdcTcpConfig(address=f"127.0.0.1:{port}").open() as transport,
        pytest.raises(DeviceLost),
    ):
        transport.run("true", timeout=30)
    assert len(asked) == 1


def test_a_stream_opens_no_port_on_this_host(tmp_path: Path) -> None:
    """A port here would be open to every other user of this host, and carry bytes twice."""
    with (
        serving(VirtualBoard("b", tmp_path)) as (board,),
        HdcTcpConfig(address=board.address).open() as transport,
        socket.create_server(("127.0.0.1", 0)) as service,
    ):
        transport.run(":", timeout=30)
        ports, threads = listening(), threading.active_count()
        with transport.connect(service.getsockname()[1], timeout=30):
            assert listening() == ports
            assert threading.active_count() == threads


def test_a_log_that_nobody_sends_is_no_empty_log() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = HdcTcpConfig(address=f"127.0.0.1:{silent.getsockname()[1]}")
        with config.open(OpenOptions(timeout=0.5)) as board:
            log = board.over_hdc("give a log")
            with pytest.raises(LinkError):
                log.hilog(timeout=0.5, write=lambda _piece: None)
