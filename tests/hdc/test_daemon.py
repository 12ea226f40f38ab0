"""What the daemon does on the wire, seen by a hand-driven host."""

import asyncio
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from daemons import daemon
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from raw_hdc import RawPeer, Recorded, raw_host, recorded

from labctl.daemon.board import Limits
from labctl.hdc.daemon.board import Board
from labctl.hdc.daemon.connection import Connection
from labctl.hdc.messages import (
    SMALL_CHUNK_BYTES,
    SessionHandShake,
    TransferConfig,
    TransferPayload,
    decode_tlv,
    encode_tlv,
)
from labctl.hdc.wire import Command

CLOSE = Command.CHANNEL_CLOSE


@pytest.fixture
def host(tmp_path: Path) -> Iterator[RawPeer]:
    with daemon(tmp_path) as address, raw_host(address) as peer:
        peer.shake_hands()
        yield peer


def channel_of(packets: list[Recorded], command: int, start: bytes) -> list[Recorded]:
    """The recorded conversation that the host began with this packet."""
    first = next(
        p for p in packets if p.sender == "host" and p.command == command and start in p.data
    )
    return [p for p in packets if p.channel == first.channel]


def test_the_handshake_is_the_recorded_one(tmp_path: Path) -> None:
    hello, answer, close, _ = recorded("session-3.2.0c-basic.jsonl")[:4]
    with daemon(tmp_path) as address, raw_host(address) as peer:
        peer.socket.sendall(hello.raw)
        assert peer.receive() == (0, Command.HANDSHAKE, answer.data)
        assert peer.receive() == (0, CLOSE, close.data)


@pytest.mark.parametrize("hello", [SessionHandShake(), SessionHandShake(buf=b"?", version="x")])
def test_a_host_that_tells_nothing_is_accepted(tmp_path: Path, hello: SessionHandShake) -> None:
    with daemon(tmp_path) as address, raw_host(address) as peer:
        peer.send(0, Command.HANDSHAKE, hello.encode())
        answer = SessionHandShake.decode(peer.receive()[2])
        assert answer.version == hello.version
        assert decode_tlv(answer.buf)["devname"] == "vm"


@pytest.mark.parametrize(
    "start",
    [b"echo hi; exit 3", b"echo out; echo err 1>&2; false", b"printf ", b"seq 1 3000"],
)
def test_recorded_commands_are_answered_as_recorded(host: RawPeer, start: bytes) -> None:
    packets = channel_of(recorded("session-3.2.0c-basic.jsonl"), Command.UNITY_EXECUTE, start)
    host.socket.sendall(packets[0].raw)
    said = host.until_close(packets[0].channel)
    expected = [(p.command, p.data) for p in packets if p.sender == "board"]
    joined = [b"".join(d for c, d in run if c == Command.ECHO_RAW) for run in (said, expected)]
    assert joined[0] == joined[1]
    assert said[-1] == expected[-1] == (CLOSE, b"\x01")


def _here(packet: Recorded, directory: Path) -> bytes:
    """The data of a recorded packet, moved from the recording's directory to this test's."""
    old, new = "/data/local/tmp", str(directory)
    if packet.command == Command.FILE_CHECK:
        config = TransferConfig.decode(packet.data)
        return TransferConfig(**{**vars(config), "path": config.path.replace(old, new)}).encode()
    return packet.data.replace(old.encode(), new.encode())


def _comparable(data: bytes) -> bytes:
    return re.sub(rb"time:\d+ms rate:[\d.]+kB/s", b"time rate", data)


@pytest.mark.parametrize(
    ("command", "start"),
    [
        (Command.FILE_CHECK, b"/data/local/tmp/a.txt"),
        (Command.FILE_CHECK, b"/data/local/tmp/empty"),
        (Command.FILE_CHECK, b"no/such/a.txt"),
        (Command.FILE_INIT, b"/data/local/tmp/a.txt"),
        (Command.FILE_INIT, b"/data/local/tmp/missing"),
        (Command.UNITY_REBOOT, b""),
    ],
)
def test_recorded_transfers_are_answered_packet_by_packet(
    host: RawPeer, tmp_path: Path, command: int, start: bytes
) -> None:
    (tmp_path / "a.txt").write_text("hello\n")
    conversation = channel_of(recorded("session-3.2.0c-basic.jsonl"), command, start)
    for packet in conversation:
        if packet.sender == "host":
            host.send(packet.channel, packet.command, _here(packet, tmp_path))
        else:
            channel, answered, data = host.receive()
            assert (channel, answered) == (packet.channel, packet.command)
            assert _comparable(data) == _comparable(_here(packet, tmp_path))


