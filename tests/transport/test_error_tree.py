"""Every kind of failure of a link or a board, provoked: its type, what it names, what helps."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from raw_hdc import RawPeer, scripted_board

from labctl.errors import (
    AccessDenied,
    Blame,
    BoardError,
    BoardNoSpace,
    BoardPermission,
    CommandTimeout,
    ConfigError,
    DeviceLost,
    IntegrityError,
    LabctlError,
    LinkRefused,
    ProtocolError,
    RemoteExit,
)
from labctl.hdc.messages import TransferConfig
from labctl.hdc.wire import Command
from labctl.transport.base import OpenOptions, TransferOptions, Transport
from labctl.transport.hdc import HdcTcpConfig
from labctl.virtual.board import VirtualBoard, serving

OPTIONS = TransferOptions(timeout=30)

Case = Callable[[Path], None]


@contextmanager
def board(script: Callable[[RawPeer], None]) -> Iterator[Transport]:
    with (
        scripted_board(script) as port,
        HdcTcpConfig(address=f"127.0.0.1:{port}").open(OpenOptions(timeout=1)) as transport,
    ):
        yield transport


@contextmanager
def virtual_board(folder: Path) -> Iterator[Transport]:
    with (
        serving(VirtualBoard("b", folder / "board")) as (served,),
        HdcTcpConfig(address=served.address).open() as transport,
    ):
        yield transport


def nothing_listens(_: Path) -> None:
    with scripted_board(lambda _peer: None) as port:
        pass
    with HdcTcpConfig(address=f"127.0.0.1:{port}").open() as transport:
        transport.run("echo asked", timeout=1)


def nobody_is_let_in(_: Path) -> None:
    def script(peer: RawPeer) -> None:
        peer.accept_hands(
            daemonauthstatus="DAEMON_UNAUTH", emgmsg="[E000003]:The device denied this host."
        )
        peer.receive()

    with board(script) as transport:
        transport.run("echo asked", timeout=1)


def it_is_silent(_: Path) -> None:
    def script(peer: RawPeer) -> None:
        peer.receive()
        peer.receive()

    with board(script) as transport:
        transport.run("echo asked", timeout=1)


def it_speaks_something_else(_: Path) -> None:
    def script(peer: RawPeer) -> None:
        peer.receive()
        peer.socket.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        peer.receive()

    with board(script) as transport:
        transport.run("echo asked", timeout=1)


def it_is_lost_in_a_command(_: Path) -> None:
    def script(peer: RawPeer) -> None:
        peer.accept_hands()
        channel, _, script = peer.receive()
        nonce = re.match(rb"{ echo (labctl-\w+):", script)
        assert nonce is not None
        peer.send(channel, Command.ECHO_RAW, nonce[1] + b":77\nhalf of it")

    with board(script) as transport:
        transport.run("echo asked", timeout=30)


def a_command_does_not_end(folder: Path) -> None:
    with virtual_board(folder) as transport:
        transport.run("echo asked; echo half of it; sleep 50", timeout=1)


def a_shell_is_killed(folder: Path) -> None:
    with virtual_board(folder) as transport:
        transport.run("echo asked; echo half of it; kill -9 $$", timeout=30)


def a_command_fails(folder: Path) -> None:
    with virtual_board(folder) as transport:
        transport.run("echo asked >/dev/null; echo half of it >&2; exit 4", timeout=30).check()


def the_storage_is_full(folder: Path) -> None:
    (folder / "asked").write_bytes(os.urandom(100))
    with virtual_board(folder) as transport:
        transport.push(folder / "asked", "/dev/full", OPTIONS)


def access_is_refused(folder: Path) -> None:
    (folder / "asked").write_bytes(os.urandom(100))
    with virtual_board(folder) as transport:
        transport.push(folder / "asked", "/sys/asked", OPTIONS)


def there_is_no_such_file(folder: Path) -> None:
    with virtual_board(folder) as transport:
        transport.pull("/none/asked", folder / "back", OPTIONS)


def it_sends_more_than_it_said(folder: Path) -> None:
    def script(peer: RawPeer) -> None:
        peer.accept_hands()
        while True:
            channel, command, data = peer.receive()
            if command == Command.UNITY_EXECUTE:
                nonce = re.match(rb"{ echo (labctl-\w+):", data)
                assert nonce is not None
                answer = b"%s:77\nmd5sum\n\x1e%s:0\n" % (nonce[1], nonce[1])
                peer.send(channel, Command.ECHO_RAW, answer)
                peer.send(channel, Command.CHANNEL_CLOSE, b"\x01")
            elif command == Command.FILE_INIT:
                peer.send(channel, Command.WAKEUP_SLAVETASK)
                config = TransferConfig(file_size=1, optional_name="asked")
                peer.send(channel, Command.FILE_CHECK, config.encode())
            elif command == Command.FILE_BEGIN:
                area = b"\x08\x00\x10\x00\x18\x02\x20\x02".ljust(64, b"\0")
                peer.send(channel, Command.FILE_DATA, area + b"xy")

    with board(script) as transport:
        transport.pull("/data/asked", folder / "back", OPTIONS)


def the_bytes_differ(folder: Path) -> None:
    (folder / "asked").write_bytes(b"what is sent")
    with virtual_board(folder) as transport:
        transport.run(":", timeout=30)
        shadow = folder / "board" / "system/bin" / "sha256sum"
        if not shadow.exists():
            pytest.skip("mksh and toybox are not installed")
        shadow.unlink()
        shadow.write_text(f"#!/bin/sh\necho {'0' * 64}\n")
        shadow.chmod(0o755)
        transport.push(folder / "asked", f"{folder}/board/asked", OPTIONS)


def a_path_is_unsafe(folder: Path) -> None:
    with virtual_board(folder) as transport:
        transport.pull("/data/100%/asked", folder / "back", OPTIONS)


def a_quote_is_missing(folder: Path) -> None:
    with virtual_board(folder) as transport:
        transport.run("echo asked 'x", timeout=30)


@pytest.mark.parametrize(
    ("case", "kind", "blame", "names", "received"),
    [
        (nothing_listens, LinkRefused, Blame.INFRA, "127.0.0.1", None),
        (nobody_is_let_in, AccessDenied, Blame.INFRA, "127.0.0.1", "E000003"),
        (it_is_silent, CommandTimeout, Blame.INFRA, "127.0.0.1", None),
        (it_speaks_something_else, ProtocolError, Blame.INFRA, "48545450|HTTP", None),
        (it_is_lost_in_a_command, DeviceLost, Blame.INFRA, "echo asked", "half of it"),
        (a_command_does_not_end, CommandTimeout, Blame.INFRA, "echo asked", "half of it"),
        (a_shell_is_killed, DeviceLost, Blame.INFRA, "echo asked", "half of it"),
        (a_command_fails, RemoteExit, Blame.JOB, "echo asked", "half of it"),
        (the_storage_is_full, BoardNoSpace, Blame.INFRA, "asked to /dev/full", None),
        (access_is_refused, BoardPermission, Blame.INFRA, "asked to /sys/asked", None),
        (there_is_no_such_file, BoardError, Blame.INFRA, "receiving /none/asked", None),
        (it_sends_more_than_it_said, IntegrityError, Blame.INFRA, "receiving /data/asked", None),
        (the_bytes_differ, IntegrityError, Blame.INFRA, "asked pushed to", "0000"),
        (a_path_is_unsafe, ConfigError, Blame.CONFIG, "100%/asked", None),
        (a_quote_is_missing, ConfigError, Blame.CONFIG, "echo asked", "quote|unterminated"),
    ],
)
def test_each_failure_says_who_what_and_what_helps(
    tmp_path: Path,
    case: Case,
    kind: type[LabctlError],
    blame: Blame,
    *,
    names: str,
    received: str | None,
) -> None:
    with pytest.raises(LabctlError) as caught:
        case(tmp_path)
    error = caught.value
    assert type(error) is kind, error
    assert error.blame is blame
    assert re.search(names, error.message), error.message
    assert "\n" not in error.message
    if kind is not RemoteExit:  # what its output means is the caller's to say
        assert error.hint
    if received is not None:
        assert error.details is not None
        assert re.search(received, error.details), error.details
