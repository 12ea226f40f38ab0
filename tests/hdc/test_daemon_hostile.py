"""Hosts that send anything, take nothing or leave: the daemon lives on, and stays small."""

import gc
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from daemons import daemon
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from raw_hdc import RawPeer, raw_host

from labctl.daemon.board import Limits
from labctl.hdc.messages import SessionHandShake, TransferConfig, TransferPayload
from labctl.hdc.wire import Command, encode_packet
from labctl.retry import wait_until

HELLO = encode_packet(0, Command.HANDSHAKE, SessionHandShake().encode())


@pytest.fixture
def address(
    request: pytest.FixtureRequest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> Iterator[str]:
    with daemon(tmp_path, limits=getattr(request, "param", Limits())) as served:
        yield served
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def still_serves(address: str) -> bool:
    with raw_host(address) as peer:
        peer.shake_hands()
        peer.send(1, Command.UNITY_EXECUTE, b"echo alive")
        return peer.until_close(1)[0] == (Command.ECHO_RAW, b"alive\n")


# A head, a head with a body, or no head at all.
BYTES = st.lists(
    st.binary(max_size=60)
    | st.just(HELLO)
    | st.builds(
        encode_packet,
        st.integers(0, 3) | st.integers(0, 2**32 - 1),
        # all but those that run what they carry
        st.sampled_from([c for c in Command if c not in (1001, 1005, 2000, 2001)]).map(int),
        st.binary(max_size=80),
    )
    | st.builds(
        lambda protect, data: b"HW\0\0\1" + protect.to_bytes(2, "big") + data.to_bytes(4, "big"),
        st.integers(0, 2**16 - 1),
        st.integers(0, 2**32 - 1),
    ),
    max_size=8,
).map(b"".join)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@example(stream=HELLO + b"HW\0\0\1\0\x08" + b"\xff" * 4)
@example(stream=HELLO[:-1])
@given(stream=BYTES)
def test_any_bytes_are_answered_or_dropped(address: str, stream: bytes) -> None:
    with raw_host(address) as peer, suppress(ConnectionError):
        peer.socket.sendall(stream)
    assert still_serves(address)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def children() -> set[str]:
    found = set()
    for task in Path("/proc/self/task").iterdir():
        found |= set((task / "children").read_text().split())
    return found


def begin_shell(peer: RawPeer, tmp_path: Path) -> None:
    peer.send(2, Command.UNITY_EXECUTE, b"while :; do echo flood; done")
    peer.receive()


def begin_terminal(peer: RawPeer, tmp_path: Path) -> None:
    peer.send(2, Command.SHELL_INIT)
    peer.receive()


def begin_send(peer: RawPeer, tmp_path: Path) -> None:
    peer.send(2, Command.WAKEUP_SLAVETASK)
    config = TransferConfig(file_size=1 << 40, path="x", optional_name="x")
    peer.send(2, Command.FILE_CHECK, config.encode())
    peer.receive()
    area = TransferPayload(0, 0, 100_000, 100_000).encode_area()
    peer.send(2, Command.FILE_DATA, area + bytes(100_000))


def begin_receive(peer: RawPeer, tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate(1 << 34)
    peer.send(2, Command.FILE_INIT, b"big x")
    peer.receive(), peer.receive()
    peer.send(2, Command.FILE_BEGIN, b"\5")
    peer.receive()


def begin_reverse(peer: RawPeer, tmp_path: Path) -> None:
    peer.send(2, Command.FORWARD_INIT, f"localfilesystem:{tmp_path}/s tcp:1".encode())
    peer.receive()
    number = peer.receive()[2][:4]
    peer.send(2, Command.FORWARD_CHECK_RESULT, number + b"\0")
    peer.receive(), peer.receive()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(f"{tmp_path}/s")
        peer.receive()


@pytest.mark.parametrize("kind", ["leaves", "resets"])
@pytest.mark.parametrize(
    "begin", [begin_shell, begin_terminal, begin_send, begin_receive, begin_reverse]
)
def test_a_host_that_is_gone_leaves_nothing_behind(
    address: str, tmp_path: Path, begin: Callable[[RawPeer, Path], None], kind: str
) -> None:
    before = descriptors(), children()
    with raw_host(address) as peer:
        peer.shake_hands()
        begin(peer, tmp_path)
        if kind == "resets":
            linger = b"\1\0\0\0\0\0\0\0"
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    assert wait_until(lambda: (descriptors(), children()) == before, timeout=30, interval=0.02)


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("address", [Limits(flood_bytes=3 << 20)], indirect=True)
def test_a_host_that_asks_and_takes_nothing_is_not_listened_to(address: str) -> None:
    before = resident_bytes()
    text = b"\1\0\0\0\0\x10\0\0" + b"x" * 4096  # the answer repeats it
    ask = encode_packet(9, Command.UNITY_EXECUTE_EX, text)
    with raw_host(address) as peer:
        peer.shake_hands()
        peer.socket.settimeout(1)
        sent, until = 0, time.monotonic() + 20
        with suppress(TimeoutError):
            while time.monotonic() < until:
                sent += peer.socket.send(ask)
        assert time.monotonic() < until  # it was not taken for ever
        assert still_serves(address)
        assert resident_bytes() - before < 100 << 20


def test_channels_woken_without_end_drop_the_host(address: str) -> None:
    with raw_host(address) as peer:
        peer.shake_hands()
        with suppress(ConnectionError):
            for channel in range(1, 3000):
                peer.send(channel, Command.WAKEUP_SLAVETASK)
        assert peer.ended()
    assert still_serves(address)


def test_hosts_that_have_left_take_no_memory(address: str) -> None:
    assert still_serves(address)
    before = resident_bytes()
    gc.disable()  # it comes when it likes
    try:
        for _ in range(300):
            with raw_host(address) as peer:
                peer.shake_hands()
        assert still_serves(address)
        assert resident_bytes() - before < 100 << 20
    finally:
        gc.enable()