@pytest.mark.parametrize(
    ("name", "command", "start"),
    [
        ("extra", Command.FILE_CHECK, b"/dev/full"),
        ("more", Command.FILE_CHECK, b"com.example.app"),
        ("more", Command.UNITY_EXECUTE_EX, b"com.example.app"),
        ("more", Command.UNITY_REMOUNT, b""),
    ],
)
def test_refusals_are_the_recorded_ones(
    host: RawPeer, name: str, command: int, start: bytes
) -> None:
    conversation = channel_of(recorded(f"session-3.2.0c-{name}.jsonl"), command, start)
    for packet in conversation:
        if packet.sender == "host":
            host.socket.sendall(packet.raw)
        else:
            assert host.receive() == (packet.channel, packet.command, packet.data)


def test_without_a_wakeup_a_file_is_never_answered(host: RawPeer, tmp_path: Path) -> None:
    config = TransferConfig(file_size=1, path=str(tmp_path / "x"), optional_name="x").encode()
    host.send(9, Command.FILE_CHECK, config)
    assert host.is_silent()
    assert not (tmp_path / "x").exists()
    host.send(9, Command.WAKEUP_SLAVETASK)
    host.send(9, Command.FILE_CHECK, config)
    assert host.receive()[:2] == (9, Command.FILE_BEGIN)


def test_unknown_channels_and_commands_are_dropped_and_closes_counted_down(host: RawPeer) -> None:
    host.send(5, Command.FILE_DATA, b"\0" * 64)
    host.send(5, 4242, b"what")
    host.send(5, CLOSE, b"\x00")
    assert host.is_silent(0.1)
    host.send(6, CLOSE, b"\x03")
    assert host.receive() == (6, CLOSE, b"\x02")


@pytest.mark.parametrize("stream", [b"GET / HTTP/1.0\r\n\r\n", b"HW\0\0\x09" + bytes(20)])
def test_a_peer_that_speaks_something_else_is_dropped(tmp_path: Path, stream: bytes) -> None:
    with daemon(tmp_path) as address:
        with raw_host(address) as peer:
            peer.socket.sendall(stream)
            assert peer.ended()
        with raw_host(address) as peer:  # and others are still served
            assert peer.shake_hands().banner == "OHOS HDC"


def test_commands_before_the_handshake_are_not_obeyed(tmp_path: Path) -> None:
    with daemon(tmp_path) as address, raw_host(address) as peer:
        peer.send(1, Command.UNITY_EXECUTE, b"touch here")
        assert peer.ended()
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize(
    ("command", "output"),
    [
        (b'"echo a"', b"a\n"),
        (b'""echo a""', b"a: not found"),
        (b"echo 'a  b' \"c\"", b"a  b c\n"),
        (b"", b""),
        (b"printf 'a\\000b'", b"a\0b"),
    ],
)
def test_one_outer_pair_of_quotes_is_stripped(host: RawPeer, command: bytes, output: bytes) -> None:
    host.send(3, Command.UNITY_EXECUTE, command)
    said = b"".join(data for kind, data in host.until_close(3) if kind == Command.ECHO_RAW)
    assert said == output or (b"not found" in output and b"not found" in said)


def test_sh_leads_a_session_with_a_pipe_for_input(host: RawPeer) -> None:
    host.send(3, Command.UNITY_EXECUTE, b"ps -o sid= -p $$; echo $$; readlink /proc/self/fd/0")
    said = b"".join(d for c, d in host.until_close(3) if c == Command.ECHO_RAW).split()
    assert said[0] == said[1]
    assert said[2].startswith(b"pipe:")


def test_a_close_stops_the_shell_and_not_its_children(host: RawPeer, tmp_path: Path) -> None:
    done = tmp_path / "done"
    host.send(
        3, Command.UNITY_EXECUTE, b"trap 'touch done; exit' TERM; echo up; read never; touch never"
    )
    assert host.receive() == (3, Command.ECHO_RAW, b"up\n")
    host.send(3, CLOSE, b"\x01")
    assert host.receive() == (3, CLOSE, b"\x00")
    host.send(4, Command.UNITY_EXECUTE, b"while ! [ -e done ]; do sleep 0.01; done; ls")
    assert host.until_close(4)[0] == (Command.ECHO_RAW, b"done\n")
    assert done.exists()


