"""A PostgreSQL behind a socket that breaks connections at a chosen moment of a transaction."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

#: ``before`` the server gets the words, or ``after`` it answered them: the client cannot know.
Moment = Literal["before", "after"]


class CuttingProxy:
    """A TCP port that leads to a server; a connection breaks when its client says a word."""

    def __init__(self, target: Path):
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        #: Cuts to come: what the client says, and when the connection breaks.
        self.cuts: list[tuple[bytes, Moment]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, suppress(OSError):
            server.connect(str(self._target))
            back = threading.Thread(target=_pump, args=(server, client), daemon=True)
            back.start()
            while piece := client.recv(1 << 16):
                if self.cuts and self.cuts[0][0] in piece:
                    _, moment = self.cuts.pop(0)
                    client.shutdown(socket.SHUT_WR)  # no answer comes through any more
                    if moment == "after":
                        server.sendall(piece)
                        server.shutdown(socket.SHUT_WR)  # the server ends once it has done it
                        back.join(30)
                    break
                server.sendall(piece)
            server.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Refuse connections from now on."""
        self._listening.close()


def _pump(server: socket.socket, client: socket.socket) -> None:
    with suppress(OSError):
        while piece := server.recv(1 << 16):
            with suppress(OSError):
                client.sendall(piece)


@contextmanager
def cutting_proxy(target: Path) -> Iterator[CuttingProxy]:
    """Serve until the block ends."""
    proxy = CuttingProxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
