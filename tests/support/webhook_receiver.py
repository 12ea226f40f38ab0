"""A server on loopback that takes webhooks, and keeps what came."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Receiver:
    """``answers`` are given one after the other, the last one again and again."""

    address: str = ""
    answers: list[Answer] = field(default_factory=lambda: [(200, {}, b"ok")])
    #: Path with its query, headers in small letters, body.
    came: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)


@contextmanager
def receiving(*answers: Answer) -> Iterator[Receiver]:
    """Take webhooks until the block ends."""
    receiver = Receiver()
    receiver.answers = list(answers) or receiver.answers

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, more, said = receiver.answers[
                min(len(receiver.came), len(receiver.answers) - 1)
            ]
            receiver.came.append((self.path, headers, body))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(said)), **more}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(said)

        log_message: Callable[..., None] = lambda *_: None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    receiver.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
