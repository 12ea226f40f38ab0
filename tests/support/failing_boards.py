"""Labs of virtual boards that hang until something is switched, and the switches."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import agent_builds

from labctl.config.lab import Board, LabFile, lab_model
from labctl.config.yaml.document import parse
from labctl.transport.base import OpenOptions, Transport
from labctl.transport.built_in import TRANSPORTS
from labctl.virtual.board import Served, VirtualBoard, serving
from labctl.virtual.control import Control


def connect(board: Board, patience: float = 2.0) -> Transport:
    """Open a board; one that is silent is given up after ``patience`` s."""
    link: Transport = board.transport.open(OpenOptions(timeout=patience))
    return link


@contextmanager
def lab_of_boards(
    root: Path, count: int = 1, switches: str = "", health: str = ""
) -> Iterator[tuple[LabFile, list[Served]]]:
    """A lab with boards b0, b1 … that have these switches."""
    plans = [VirtualBoard(f"b{n}", root / f"b{n}") for n in range(count)]
    with serving(*plans) as served:
        lines = ["lab: test", "boards:"]
        for one in served:
            lines += [
                f"  {one.name}:",
                f"    target: {agent_builds.HOST}",
                f"    workdir: {one.workdir}",
                f"    transport: {{kind: hdc, link: tcp, address: '{one.address}'}}",
                f"    switches: {{wait: 5s, {switches.replace('BOARD', one.name)}}}",
            ]
        if health:
            lines.append(f"health: {health}")
        (root / "devices.yaml").write_text("\n".join(lines) + "\n")
        yield load(root), served


def load(root: Path) -> LabFile:
    """Read the lab's devices.yaml."""
    text = (root / "devices.yaml").read_text()
    model = lab_model(TRANSPORTS)
    return LabFile(root, parse(text, model, "devices.yaml", context={"lab_root": root}))


class PowerSwitch:
    """A switch that answers over http as pdudaemon does; a board that gets power again runs."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.address = ""

    @contextmanager
    def serving(self, *boards: Served) -> Iterator["PowerSwitch"]:
        """Answer on this host's loopback while the block lasts."""
        directories = {one.name: one.directory for one in boards}
        switch = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                switch.asked.append(self.path)
                switch.headers.append(dict(self.headers.items()))
                if switch.status == 200 and "/control/on" in self.path:
                    Control(directories[self.path.rpartition("port=")[2]]).clear()
                self.send_response(switch.status)
                self.send_header("Content-Length", "0")
                if switch.status == 302:
                    self.send_header("Location", "http://127.0.0.1:1/")
                self.end_headers()

            def log_message(self, *_args: Any) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            self.address = f"http://127.0.0.1:{server.server_address[1]}/power/control"
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()


def thawing(root: Path, name: str, *, after: int = 1) -> Path:
    """Write a program that is a switch: told `on` it thaws a board; it keeps what it was told."""
    path = root / f"{name}.py"
    path.write_text(
        f"""\
import sys
from pathlib import Path
from labctl.virtual.control import Control
told = Path({str(root / f"{name}.told")!r})
with told.open("a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
if sys.argv[-1] == "on" and told.read_text().count(" on\\n") >= {after}:
    Control(Path({str(root)!r}) / sys.argv[1]).clear()
"""
    )
    return path


def command(path: Path, *words: str) -> str:
    """An action of devices.yaml that runs a program of :func:`thawing`."""
    argv = ", ".join(f'"{word}"' for word in (sys.executable, str(path), *words))
    return f"{{kind: command, command: [{argv}]}}"
