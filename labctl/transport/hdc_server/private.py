"""A server that only labctl uses, with its own TMPDIR, port and HOME.

It never changes the user's server, ``~/.harmony`` or pid file. All boards of this labctl process
with ``private`` share it, and it ends with this process. If a labctl was killed, the next labctl
that starts such a server stops the leftover server.
"""

import os
import secrets
import select
import shutil
import signal
import socket
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

from labctl.errors import HostError, HostTimeout, LinkError
from labctl.files import host_writes, write_atomic
from labctl.folders import state_dir
from labctl.hdc.server_client.connect_key import is_tcp_key
from labctl.hdc.server_client.server import HdcServer
from labctl.locks import locked
from labctl.transport.hdc_server.process import (
    LOOPBACK,
    PID_FILE,
    Restarting,
    ServerProcess,
    start_server,
)

#: Default address of the user's own server.
USERS_PORT = 8710

_LOCK_SECONDS = 30.0
_QUESTION_SECONDS = 2.0
_END_SECONDS = 5.0


class PrivateServer:
    """The private server of this process; each start uses a new port. Thread-safe."""

    def __init__(self, *, users_port: int = USERS_PORT):
        self._users_port = users_port
        self._keys: set[str] = set()
        self._restarting = Restarting(self._start)
        self._lock = threading.Lock()
        self._undo = ExitStack()
        self._folder: Path | None = None

    def running(self, key: str, *, timeout: float) -> HdcServer:
        """Return the running server for the board ``key``; restart it if it died.

        ``timeout`` (s) limits a request to a running server; a start has its own limit. Raises
        ToolMissing, HostError.
        """
        with self._lock:
            if key not in self._keys and not is_tcp_key(key):
                _check_bus(self._users_port)
            self._keys.add(key)
            current = self._restarting.current
            if current is not None and current.is_running:
                with suppress(LinkError):  # it hangs: it is labctl's own, so replace it
                    current.server.version(timeout=timeout)
                    return current.server
            return self._restarting.start()

    def close(self) -> None:
        """Stop the server, and remove its folder. Idempotent."""
        with self._lock:
            self._restarting.stop()
            self._keys.clear()
            self._undo.close()
            self._folder = None

    def _start(self) -> ServerProcess:
        if self._folder is None:
            self._folder = _claim_folder(self._undo)
        with socket.create_server((LOOPBACK, 0)) as taken:
            port: int = taken.getsockname()[1]
        return start_server(
            port,
            tmpdir=self._folder,
            log=self._folder / "log",
            extra_env={"HOME": str(_home())},
        )


def _check_bus(users_port: int) -> None:
    """Raise HostError if the user's server already has the boards on cables."""
    server = HdcServer(LOOPBACK, users_port)
    with suppress(LinkError):
        server.version(timeout=_QUESTION_SECONDS)
        raise HostError(
            f"{server.label} runs, and two servers would compete for the boards on cables",
            hint="remove `private` from those boards, or end that server: `hdc kill`",
        )


def _home() -> Path:
    """Return a HOME with labctl's own key: boards that know the key accept this server."""
    from labctl.hdc.keys import HostKey, own_key_path  # slow to import

    home = state_dir() / "hdc" / "home"
    keys = home / ".harmony"
    key = HostKey.of_labctl()
    link, target = keys / "hdckey", own_key_path().absolute()
    with host_writes(keys):
        keys.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not link.is_symlink() or link.readlink() != target:
            new = keys / secrets.token_hex(8)
            new.symlink_to(target)
            new.replace(link)
    write_atomic(keys / "hdckey.pub", key.public_pem)
    return home


def _claim_folder(undo: ExitStack) -> Path:
    """Create a folder for this labctl's server.

    It is locked until ``undo``, then removed. Raises HostError.
    """
    root = state_dir() / "hdc" / "private"
    # The outer lock: no other labctl can find the new folder before it is locked, and remove it.
    with locked(root / "lock", timeout=_LOCK_SECONDS):
        _end_abandoned(root)
        folder = root / secrets.token_hex(8)
        with host_writes(folder):
            folder.mkdir(mode=0o700)
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        undo.enter_context(locked(folder / "owner", timeout=0))
    return folder


def _end_abandoned(root: Path) -> None:
    """Stop the servers of labctls that were killed."""
    for folder in root.iterdir():
        if not folder.is_dir():
            continue
        with suppress(HostTimeout), locked(folder / "owner", timeout=0):
            _end_server(folder / PID_FILE)
            shutil.rmtree(folder, ignore_errors=True)


def _end_server(pid_file: Path) -> None:
    """Stop the process named in a pid file, if it is the server of that folder."""
    with suppress(OSError, ValueError):
        pid = int(pid_file.read_text(encoding="utf-8"))
        process = os.pidfd_open(pid)
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if b"TMPDIR=" + os.fsencode(pid_file.parent) not in environment:
                return
            poll = select.poll()
            poll.register(process, select.POLLIN)  # readable when it has ended
            for number in (signal.SIGTERM, signal.SIGKILL):
                signal.pidfd_send_signal(process, number)
                if poll.poll(_END_SECONDS * 1000):
                    return
        finally:
            os.close(process)