@pytest.mark.parametrize("counter", [b"\x00", b"\x01"])
def test_a_close_on_channel_0_ends_every_task_of_the_session(
    host: RawPeer, tmp_path: Path, counter: bytes
) -> None:
    """As hdcd does, whose tasks then close their channels without another word."""
    for number in (3, 4):
        command = f"trap 'touch ended-{number}; exit' TERM; echo up; read never; echo never"
        host.send(number, Command.UNITY_EXECUTE, command.encode())
        assert host.receive() == (number, Command.ECHO_RAW, b"up\n")
    host.send(5, Command.WAKEUP_SLAVETASK)
    host.send(0, CLOSE, counter)
    assert {host.receive() for _ in range(2)} == {(3, CLOSE, b"\x01"), (4, CLOSE, b"\x01")}
    if counter == b"\x01":
        assert host.receive() == (0, CLOSE, b"\x00")
    # The session goes on; what was woken before is forgotten.
    host.send(5, Command.FILE_CHECK, TransferConfig(path=str(tmp_path / "x")).encode())
    waiting = b"until [ -e ended-3 ] && [ -e ended-4 ]; do sleep 0.01; done; echo both"
    host.send(6, Command.UNITY_EXECUTE, waiting)
    assert host.until_close(6)[0] == (Command.ECHO_RAW, b"both\n")
    assert not (tmp_path / "x").exists()


def test_small_chunks_for_a_host_without_large_buffers(host: RawPeer, tmp_path: Path) -> None:
    content = os.urandom(SMALL_CHUNK_BYTES + 10)
    (tmp_path / "f").write_bytes(content)
    host.send(3, Command.FILE_INIT, f"{tmp_path}/f ./f".encode())
    assert host.receive() == (3, Command.WAKEUP_SLAVETASK, b"")
    config = TransferConfig.decode(host.receive()[2])
    assert (config.file_size, config.path) == (len(content), "./f")
    host.send(3, Command.FILE_BEGIN)
    pieces = [TransferPayload.decode_packet(memoryview(host.receive()[2])) for _ in range(2)]
    assert [len(body) for _, body in pieces] == [SMALL_CHUNK_BYTES, 10]
    assert [payload.offset for payload, _ in pieces] == [0, SMALL_CHUNK_BYTES]
    assert b"".join(body for _, body in pieces) == content


@pytest.mark.parametrize(
    ("path", "lands"), [("", "source"), ("sub", "sub/source"), ("sub/", "sub/source")]
)
def test_where_a_file_lands(host: RawPeer, tmp_path: Path, path: str, lands: str) -> None:
    (tmp_path / "sub").mkdir()
    config = TransferConfig(file_size=0, path=f"{tmp_path}/{path}", optional_name="source")
    host.send(3, Command.WAKEUP_SLAVETASK)
    host.send(3, Command.FILE_CHECK, config.encode())
    assert host.receive()[1] == Command.FILE_BEGIN
    assert (tmp_path / lands).stat().st_size == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (b"", b"Transfer path split failed"),
        (b"-q /x ./x", b"Unknown file option: -q"),
        (b"-b com.x /x ./x", b"[E005101] Invalid bundle name: com.x"),
        (b'-cwd / "/unclosed ./x', b"no such file or directory, path:/unclosed ./x"),
        (b"/proc/sys/nothing ./x", b"no such file or directory"),
    ],
)
def test_what_cannot_be_received_is_said(host: RawPeer, arguments: bytes, says: bytes) -> None:
    host.send(3, Command.FILE_INIT, arguments)
    assert host.receive() == (3, Command.WAKEUP_SLAVETASK, b"")
    (echo, text), (close, _) = host.until_close(3)
    assert (echo, text[0], close) == (Command.ECHO, 0, CLOSE)
    assert says in text


@pytest.mark.parametrize(
    "command",
    [
        Command.FORWARD_INIT,
        Command.UNITY_EXECUTE_EX,
        Command.UNITY_RUNMODE,
    ],
)
def test_what_a_virtual_board_cannot_do_fails_and_says_so(host: RawPeer, command: int) -> None:
    host.send(3, command)
    *_, (echo, text), (close, _) = host.until_close(3)
    assert (echo, text[0], close) == (Command.ECHO, 0, CLOSE)


def test_heartbeats_go_only_to_hosts_that_want_them(tmp_path: Path) -> None:
    with daemon(tmp_path, limits=Limits(heartbeat_seconds=0.05)) as address:
        with raw_host(address) as peer:
            buf = encode_tlv({"supportfeatures": "Ver: 3.2.0c,heartbeat"})
            peer.send(0, Command.HANDSHAKE, SessionHandShake(buf=buf).encode())
            peer.receive(), peer.receive()
            assert peer.receive() == (0, Command.HEARTBEAT, bytes.fromhex("08001200"))
            assert peer.receive() == (0, Command.HEARTBEAT, bytes.fromhex("08011200"))
        with raw_host(address) as peer:
            peer.shake_hands()
            assert peer.is_silent()


