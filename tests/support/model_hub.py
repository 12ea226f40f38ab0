"""A server on loopback that gives one file as Hugging Face, ModelScope and plain servers do."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "c" * 40


class Hub(ThreadingHTTPServer):
    """Serves one file as Hugging Face, as ModelScope and at a plain address."""

    daemon_threads = True

    def __init__(self, content: bytes):
        super().__init__(("127.0.0.1", 0), Answers)
        self.content = content
        #: Names of the files that it lists; all have the content.
        self.names = ["tiny-F32.gguf"]
        self.cut_after: int | None = None
        self.ranges = True
        #: Bytes in an answer to a request of a range.
        self.most_bytes: int | None = None
        self.renamed = False
        self.begins: int | None = None
        self.status = 200
        self.requests: list[tuple[str, str, str | None]] = []
        #: The header Authorization of each of them.
        self.logins: list[str | None] = []
        #: What it says in place of its list, and of the list's next page.
        self.listing: bytes | None = None
        self.next_page: str | None = None
        #: Headers in place of those of a file.
        self.head: dict[str, str] = {}
        #: Of the list, to another server.
        self.redirect: str | None = None
        #: Of the file, in answers to whatever requests.
        self.sent_bytes = 0
        #: A page in place of the file, with its type, and whether its length is told.
        self.page: tuple[bytes, str] | None = None
        self.tells_length = True
        #: What holds back whatever is asked for up to the file's end.
        self.gate = threading.Event()
        self.gate.set()

    @property
    def is_asked_for_all(self) -> bool:
        """Whether somebody wants the file, and not just its beginning."""
        return any(m == "GET" and (r is None or r.endswith("-")) for m, _, r in self.requests)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


class Answers(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *args: object) -> None:
        """Keep quiet."""

    def do_HEAD(self) -> None:
        self.note()
        if self.server.renamed and "/old/" in self.path:
            self.send_response(307)
            self.send_header("Location", self.path.replace("/old/", "/new/"))
            self.end_headers()
            return
        self.send_response(302 if self.server.status == 200 else self.server.status)
        headers = {"X-Repo-Commit": COMMIT, "X-Linked-Etag": f'"{self.server.sha256}"'}
        headers |= {"X-Linked-Size": str(len(self.server.content)), "Location": "/cdn/file"}
        for name, value in (self.server.head or headers).items():
            self.send_header(name, value)
        self.end_headers()

    def do_GET(self) -> None:
        self.note()
        if self.server.status != 200:
            self.send_response(self.server.status)
            self.end_headers()
        elif "/repo/files?" in self.path:
            known = {"Type": "blob", "Sha256": self.server.sha256}
            known |= {"Size": len(self.server.content)}  # type: ignore[dict-item]
            entries = [{"Path": name, **known} for name in self.server.names]
            entries.append({"Path": "sub", "Type": "tree", "Size": 0})  # type: ignore[dict-item]
            body = json.dumps({"Code": 200, "Data": {"Files": entries}}).encode()
            self.answer(body if self.server.listing is None else self.server.listing, 200)
        elif self.path.startswith(("/api/models/", "/api/datasets/")) and "/tree/" in self.path:
            self.tree()
        else:
            self.file()

    def tree(self) -> None:
        """List files as Hugging Face does: two on a page, the next one named by a header."""
        if self.server.redirect is not None:
            self.send_response(302)
            self.send_header("Location", self.server.redirect + self.path)
            self.end_headers()
            return
        size = len(self.server.content)
        lfs = {"oid": self.server.sha256, "size": size, "pointerSize": 134}
        entries: list[dict[str, object]] = [{"type": "directory", "path": "sub", "size": 0}]
        entries += [{"type": "file", "path": "README.md", "size": 12, "oid": "1" * 40}]
        entries += [
            {"type": "file", "path": name, "size": size, "oid": "2" * 40, "lfs": lfs}
            for name in self.server.names
        ]
        way, _, query = self.path.partition("?")
        begin = int(query.partition("cursor=")[2] or 0)
        body = json.dumps(entries[begin : begin + 2]).encode()
        body = body if self.server.listing is None else self.server.listing
        self.send_response(200)
        if self.server.next_page is not None:
            self.send_header("Link", f'<{self.server.next_page}>; rel="next"')
        elif begin + 2 < len(entries) and self.server.listing is None:
            following = f"{self.server.address}{way}?recursive=true&cursor={begin + 2}"
            self.send_header("Link", f'<{following}>; rel="next"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(ConnectionError):  # who asked may have seen enough
            self.wfile.write(body)

    def send_page(self, body: bytes, kind: str) -> None:
        self.protocol_version = "HTTP/1.1"
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", kind)
        if self.server.tells_length:
            self.send_header("Content-Length", str(len(body)))
        else:
            self.send_header("Transfer-Encoding", "chunked")
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        self.end_headers()
        self.wfile.write(body)

    def file(self) -> None:
        if self.server.page is not None:
            self.send_page(*self.server.page)
            return
        begin, end, status = 0, len(self.server.content), 200
        wanted = self.headers.get("Range")
        if wanted and self.server.ranges:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            begin, end, status = int(first), int(last or end) + 1, 206
            if begin >= len(self.server.content):
                self.answer(b"", 416)
                return
            begin = begin if self.server.begins is None else self.server.begins
            end = min(end, begin + (self.server.most_bytes or end))
        if end >= len(self.server.content) and (not wanted or wanted.endswith("-")):
            self.server.gate.wait()
        self.answer(self.server.content[begin:end], status, begin)

    def answer(self, body: bytes, status: int, begin: int = 0) -> None:
        self.send_response(status)
        if status == 206:
            whole = len(self.server.content)
            self.send_header("Content-Range", f"bytes {begin}-{begin + len(body) - 1}/{whole}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut, self.server.cut_after = self.server.cut_after, None
        sent = body if cut is None else body[:cut]
        self.server.sent_bytes += len(sent)
        with suppress(ConnectionError):  # who asked may have seen enough
            self.wfile.write(sent)

    def note(self) -> None:
        self.server.logins.append(self.headers.get("Authorization"))
        self.server.requests.append((self.command, self.path, self.headers.get("Range")))


@contextmanager
def model_hub(content: bytes) -> Iterator[Hub]:
    """Serve ``content``; it is stopped at the end."""
    server = Hub(content)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()
