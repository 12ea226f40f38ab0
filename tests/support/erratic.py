"""A way to a server on which bytes come when they come: in pieces, late, the ends apart.

What a client is told must not depend on how it is cut: TCP promises bytes in order, no more.
"""

import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hdc_server import Board, stand_in_server

from labctl.transport.base import OpenOptions
from labctl.transport.hdc import HdcServerConfig
from labctl.virtual.board import VirtualBoard, serving

_LONGEST_PAUSE_SECONDS = 0.01


def _carry(source: socket.socket, sink: socket.socket, luck: random.Random) -> None:
    """Carry one direction, in pieces and with pauses."""
    with suppress(OSError):
        while data := source.recv(1 << 16):
            while data:
                # At most 20 pieces: a large file would take for ever.
                count = luck.choice((1, 3, 4, 5, 48, len(data)))
                count = max(count, len(data) // 20)
                if luck.random() < 0.5:  # this piece is late
                    time.sleep(luck.uniform(0, _LONGEST_PAUSE_SECONDS))
                sink.sendall(data[:count])
                data = data[count:]
        if luck.random() < 0.5:  # the end is late
            time.sleep(luck.uniform(0, _LONGEST_PAUSE_SECONDS))
    with suppress(OSError):
        # Half of it, as a server that waits for its client's end, or all at once.
        sink.shutdown(socket.SHUT_WR if luck.random() < 0.5 else socket.SHUT_RDWR)


@contextmanager
def erratic(port: int, seed: int) -> Iterator[int]:
    """Another port that leads to ``port`` of loopback."""
    chance = random.Random(seed)
    carriers: list[threading.Thread] = []
    sockets: list[socket.socket] = []

    def accept(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", port))
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sockets.extend((client, server))
                for ends in ((client, server), (server, client)):
                    luck = random.Random(chance.random())
                    carriers.append(threading.Thread(target=_carry, args=(*ends, luck)))
                    carriers[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        acceptor = threading.Thread(target=accept, args=(listener,))
        acceptor.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            acceptor.join()
            for sock in sockets:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            for carrier in carriers:
                carrier.join()
            for sock in sockets:
                sock.close()


@contextmanager
def behind(tmp_path: Path, seed: int) -> Iterator[tuple[str, str]]:
    """A board with hdcd 3.1.0e behind a server; the server's address and the board's key."""
    with serving(VirtualBoard("b", tmp_path / "board", version="3.1.0e")) as (served,):
        board = Board(served.address, "TCP", loses_ends=True)
        board.connect()
        with (
            stand_in_server({served.address: board}) as server,
            erratic(server.port, seed) as port,
        ):
            yield f"127.0.0.1:{port}", served.address


def ask(server: str, key: str, number: int) -> None:
    """As `labctl hdc shell` does: a link of its own, one command."""
    with HdcServerConfig(key=key, server=server).open(OpenOptions(timeout=20)) as link:
        said = link.run(f"echo {number}; seq 1 300; exit {number % 256}", timeout=20)
    lines = [number, *range(1, 301)]
    assert (said.exit_status, said.text) == (number % 256, "".join(f"{n}\n" for n in lines))
