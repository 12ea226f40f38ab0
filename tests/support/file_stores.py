"""Stores of files that tests start: S3 as moto speaks it, and a server of plain http."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


@contextmanager
def s3_server(patch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve S3; the URL of an empty bucket. Its keys are in the environment."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "lab")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-of-the-lab")
        patch.setenv("AWS_REGION", "us-east-1")
        patch.setenv("NO_PROXY", "127.0.0.1")
        import httpx

        assert httpx.put(f"http://{host}:{port}/lab-files", trust_env=False).status_code == 200
        yield "s3://lab-files/one"
    finally:
        server.stop()


class HttpFiles(ThreadingHTTPServer):
    """Files in memory: GET with ranges, HEAD, PUT and DELETE, for those with the token."""

    def __init__(self, token: str | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.token = token
        self.files: dict[str, bytes] = {}
        #: Answers of status 500 that come before the next right one.
        self.failures = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/lab"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HttpFiles

    def log_message(self, *_words: object) -> None:
        """Say nothing."""

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _refused(self) -> bool:
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length)
        if self.server.failures:
            self.server.failures -= 1
            self._answer(500)
            return True
        if self.server.token and self.headers["Authorization"] != f"Bearer {self.server.token}":
            self._answer(401)
            return True
        return False

    def do_PUT(self) -> None:
        if not self._refused():
            self.server.files[self.path] = self.body
            self._answer(201)

    def do_DELETE(self) -> None:
        if not self._refused():
            known = self.server.files.pop(self.path, None) is not None
            self._answer(204 if known else 404)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if self._refused():
            return
        content = self.server.files.get(self.path)
        if content is None:
            self._answer(404)
            return
        dated: dict[str, Any] = {"Last_Modified": "Sun, 22 Nov 2026 10:00:00 GMT"}
        asked = self.headers.get("Range")
        if asked is None:
            self._answer(200, content, Content_Length=str(len(content)), **dated)
            return
        first, last = asked.removeprefix("bytes=").split("-")
        part = content[int(first) : int(last) + 1]
        said = f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}"
        self._answer(206, part, Content_Range=said, **dated)


@contextmanager
def http_files(token: str | None = None) -> Iterator[HttpFiles]:
    """Serve files over http until the block ends."""
    server = HttpFiles(token)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
