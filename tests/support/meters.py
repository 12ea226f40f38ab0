"""Meters of power that do what a test tells them."""

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from labctl.config.power import CommandMeter, HttpMeter


def program(folder: Path, text: str, **keys: object) -> CommandMeter:
    """A meter that is a Python program; relative to ``folder`` as a lab's would be."""
    (folder / "meter.py").write_text(text)
    keys = {"kind": "command", "command": (sys.executable, "meter.py"), "unit": "W"} | keys
    return CommandMeter.model_validate(keys, context={"lab_root": folder})


def plug(port: int, **keys: object) -> HttpMeter:
    """A meter that answers over http on this host."""
    keys = {
        "kind": "http",
        "address": f"http://127.0.0.1:{port}/status?password=secret",
        "field": "switch.0.apower",
        "unit": "W",
    } | keys
    return HttpMeter.model_validate(keys)


def answer(body: bytes, *, status: str = "200 OK", more: str = "") -> bytes:
    """The whole of an answer over http."""
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{more}\r\n"
    return head.encode() + body


@contextmanager
def serving(*pieces: bytes, pause: float = 0.0) -> Iterator[int]:
    """A server that answers every request with these pieces and pauses between; its port."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)

        def serve() -> None:
            while not over.is_set():
                try:
                    peer, _ = listener.accept()
                except TimeoutError:
                    continue
                with peer:
                    peer.settimeout(30)
                    try:
                        peer.recv(65536)
                        for piece in pieces:
                            peer.sendall(piece)
                            if over.wait(pause):
                                break
                    except OSError:
                        continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            thread.join()
