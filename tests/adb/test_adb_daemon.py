"""The phone's daemon, judged by two official clients and servers."""

import os
import random
import socket
import stat
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from official_adb import RELEASES, OfficialAdb, official_adb, phone_served

from labctl.adb.daemon.phone import Phone
from labctl.adb.packets import MAX_DATA_BYTES, VERSION, Command, Head, encode_packet
from labctl.retry import wait_until


@pytest.fixture(params=RELEASES)
def adb(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OfficialAdb]:
    folder = tmp_path / "phone"
    folder.mkdir()
    with phone_served(Phone("p", folder)) as port, official_adb(request.param, tmp_path) as adb:
        adb.connect(port)
        yield adb


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "phone"


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def test_a_command_has_its_status_and_its_streams_apart(adb: OfficialAdb) -> None:
    done = adb.run("shell", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out\n", b"err\n")
    assert adb.run("shell", "kill -9 $$").returncode == 137


def test_standard_input_reaches_a_command_and_ends(adb: OfficialAdb) -> None:
    sent = noise(300_000)
    assert adb.ok("shell", "cat", typed=sent) == sent
    assert adb.ok("exec-out", "echo out; echo err >&2") == b"out\nerr\n"


def test_an_old_shell_has_no_status(adb: OfficialAdb) -> None:
    done = adb.run("shell", "-x", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout) == (0, b"out\nerr\n")


def test_a_terminal_is_one(adb: OfficialAdb) -> None:
    assert b"/dev/pts/" in adb.ok("shell", "-tt", "tty; echo $TERM")
    assert b"not a tty" in adb.run("shell", "-T", "tty").stdout
    assert adb.run("shell", "-tt", "exit 5").returncode == 5
    assert b"7" in adb.ok("shell", "-tt", typed=b"echo $((3+4))\nexit\n")


def test_much_output_arrives_whole(adb: OfficialAdb) -> None:
    assert adb.ok("exec-out", "head -c 5000000 /dev/zero") == bytes(5_000_000)


def test_a_command_survives_its_client(adb: OfficialAdb, folder: Path) -> None:
    client = adb.start("shell", "touch begun; while ! [ -e go ]; do sleep 0.05; done; touch ended")
    assert wait_until((folder / "begun").exists, timeout=10, interval=0.02)
    client.kill()
    client.communicate(timeout=10)
    (folder / "go").touch()
    assert wait_until((folder / "ended").exists, timeout=10, interval=0.02)


def test_files_go_and_come_back(adb: OfficialAdb, folder: Path, tmp_path: Path) -> None:
    sent, back = tmp_path / "sent", tmp_path / "back"
    for size in (3 << 20, 1, 65536, 0):
        sent.write_bytes(noise(size))
        sent.chmod(0o600)
        os.utime(sent, (1e9, 1e9))
        there = folder / f"new/{size} ünï 'q' $x,0644"
        adb.ok("push", str(sent), str(there))
        assert there.read_bytes() == noise(size)
        assert (there.stat().st_mtime, there.stat().st_mode & 0o777) == (1e9, 0o666)
        adb.ok("pull", str(there), str(back))
        assert back.read_bytes() == noise(size)


def test_trees_go_and_come_back(adb: OfficialAdb, folder: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in ("a", "deep/er/b", "deep/.c", "deep/-d e"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(noise(len(name) * 1000))
    adb.ok("push", str(tree), str(folder))
    adb.ok("pull", str(folder / "tree"), str(tmp_path / "again"))
    names = {str(path.relative_to(tree)): path for path in tree.rglob("*") if path.is_file()}
    for name, path in names.items():
        assert (folder / "tree" / name).read_bytes() == path.read_bytes()
        assert (tmp_path / "again" / name).read_bytes() == path.read_bytes()
    listed = adb.ok("ls", str(folder / "tree/deep")).decode()
    assert {line.split(" ", 3)[3] for line in listed.splitlines()} == {
        ".",
        "..",
        "er",
        ".c",
        "-d e",
    }


def test_refusals_of_files_are_said(adb: OfficialAdb, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(noise(1 << 20))
    done = adb.run("pull", str(folder / "missing"), str(tmp_path / "x"))
    assert done.returncode == 1
    assert b"No such file" in done.stdout + done.stderr
    (folder / "file").touch()
    done = adb.run("push", str(tmp_path / "f"), str(folder / "file/below"))
    assert done.returncode == 1
    assert b"Not a directory" in done.stdout + done.stderr


def test_a_push_never_replaces_what_is_no_file(
    adb: OfficialAdb, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "f").write_bytes(noise(1 << 20))
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as sock, folder_of(folder) as short:
        sock.bind(f"{short}/socket")
        names = ["pipe", "socket"]
        with suppress(PermissionError):  # without the right to make devices
            os.mknod(folder / "full", 0o666 | stat.S_IFCHR, os.makedev(1, 7))
            names.append("full")
        (tmp_path / "link").symlink_to("anywhere")
        before = {name: (folder / name).lstat()[:3] for name in names}
        for name in names:
            assert adb.run("push", str(tmp_path / "f"), str(folder / name)).returncode == 1
            assert adb.run("push", str(tmp_path / "link"), str(folder / name)).returncode == 1
        assert {name: (folder / name).lstat()[:3] for name in names} == before


@contextmanager
def folder_of(path: Path) -> Iterator[str]:
    """A folder under a name short enough for a socket's address."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def test_ports_are_forwarded(adb: OfficialAdb) -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = int(adb.ok("forward", "tcp:0", f"tcp:{there.getsockname()[1]}"))
        there.settimeout(10)
        with socket.create_connection(("127.0.0.1", port), 10) as near, there.accept()[0] as far:
            exchange(near, far)


def test_ports_are_reversed(adb: OfficialAdb) -> None:
    with socket.create_server(("127.0.0.1", 0)) as host:
        host.settimeout(10)
        name = f"tcp:{host.getsockname()[1]}"
        port = int(adb.ok("reverse", "tcp:0", name))
        assert f"tcp:{port} {name}" in adb.ok("reverse", "--list").decode()
        assert adb.run("reverse", "--no-rebind", f"tcp:{port}", "tcp:1").returncode == 1
        with socket.create_connection(("127.0.0.1", port), 10) as near, host.accept()[0] as far:
            exchange(near, far)
        adb.ok("reverse", "--remove", f"tcp:{port}")
        assert adb.run("reverse", "--remove", f"tcp:{port}").returncode == 1
    with socket.socket() as sock:
        assert sock.connect_ex(("127.0.0.1", port)) != 0


def exchange(near: socket.socket, far: socket.socket) -> None:
    """Send 3 MB each way at the same time, then end."""
    near.settimeout(20)
    far.settimeout(20)
    up, down = noise(3_000_000), noise(3_000_001)
    senders = [
        threading.Thread(target=near.sendall, args=(up,)),
        threading.Thread(target=far.sendall, args=(down,)),
    ]
    for sender in senders:
        sender.start()
    assert read(far, len(up)) == up
    assert read(near, len(down)) == down
    for sender in senders:
        sender.join()
    near.close()
    assert far.recv(1) == b""


def read(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count and (piece := sock.recv(count - len(data))):
        data += piece
    return bytes(data)


def test_a_user_build_answers(adb: OfficialAdb, tmp_path: Path) -> None:
    assert b"cannot run as root" in adb.run("root").stdout
    (tmp_path / "a.apk").write_bytes(noise(5000))
    assert adb.run("install", str(tmp_path / "a.apk")).returncode != 0


@pytest.mark.parametrize("release", RELEASES)
def test_a_phone_reboots_and_is_found_again(release: str, tmp_path: Path) -> None:
    asked: list[str] = []
    phone = Phone("p", tmp_path, on_reboot=asked.append)
    with official_adb(release, tmp_path) as adb:
        with phone_served(phone) as port:
            adb.connect(port)
            for how in ("", "bootloader"):
                adb.ok("reboot", *filter(None, [how]))
            assert wait_until(lambda: asked == ["", "bootloader"], timeout=10, interval=0.02)
        assert wait_until(lambda: adb.state() != "device", timeout=10, interval=0.02)
        with phone_served(phone, port):
            adb.connect(port)
            assert adb.ok("shell", "echo again") == b"again\n"


def test_a_server_killed_in_a_push_leaves_no_half_file(
    adb: OfficialAdb, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "fifo-fed").write_bytes(noise(64 << 20))
    there = folder / "big"
    client = adb.start("push", str(tmp_path / "fifo-fed"), str(there))
    assert wait_until(
        lambda: there.exists() and there.stat().st_size > 0, timeout=20, interval=0.001
    )
    adb.server.kill()
    adb.server.wait(10)
    client.kill()
    client.communicate(timeout=10)
    assert wait_until(
        lambda: not there.exists() or there.stat().st_size == 64 << 20, timeout=10, interval=0.01
    )
    assert not there.exists()


# Without an official peer: hosts that no official program would be


class Host:
    """A host that sends what it likes."""

    def __init__(self, port: int):
        self.sock = socket.create_connection(("127.0.0.1", port), 10)

    def send(self, command: int, first: int, second: int, data: bytes = b"") -> None:
        self.sock.sendall(encode_packet(command, first, second, data, checked=False))

    def receive(self) -> tuple[Head, bytes]:
        head = Head.decode(read(self.sock, 24))
        return head, read(self.sock, head.size)

    def is_cut_off(self) -> bool:
        """Return True once the phone ends the connection; a time-out raises."""
        with suppress(ConnectionError):
            while self.sock.recv(1 << 16):
                pass
        return True

    def greet(self) -> None:
        self.send(Command.CONNECT, VERSION, MAX_DATA_BYTES, b"host::features=shell_v2")
        head, banner = self.receive()
        assert head.command == Command.CONNECT
        assert banner.startswith(b"device::ro.product.name=")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with phone_served(Phone("p", tmp_path)) as port:
        host = Host(port)
        yield host
        host.sock.close()


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\nHost: phone\r\n\r\n",
        struct.pack(
            "<6I", Command.CONNECT, VERSION, 1, 0xFFFFFFFF, 0, Command.CONNECT ^ 0xFFFFFFFF
        ),
        encode_packet(Command.OPEN, 1, 0, b"shell:id\0", checked=False),
    ],
    ids=["no packet", "huge", "no greeting"],
)
def test_a_stranger_is_cut_off(host: Host, raw: bytes) -> None:
    host.sock.sendall(raw)
    assert host.is_cut_off()


def test_a_flood_of_streams_is_refused(host: Host) -> None:
    host.greet()
    for number in range(1, 400):
        host.send(Command.OPEN, number, 0, b"exec:sleep 100\0")
    answers = [host.receive()[0].command for _ in range(399)]
    assert answers.count(Command.OKAY) == 128
    assert answers.count(Command.CLOSE) == 271


def test_a_host_that_does_not_wait_is_cut_off(host: Host) -> None:
    host.greet()
    host.send(Command.OPEN, 1, 0, b"shell,v2,raw:sleep 100\0")
    assert host.receive()[0][:3] == (Command.OKAY, 1, 1)
    with suppress(ConnectionError):
        for _ in range(100):
            host.send(Command.WRITE, 1, 1, b"\0\xff\xff\0\0" + bytes(0xFFFF))
    assert host.is_cut_off()


@pytest.mark.parametrize(
    "request_",
    [
        b"SEND" + struct.pack("<I", 1 << 30),
        b"XYZW" + struct.pack("<I", 3) + b"abc",
        b"SEND" + struct.pack("<I", 7) + b"f,33188" + b"DATA" + struct.pack("<I", 1 << 31),
        b"RECV" + struct.pack("<I", 3) + b"a\0b",
    ],
)
def test_an_invalid_request_for_files_fails(host: Host, tmp_path: Path, request_: bytes) -> None:
    host.greet()
    host.send(Command.OPEN, 1, 0, b"sync:\0")
    assert host.receive()[0].command == Command.OKAY
    host.send(Command.WRITE, 1, 1, request_)
    assert host.receive()[0].command == Command.OKAY
    assert host.receive()[1][:4] == b"FAIL"
    assert not (tmp_path / "f").exists()


def test_a_service_that_a_phone_lacks_is_refused(host: Host) -> None:
    host.greet()
    for number, name in enumerate((b"framebuffer:", b"tcp:0", b"jdwp:1", b"\xff\0", b""), 1):
        host.send(Command.OPEN, number, 0, name + b"\0")
        assert host.receive()[0][:3] == (Command.CLOSE, 0, number)
