"""A dashboard of a lab in a folder of the test's own: a real server on a free port, in a thread."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from labctl.config.lab import LabFile, find_lab
from labctl.retry import wait_until
from labctl.runs.record.repository import RunRepository
from labctl.state.state import lab_state
from labctl.transport.built_in import TRANSPORTS
from labctl.web import server
from labctl.web.app import make_app
from labctl.web.dashboard import Listening
from labctl.web.request_checks import Limits


def board_names(count: int) -> list[str]:
    return [f"rk{number}" for number in range(1, count + 1)]


def made_lab(root: Path, *, boards: int = 2, more: str = "") -> LabFile:
    """Write a lab whose boards nobody contacts."""
    root.mkdir(parents=True, exist_ok=True)
    board = "{target: rk3568, transport: {kind: hdc, link: tcp, address: '127.0.0.1:%d'}}"
    lines = [f"  {name}: {board % port}" for port, name in enumerate(board_names(boards), 20001)]
    (root / "devices.yaml").write_text("\n".join(["lab: kitchen", "boards:", *lines, more, ""]))
    return find_lab(root, TRANSPORTS)


@dataclass
class Served:
    """A dashboard that runs. Tokens are those of users with the three roles."""

    lab: LabFile
    address: str
    tokens: Mapping[str, str]
    server: uvicorn.Server

    @property
    def host(self) -> str:
        return self.address.removeprefix("http://").rstrip("/")

    def bearer(self, role: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[role]}"}

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(
            base_url=self.address, timeout=60, trust_env=False, verify=False, **options
        )

    def ask(self, method: str, path: str, *, role: str = "", **options: Any) -> httpx.Response:
        """One request; with a role, of a browser after its sign-in."""
        with self.signed_in(role) if role else self.client() as client:
            return client.request(method, path, **options)

    @contextmanager
    def signed_in(self, role: str) -> Iterator[httpx.Client]:
        """A browser after its sign-in."""
        with self.client(headers={"Origin": self.address.rstrip("/")}) as client:
            answer = client.post("/sign-in", data={"token": self.tokens[role]})
            assert answer.status_code == 303, answer.text
            yield client


@contextmanager
def served(lab: LabFile, limits: Limits | None = None) -> Iterator[Served]:
    """Serve a lab's dashboard until the block ends; its index knows the runs that are there."""
    RunRepository(lab.root / "runs").refresh()
    tokens = lab_state(lab).tokens
    made = {role: tokens.add(role, role, by="test") for role in ("look", "run", "admin")}  # type: ignore[arg-type]
    own, listening = server.listen(Listening(port=0))
    app = make_app(lab, listening, limits)
    running = server.Server(server.configured(app), app)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [own]})
    thread.start()
    try:
        assert wait_until(lambda: running.started, timeout=60, interval=0.02)
        yield Served(lab, f"http://127.0.0.1:{listening.port}/", made, running)
    finally:
        app.end_streams()
        running.should_exit = True
        thread.join()
        own.close()
