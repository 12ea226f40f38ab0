"""The official adb programs, each with a server of its own, against a phone made of software."""

import asyncio
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from labctl.adb.daemon.daemon import Daemon
from labctl.adb.daemon.phone import Phone
from labctl.retry import wait_until

#: Names of the official releases: Debian's, and the one inside adbutils.
RELEASES = ("29", "36")


def program(release: str, scratch: Path) -> str:
    """Return the path of an official adb; skip the test without it."""
    if release == "29":
        return shutil.which("adb") or pytest.skip("Debian's adb is not installed")
    spec = find_spec("adbutils")
    if spec is None or spec.origin is None:
        pytest.skip("adbutils is not installed")
    copy = scratch / "adb36"
    shutil.copy(Path(spec.origin).parent / "binaries/adb", copy)
    copy.chmod(0o755)
    return str(copy)


class OfficialAdb:
    """An official client and its server."""

    def __init__(self, program: str, home: Path, port: int):
        self._program = program
        self._port = port
        self._environment = {
            **os.environ,
            "HOME": str(home),
            "ANDROID_ADB_SERVER_PORT": str(port),
            "ADB_LOCAL_TRANSPORT_MAX_PORT": "5553",
            "ADB_USB": "0",
            "ADB_MDNS": "0",
            "ADB_MDNS_OPENSCREEN": "0",
        }
        self.address = f"127.0.0.1:{port}"
        self.serial = ""
        self.server = self.start_server()

    def start_server(self) -> "subprocess.Popen[bytes]":
        """Start the server, and wait until it answers."""
        server = subprocess.Popen(
            [self._program, "-P", str(self._port), "nodaemon", "server"],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

        def answers() -> bool:
            with socket.socket() as sock:
                return sock.connect_ex(("127.0.0.1", self._port)) == 0

        assert wait_until(answers, timeout=20, interval=0.02)
        return server

    def start(
        self, *words: str, stdin: int | None = subprocess.DEVNULL
    ) -> "subprocess.Popen[bytes]":
        """Start the client for the phone."""
        return subprocess.Popen(
            [self._program, *(["-s", self.serial] if self.serial else []), *words],
            env=self._environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *words: str, typed: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        """Run the client to its end."""
        with self.start(*words, stdin=subprocess.PIPE) as client:
            try:
                out, err = client.communicate(typed, timeout=120)
            except BaseException:
                client.kill()
                raise
        return subprocess.CompletedProcess(words, client.returncode, out, err)

    def ok(self, *words: str, typed: bytes = b"") -> bytes:
        """Run the client, and return its output if it succeeds."""
        done = self.run(*words, typed=typed)
        assert done.returncode == 0, done
        return done.stdout

    def state(self) -> str:
        """Return the phone's state."""
        return self.run("get-state").stdout.decode().strip()

    def connect(self, port: int) -> None:
        """Connect to the phone at a port, and wait until it is there."""
        self.serial = f"127.0.0.1:{port}"
        self.run("connect", self.serial)
        assert wait_until(lambda: self.state() == "device", timeout=20, interval=0.05)


@contextmanager
def official_adb(release: str, scratch: Path) -> Iterator[OfficialAdb]:
    """Serve an official adb server at a free port."""
    home = scratch / f"home{release}"
    home.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    adb = OfficialAdb(program(release, scratch), home, port)
    try:
        yield adb
    finally:
        adb.server.kill()
        adb.server.wait(10)


@contextmanager
def phone_served(phone: Phone, port: int = 0) -> Iterator[int]:
    """Serve a phone in a thread; yield its port."""
    daemon = Daemon(phone)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def do(work: "object") -> int:
        return asyncio.run_coroutine_threadsafe(work, loop).result(20)  # type: ignore[arg-type]

    try:
        yield do(daemon.start(port=port))
    finally:
        do(daemon.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