def test_an_overwhelmed_host_slows_the_command_down(host: RawPeer) -> None:
    host.send(3, Command.UNITY_EXECUTE, b"head -c 30000000 /dev/zero; echo; echo end")
    host.send(4, Command.UNITY_EXECUTE, b"echo other")  # answered although 3 is blocked
    sizes = {3: 0, 4: 0}
    closed = set()
    while closed != {3, 4}:
        channel, command, data = host.receive()
        if command == CLOSE:
            closed.add(channel)
        else:
            sizes[channel] += len(data)
            assert len(data) <= 65_536
    assert sizes == {3: 30_000_005, 4: 6}


def test_a_transfer_shares_the_loop_with_the_other_boards(tmp_path: Path) -> None:
    async def transfer() -> None:
        others: list[str] = []
        connection = Connection(Board("vm", tmp_path), bool, set(), set())
        connection.resume_writing()  # a host that takes everything at once
        asyncio.get_running_loop().call_soon(others.append, "served")
        await connection.drained()
        assert others == ["served"]

    asyncio.run(transfer())


@pytest.mark.parametrize("command", [Command.FILE_INIT, Command.FILE_CHECK])
def test_a_named_pipe_stops_nobody(host: RawPeer, tmp_path: Path, command: int) -> None:
    os.mkfifo(tmp_path / "pipe")
    if command == Command.FILE_CHECK:
        host.send(3, Command.WAKEUP_SLAVETASK)
        config = TransferConfig(file_size=1, path=f"{tmp_path}/pipe", optional_name="x")
        host.send(3, command, config.encode())
        (echo, text), (close, _) = host.until_close(3)
        assert (echo, text[0], close) == (Command.ECHO, 0, CLOSE)
    else:
        host.send(3, command, f"{tmp_path}/pipe ./x".encode())
        assert host.receive()[1] == Command.WAKEUP_SLAVETASK  # and then it waits for a writer
    host.send(4, Command.UNITY_EXECUTE, b"echo alive")
    assert host.until_close(4)[0] == (Command.ECHO_RAW, b"alive\n")


def test_only_bytes_that_came_count(host: RawPeer, tmp_path: Path) -> None:
    host.send(3, Command.WAKEUP_SLAVETASK)
    config = TransferConfig(file_size=1000, path=f"{tmp_path}/x", optional_name="x")
    host.send(3, Command.FILE_CHECK, config.encode())
    assert host.receive()[1] == Command.FILE_BEGIN
    host.send(3, Command.FILE_DATA, TransferPayload(0, 0, 3, 1000).encode_area() + b"abc")
    assert host.is_silent()  # no FILE_FINISH


def test_a_restart_of_hdcd_ends_the_connection(host: RawPeer) -> None:
    host.send(3, Command.UNITY_ROOTRUN)
    assert host.receive() == (3, CLOSE, b"\x01")
    assert host.ended()


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(
            st.integers(1, 3),
            # all but those that run what they carry
            st.sampled_from([c for c in Command if c not in (1001, 1005)]).map(int)
            | st.integers(0, 6000).filter(lambda c: c not in (1001, 1005)),
            st.binary(max_size=100)
            | st.builds(
                TransferConfig,
                file_size=st.integers(0, 2**64 - 1),
                path=st.sampled_from(["x", "/dev/null", "/nope/x", "a\0b", ""]),
                optional_name=st.sampled_from(["", "x", "d/x"]),
            ).map(lambda config: config.encode())
            | st.builds(
                TransferPayload, offset=st.integers(0, 2**64 - 1), compress_size=st.just(0)
            ).map(lambda payload: payload.encode_area()),
        ),
        max_size=12,
    )
)
def test_no_packet_harms_the_daemon(
    shared_daemon: str, packets: list[tuple[int, int, bytes]]
) -> None:
    with raw_host(shared_daemon) as peer, suppress(ConnectionError):
        peer.shake_hands()
        for packet in packets:
            peer.send(*packet)
    with raw_host(shared_daemon) as peer:
        peer.shake_hands()
        peer.send(1, Command.UNITY_EXECUTE, b"echo alive")
        assert peer.until_close(1)[0] == (Command.ECHO_RAW, b"alive\n")


@pytest.fixture
def shared_daemon(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[str]:
    with daemon(tmp_path) as address:
        yield address
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
