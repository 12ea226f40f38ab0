"""Many boards in one process, and one that is in trouble beside them."""

import asyncio
import resource
import socket
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from daemons import board, daemon
from raw_hdc import raw_host

from labctl.daemon.board import Limits
from labctl.daemon.hooks import Interference, Line, Storage, Wire
from labctl.daemon.limits import allow_boards
from labctl.errors import HostError
from labctl.hdc.daemon.daemon import Daemon
from labctl.hdc.messages import SessionHandShake, TransferConfig, TransferPayload
from labctl.hdc.wire import Command, PacketDecoder, encode_packet
from labctl.retry import wait_until

HELLO = encode_packet(0, Command.HANDSHAKE, SessionHandShake().encode())


class AsyncHost:
    """A hand-driven host on the daemons' own event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._reader, self._writer = reader, writer
        self._decoder = PacketDecoder()
        self._waiting: list[tuple[int, int, bytes]] = []

    @classmethod
    async def connect(cls, port: int) -> "AsyncHost":
        host = cls(*await asyncio.open_connection("127.0.0.1", port))
        host._writer.write(HELLO)
        await host.receive(), await host.receive()
        return host

    def send(self, channel: int, command: int, data: bytes = b"") -> None:
        self._writer.write(encode_packet(channel, command, data))

    async def receive(self) -> tuple[int, int, bytes]:
        while not self._waiting:
            piece = await self._reader.read(1 << 16)
            if not piece:
                raise EOFError
            self._waiting += self._decoder.feed(piece)
        return self._waiting.pop(0)

    async def run(self, command: str) -> bytes:
        self.send(1, Command.UNITY_EXECUTE, command.encode())
        said = b""
        while (packet := await self.receive())[1] != Command.CHANNEL_CLOSE:
            said += packet[2]
        return said

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_200_boards_answer_at_once_and_leave_nothing(tmp_path: Path) -> None:
    allow_boards(2 * 200)  # the hosts are here, too

    async def scene() -> list[bytes]:
        served = []
        for number in range(200):
            directory = tmp_path / str(number)
            directory.mkdir()
            served.append(Daemon(board(directory)))
        ports = [await one.start() for one in served]
        hosts = await asyncio.gather(*(AsyncHost.connect(port) for port in ports))
        said = await asyncio.gather(*(host.run("pwd; cat /dev/null") for host in hosts))
        assert threading.active_count() <= threads + 1
        for host in hosts:
            await host.close()
        for one in served:
            await one.stop()
        return said

    threads = threading.active_count()
    before = descriptors()
    said = asyncio.run(scene())
    assert said == [f"{tmp_path}/{number}\n".encode() for number in range(200)]
    assert descriptors() <= before
    assert threading.active_count() <= threads  # of earlier tests some may end meanwhile


class SlowDisk(Interference):
    """A disk on which no write ends before ``may_end`` is set."""

    def __init__(self) -> None:
        self.busy, self.may_end = threading.Event(), threading.Event()

    def wire(self, line: Line) -> Wire:
        disk = self

        class Slow(Storage):
            def write(self, descriptor: int, data: bytes, offset: int) -> int:  # type: ignore[override]
                disk.busy.set()
                assert disk.may_end.wait(60)
                return super().write(descriptor, data, offset)

        class SlowWire(Wire):
            _storage = Slow()

        return SlowWire(line)

    async def is_at_work(self) -> None:
        """Wait until something is being written."""
        assert await asyncio.to_thread(self.busy.wait, 60)


def test_a_slow_disk_slows_its_own_transfer_only(tmp_path: Path) -> None:
    disk = SlowDisk()

    async def scene() -> None:
        slow, quick = Daemon(board(tmp_path, interference=disk)), Daemon(board(tmp_path))
        sender = await AsyncHost.connect(await slow.start())
        other = await AsyncHost.connect(await quick.start())
        config = TransferConfig(file_size=2000, path="big", optional_name="big")
        sender.send(1, Command.WAKEUP_SLAVETASK)
        sender.send(1, Command.FILE_CHECK, config.encode())
        assert (await sender.receive())[1] == Command.FILE_BEGIN
        for offset in (0, 1000):
            area = TransferPayload(offset, 0, 1000, 1000).encode_area()
            sender.send(1, Command.FILE_DATA, area + bytes(1000))
        await disk.is_at_work()
        assert await other.run("echo quick") == b"quick\n"
        disk.may_end.set()
        assert (await sender.receive())[1] == Command.FILE_FINISH
        for host in (sender, other):
            await host.close()
        for one in (slow, quick):
            await one.stop()

    asyncio.run(asyncio.wait_for(scene(), 60))
    assert (tmp_path / "big").read_bytes() == bytes(2000)


def test_a_host_that_leaves_while_the_disk_is_busy_leaves_no_file_open(tmp_path: Path) -> None:
    disk = SlowDisk()

    async def scene() -> None:
        served = Daemon(board(tmp_path, interference=disk))
        sender = await AsyncHost.connect(await served.start())
        config = TransferConfig(file_size=2000, path="big", optional_name="big")
        sender.send(1, Command.WAKEUP_SLAVETASK)
        sender.send(1, Command.FILE_CHECK, config.encode())
        assert (await sender.receive())[1] == Command.FILE_BEGIN
        area = TransferPayload(0, 0, 1000, 1000).encode_area()
        sender.send(1, Command.FILE_DATA, area + bytes(1000))
        await disk.is_at_work()
        await sender.close()
        asyncio.get_running_loop().call_later(0.3, disk.may_end.set)  # the host has left by then
        await served.stop()

    before = descriptors()
    asyncio.run(asyncio.wait_for(scene(), 60))
    assert descriptors() <= before
    assert (tmp_path / "big").stat().st_size == 1000


def test_too_few_descriptors_are_said_before_boards_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: raised.append(limits))
    allow_boards(10)
    assert raised == []
    allow_boards(100)
    assert raised == [(128 + 100 * 24, 4096)]
    with pytest.raises(HostError, match="allows 4096"):
        allow_boards(200)


def test_a_host_that_was_accepted_while_the_power_went_is_not_served(tmp_path: Path) -> None:
    async def scene() -> bytes:
        served = Daemon(board(tmp_path))
        await served.start()
        served.cut()
        ours, theirs = socket.socketpair()
        with ours:
            ours.sendall(HELLO)
            await asyncio.get_running_loop().connect_accepted_socket(served.meet, theirs)
            await served.stop()
            with suppress(ConnectionResetError):
                return await asyncio.to_thread(ours.recv, 1)
            return b""

    assert asyncio.run(scene()) == b""


@pytest.mark.parametrize("rounds", range(6))
def test_a_host_that_comes_as_the_daemon_stops_is_turned_away(tmp_path: Path, rounds: int) -> None:
    async def scene() -> bytes:
        served = Daemon(board(tmp_path))
        with socket.create_connection(("127.0.0.1", await served.start())) as host:
            for _ in range(rounds):  # of the loop, from accepted to connected
                await asyncio.sleep(0)
            await served.stop()
            host.settimeout(30)
            with suppress(ConnectionResetError):
                return await asyncio.to_thread(host.recv, 1)
            return b""

    before = descriptors()
    assert asyncio.run(scene()) == b""
    assert descriptors() <= before


@pytest.mark.parametrize("rounds", range(6))
def test_who_comes_as_a_reverse_rule_ends_is_turned_away(tmp_path: Path, rounds: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    async def scene() -> bytes:
        served = Daemon(board(tmp_path))
        host = await AsyncHost.connect(await served.start())
        host.send(7, Command.FORWARD_INIT, b"tcp:%d tcp:1" % port)
        while (await host.receive())[1] != Command.FORWARD_CHECK:
            pass
        rule = next(iter(next(iter(served._connections))._tasks.values()))
        with socket.create_connection(("127.0.0.1", port)) as user:
            for _ in range(rounds):  # of the loop, from accepted to connected
                await asyncio.sleep(0)
            rule.stop()
            user.settimeout(30)
            try:
                return await asyncio.to_thread(user.recv, 1)
            except ConnectionResetError:
                return b""
            finally:
                await host.close()
                await served.stop()

    before = descriptors()
    assert asyncio.run(scene()) == b""
    assert descriptors() <= before


def test_hosts_without_end_are_turned_away(tmp_path: Path) -> None:
    with daemon(tmp_path, limits=Limits(hosts=3)) as address, ExitStack() as stack:
        hosts = [stack.enter_context(raw_host(address)) for _ in range(5)]
        for host in hosts[:3]:
            host.shake_hands()
        assert all(host.ended() for host in hosts[3:])
        hosts[0].socket.close()

        def has_room() -> bool:
            with raw_host(address) as peer, suppress(OSError, EOFError):
                return bool(peer.shake_hands())
            return False

        assert wait_until(has_room, timeout=30, interval=0.02)


def test_a_host_that_says_nothing_is_not_waited_for(tmp_path: Path) -> None:
    with (
        daemon(tmp_path, limits=Limits(silence_seconds=2)) as address,
        raw_host(address) as silent,
        raw_host(address) as half,
        raw_host(address) as peer,
    ):
        peer.shake_hands()
        half.socket.sendall(b"HW")
        assert silent.ended()
        assert half.ended()
        peer.send(1, Command.UNITY_EXECUTE, b"echo served")
        assert peer.until_close(1)[0] == (Command.ECHO_RAW, b"served\n")
