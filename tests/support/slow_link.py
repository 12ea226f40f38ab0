"""A link that carries few bytes a second, or each after a delay, whatever they mean: a process
between host and board.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from labctl import process

_PROGRAM = """
import socket, sys, threading, time
rate, (host, port) = int(sys.argv[1]), sys.argv[2].rsplit(":", 1)

def carry(source, target):
    due = time.monotonic()
    while block := source.recv(1 << 16):
        due = max(due, time.monotonic() - 0.01) + len(block) / rate
        time.sleep(max(0.0, due - time.monotonic()))  # the pace of the link
        target.sendall(block)
    target.shutdown(socket.SHUT_WR)

with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    while True:
        near, _ = server.accept()
        far = socket.create_connection((host, int(port)))
        for one, other in ((near, far), (far, near)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=carry, args=(one, other), daemon=True).start()
"""


_DELAYING = """
import queue, socket, sys, threading, time
delay, (host, port) = float(sys.argv[1]), sys.argv[2].rsplit(":", 1)

def read(source, waiting):
    while block := source.recv(1 << 16):
        waiting.put((time.monotonic() + delay, block))
    waiting.put((0, b""))

def write(target, waiting):
    while True:
        due, block = waiting.get()
        if not block:
            return target.shutdown(socket.SHUT_WR)
        time.sleep(max(0.0, due - time.monotonic()))
        target.sendall(block)

with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    while True:
        near, _ = server.accept()
        far = socket.create_connection((host, int(port)))
        for one, other in ((near, far), (far, near)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            waiting = queue.SimpleQueue()
            threading.Thread(target=read, args=(one, waiting), daemon=True).start()
            threading.Thread(target=write, args=(other, waiting), daemon=True).start()
"""


@contextmanager
def slow_link(address: str, bytes_per_second: int) -> Iterator[str]:
    """The address at which the board at ``address`` is reached over a slow link."""
    with _between(_PROGRAM, str(bytes_per_second), address) as near:
        yield near


@contextmanager
def delayed_link(address: str, seconds: float) -> Iterator[str]:
    """The address at which the board is reached when each byte takes that long, both ways."""
    with _between(_DELAYING, str(seconds), address) as near:
        yield near


@contextmanager
def _between(program: str, setting: str, address: str) -> Iterator[str]:
    words = [sys.executable, "-c", program, setting, address]
    started = process.start(words, stderr=subprocess.DEVNULL)
    try:
        assert started.stdout is not None
        yield f"127.0.0.1:{int(started.stdout.readline())}"
    finally:
        process.stop(started)
        assert started.stdout is not None
        started.stdout.close()
