"""A PostgreSQL server of the tests' own, on a Unix socket in a temporary folder."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from urllib.parse import quote

import pytest

from labctl.retry import wait_until
from labctl.runs.record.repository import RunRepository

#: Like a server that a distribution sets up: its order of texts is a language's, not that of bytes.
LOCALE = ["--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US"]
SETTINGS = {
    "listen_addresses": "",
    "max_connections": "120",
    "fsync": "off",
    "authentication_timeout": "20s",
    "shared_buffers": "32MB",
}
_numbers = count()


class PostgresServer:
    """A running server; each lab in it has a name of its own."""

    def __init__(self, socket: Path, process: "subprocess.Popen[bytes]"):
        self.socket = socket
        self.process = process
        self.url = f"postgresql://labctl@/postgres?host={quote(str(socket), safe='')}"

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """End it: fast by SIGINT; by SIGQUIT as if its machine failed."""
        self.process.send_signal(number)
        # A connection that said nothing yet lives until authentication_timeout.
        self.process.wait(120)

    def start(self) -> None:
        """Start it again from what is on its disk; it answers some time later."""
        with (self.socket / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.process.args,
                user=self.socket.stat().st_uid or None,
                cwd=self.socket,
                stdout=log,
                stderr=log,
            )

    def new_lab(self) -> str:
        """The name of a lab that nobody has."""
        return f"lab{next(_numbers)}"


def lab_in(server: PostgresServer, root: Path, name: str | None = None) -> Path:
    """A lab in a PostgreSQL; its folder of runs."""
    root.mkdir(exist_ok=True)
    text = f"lab: {name or server.new_lab()}\ndatabase: {server.url}\nboards: {{}}\n"
    (root / "devices.yaml").write_text(text)
    return root / "runs"


def rows(runs: Path, question: str) -> list[tuple[object, ...]]:
    """What the database of an index itself answers."""
    return RunRepository(runs)._index._database.ask(question, {})


def _program(name: str) -> str:
    if found := shutil.which(name):
        return found
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    if not debian:
        pytest.skip(f"no PostgreSQL: {name} is not there; install the package postgresql")
    return str(debian[-1])


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Serve until the block ends. PostgreSQL refuses root, who starts it as nobody."""
    initdb, postgres = _program("initdb"), _program("postgres")
    other = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="labctl-pg-", dir="/tmp") as name:
        folder = Path(name)  # short: a socket's path has at most 107 characters
        data = folder / "data"
        data.mkdir()
        if other is not None:
            for path in (folder, data):
                os.chown(path, other, -1)
        made = [initdb, "-D", data, "-U", "labctl", "-A", "trust", "-E", "UTF8", "--no-sync"]
        subprocess.run(
            [*made, *LOCALE], user=other, cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
        settings = [word for item in SETTINGS.items() for word in ("-c", "=".join(item))]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [postgres, "-D", data, "-k", folder, *settings],
                user=other,
                cwd=folder,
                stdout=log,
                stderr=log,
            )
        server = PostgresServer(folder, process)
        try:
            ready = "database system is ready to accept connections"
            assert wait_until(
                lambda: ready in (folder / "log").read_text(), timeout=60, interval=0.05
            ), (folder / "log").read_text()
            yield server
        finally:
            server.stop()
