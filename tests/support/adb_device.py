"""An Android device as small as an official adb server accepts, and official servers before it.

Commands run by this host's ``sh``, files are this host's; nothing is contained. It does what
``adbd`` does in the order in which it does it, and may be told to do worse.
"""

import contextlib
import os
import queue
import signal
import socket
import stat
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from labctl.adb import sync
from labctl.adb.shell_frames import FrameId, FrameReader, encode_frame
from labctl.retry import wait_until

HEAD = struct.Struct("<6I")
VERSION, MOST_BYTES, PIECE_BYTES = 0x01000001, 1 << 20, 1 << 18
FEATURES = "shell_v2,cmd,stat_v2,ls_v2,sendrecv_v2,fixed_push_mkdir"
CNXN, OPEN, OKAY, WRTE, CLSE = (
    int.from_bytes(word, "little") for word in (b"CNXN", b"OPEN", b"OKAY", b"WRTE", b"CLSE")
)


def start(step: Callable[..., object], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=step, args=arguments, daemon=True)
    thread.start()
    return thread


class Stream:
    """One service that the server opened."""

    def __init__(self, link: "Link", mine: int, theirs: int):
        self.link, self.mine, self.theirs = link, mine, theirs
        self.inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.may_write = threading.Semaphore(0)
        self.is_closed = False
        self.unread = b""

    def write(self, data: bytes) -> None:
        for start in range(0, len(data), PIECE_BYTES):
            self.link.send(WRTE, self.mine, self.theirs, data[start : start + PIECE_BYTES])
            self.may_write.acquire()
            if self.is_closed:
                raise BrokenPipeError

    def receive(self) -> bytes:
        data = self.inbox.get()
        if data is None:
            self.inbox.put(None)
            return b""
        self.link.send(OKAY, self.mine, self.theirs)
        return data

    def read(self, count: int) -> bytes:
        while len(self.unread) < count:
            if not (data := self.receive()):
                raise EOFError
            self.unread += data
        data, self.unread = self.unread[:count], self.unread[count:]
        return data

    def end(self) -> None:
        self.is_closed = True
        self.inbox.put(None)
        self.may_write.release()


class Link:
    """A server's connection to the device."""

    def __init__(self, device: "AdbDevice", sock: socket.socket):
        self.device, self.sock = device, sock
        self.sending = threading.Lock()
        self.streams: dict[int, Stream] = {}

    def send(self, command: int, first: int, second: int, data: bytes = b"") -> None:
        head = HEAD.pack(
            command, first, second, len(data), sum(data) & 0xFFFFFFFF, command ^ 0xFFFFFFFF
        )
        with self.sending, suppress(OSError):
            self.sock.sendall(head + data)

    def read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            if not (piece := self.sock.recv(count - len(data))):
                raise EOFError
            data += piece
        return bytes(data)

    def serve(self) -> None:
        number = 0
        with suppress(EOFError, OSError):
            while True:
                command, first, second, size, _, _ = HEAD.unpack(self.read(HEAD.size))
                data = self.read(size)
                if command == CNXN:
                    about = f"device::ro.product.model=Tiny;features={self.device.features}"
                    self.send(CNXN, VERSION, MOST_BYTES, about.encode())
                elif command == OPEN:
                    number += 1
                    stream = Stream(self, number, first)
                    self.streams[number] = stream
                    service = data.rstrip(b"\0")
                    start(self.run, stream, service)
                elif (known := self.streams.get(second)) is None:
                    pass
                elif command == OKAY:
                    known.may_write.release()
                elif command == WRTE:
                    known.inbox.put(data)
                elif command == CLSE:
                    self.streams.pop(second).end()
        for stream in [*self.streams.values()]:
            stream.end()

    def run(self, stream: Stream, service: bytes) -> None:
        name, _, rest = service.partition(b":")
        kind, *options = name.split(b",")
        serve: Callable[[Stream, bytes, list[bytes]], None] | None
        serve = self.device.services.get(kind.decode())
        with suppress(EOFError, OSError):
            if serve is None:
                self.send(CLSE, 0, stream.theirs)
                return
            serve(stream, rest, options)
        self.streams.pop(stream.mine, None)
        self.send(CLSE, stream.mine, stream.theirs)


class AdbDevice:
    """A device on a port of the loopback. ``boots`` are the restarts that were asked for."""

    def __init__(self, scratch: Path, features: str = FEATURES):
        self.features = features
        self.scratch = scratch
        self.boots: list[str] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.serial = f"127.0.0.1:{self.port}"
        self.links: list[Link] = []
        self.services = {
            "shell": self.shell,
            "tcp": self.tcp,
            "sync": self.sync,
            "reboot": self.reboot,
        }

    def accept(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self.listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.links.append(Link(self, sock))
                start(self.links[-1].serve)

    def drop(self) -> None:
        """End all connections, as an unplugged cable does."""
        for link in self.links:
            with suppress(OSError):
                link.sock.shutdown(socket.SHUT_RDWR)
            link.sock.close()
        self.links.clear()

    def close(self) -> None:
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.drop()

    def shell(self, stream: Stream, command: bytes, options: list[bytes]) -> None:
        stream.link.send(OKAY, stream.mine, stream.theirs)
        shell = subprocess.Popen(
            ["sh", "-c", command] if command else ["sh"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(self.scratch)},
            bufsize=0,
        )
        stdin, stdout, stderr = shell.stdin, shell.stdout, shell.stderr
        assert stdin
        assert stdout
        assert stderr
        sending = threading.Lock()

        def copy(source: int, identity: FrameId) -> None:
            with suppress(OSError):
                while data := os.read(source, 1 << 16):
                    with sending:
                        stream.write(encode_frame(identity, data))

        def take() -> None:
            frames = FrameReader()
            with suppress(OSError, ValueError):
                while data := stream.receive():
                    for frame in frames.feed(data):
                        if frame.id == FrameId.STDIN:
                            stdin.write(frame.data)
                        elif frame.id == FrameId.CLOSE_STDIN:
                            stdin.close()
            stdin.close()
            stdout.close()  # adbd closes its ends; the command gets SIGPIPE, and may live on
            stderr.close()

        start(take)
        pumps = [
            start(copy, stdout.fileno(), FrameId.STDOUT),
            start(copy, stderr.fileno(), FrameId.STDERR),
        ]
        for pump in pumps:
            pump.join()
        status = shell.wait()
        stream.write(encode_frame(FrameId.EXIT, bytes([128 - status if status < 0 else status])))

    def tcp(self, stream: Stream, port: bytes, options: list[bytes]) -> None:
        with contextlib.ExitStack() as held:
            try:
                sock = held.enter_context(socket.create_connection(("127.0.0.1", int(port))))
            except OSError:
                stream.link.send(CLSE, 0, stream.theirs)
                return
            stream.link.send(OKAY, stream.mine, stream.theirs)

            def take() -> None:
                with suppress(OSError):
                    while data := stream.receive():
                        sock.sendall(data)
                    sock.shutdown(socket.SHUT_RDWR)

            start(take)
            while data := sock.recv(1 << 16):
                stream.write(data)

    def reboot(self, stream: Stream, how: bytes, options: list[bytes]) -> None:
        stream.link.send(OKAY, stream.mine, stream.theirs)
        self.boots.append(how.decode())
        self.drop()

    def sync(self, stream: Stream, _rest: bytes, options: list[bytes]) -> None:
        stream.link.send(OKAY, stream.mine, stream.theirs)
        while True:
            identity, size = sync.HEAD.unpack(stream.read(sync.HEAD.size))
            if identity == sync.QUIT:
                return
            path = os.fsdecode(stream.read(size))
            try:
                self.answer(stream, identity, path)
            except OSError as error:
                text = (error.strerror or "").encode()
                stream.write(sync.HEAD.pack(sync.FAIL, len(text)) + text)
                return

    def answer(self, stream: Stream, identity: bytes, path: str) -> None:
        if identity in (sync.STAT_V2, sync.LSTAT_V2):
            stream.write(look(path, identity == sync.STAT_V2).encode(identity))
        elif identity == sync.STAT:
            seen = look(path, False)
            stream.write(
                sync.STAT_ANSWER.pack(sync.STAT, seen.mode, seen.size & 0xFFFFFFFF, seen.modified)
            )
        elif identity in (sync.LIST, sync.LIST_V2):
            self.list(stream, identity, path)
        elif identity == sync.SEND:
            self.take(stream, path.rpartition(",")[0])
        elif identity == sync.SEND_V2:
            stream.read(sync.SEND_V2_OPTIONS.size)
            self.take(stream, path)
        else:
            if identity == sync.RECEIVE_V2:
                stream.read(sync.RECEIVE_V2_OPTIONS.size)
            with Path(path).open("rb") as file:
                while data := file.read(sync.MAX_DATA_BYTES):
                    stream.write(sync.HEAD.pack(sync.DATA, len(data)) + data)
            stream.write(sync.HEAD.pack(sync.DONE, 0))

    def list(self, stream: Stream, identity: bytes, path: str) -> None:
        for entry in Path(path).iterdir():
            seen, raw = look(str(entry), False), os.fsencode(entry.name)
            if identity == sync.LIST_V2:
                stream.write(seen.encode_entry(raw))
            else:
                numbers = (seen.mode, seen.size & 0xFFFFFFFF, seen.modified, len(raw))
                stream.write(sync.ENTRY_HEAD.pack(sync.ENTRY, *numbers) + raw)
        if identity == sync.LIST_V2:
            last = sync.FileStat(*[0] * 11).encode_entry(b"")
            stream.write(sync.DONE + last[4:])
        else:
            stream.write(sync.ENTRY_HEAD.pack(sync.DONE, 0, 0, 0, 0))

    def take(self, stream: Stream, path: str) -> None:
        place = Path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            if stat.S_ISREG(place.lstat().st_mode) or place.is_symlink():
                place.unlink()
        with place.open("wb") as file:
            while True:
                identity, size = sync.HEAD.unpack(stream.read(sync.HEAD.size))
                if identity == sync.DONE:
                    break
                file.write(stream.read(size))
            os.utime(file.fileno(), (size, size))
        stream.write(sync.HEAD.pack(sync.OKAY, 0))


def look(path: str, follow: bool) -> sync.FileStat:
    try:
        of = Path(path).stat(follow_symlinks=follow)
    except OSError as error:
        return sync.FileStat(error.errno or 0, *[0] * 10)
    times = (int(of.st_atime), int(of.st_mtime), int(of.st_ctime))
    ids = (of.st_dev, of.st_ino, of.st_mode, of.st_nlink, of.st_uid, of.st_gid)
    return sync.FileStat(0, *ids, of.st_size, *times)


@contextmanager
def adb_device(scratch: Path, features: str = FEATURES) -> Iterator[AdbDevice]:
    """A device that answers within the context."""
    device = AdbDevice(scratch, features)
    accepting = start(device.accept)
    try:
        yield device
    finally:
        device.close()
        accepting.join()


#: adb of Debian, and the newer one that adbutils brings.
DEBIAN_ADB = "adb"


def newer_adb(folder: Path) -> str:
    """Return adbutils' own adb, as a program that may be started."""
    import adbutils  # type: ignore[import-untyped]

    program = folder / "adb"
    program.write_bytes((Path(adbutils.__file__).parent / "binaries/adb").read_bytes())
    program.chmod(0o755)
    return str(program)


@contextmanager
def official_server(home: Path, program: str = DEBIAN_ADB, port: int = 0) -> Iterator[int]:
    """An adb server on a port of its own, without this host's devices and keys."""
    if not port:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "ANDROID_ADB_SERVER_PORT": str(port),
        "ADB_LOCAL_TRANSPORT_MAX_PORT": "5553",
        "ADB_USB": "0",
        "ADB_MDNS": "0",
        "ADB_MDNS_OPENSCREEN": "0",
    }
    with (
        (home / "server.log").open("ab") as log,
        subprocess.Popen(
            [program, "nodaemon", "server"], env=environment, stdout=log, stderr=log
        ) as server,
    ):
        try:
            assert wait_until(lambda: answers(port), timeout=20, interval=0.05)
            yield port
        finally:
            server.send_signal(signal.SIGKILL)


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
