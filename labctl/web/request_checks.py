"""Refuses requests that no honest browser or program sends, before reading them.

DNS rebinding gives a wrong Host. A form of another site gives a wrong Origin (RFC 6454), also from
another port of this host, to which browsers send the same cookies.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_BODY_BYTES = 64 * 1024
_METHODS = ("GET", "HEAD", "POST", "DELETE")
_LONGEST_TARGET = 4096
#: Only our own scripts and styles, nothing from other sites, and no frame of another site.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": PAGE_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer: browsers would then send the Origin null with our own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Limits:
    """Limits on the use of a server by clients. Times are in s."""

    #: Connections at a time; a further one is answered with 503.
    connections: int = 200
    #: From the start of a connection, or of its next request, to the end of the request's head.
    head_seconds: float = 10.0
    #: From the first to the last byte of a body.
    body_seconds: float = 15.0
    #: Streams of events at a time.
    streams: int = 64
    #: Interval at which a stream checks its reader's access, and a silent one sends a comment:
    #: proxies end a connection that is silent for a minute.
    alive_seconds: float = 15.0


class Refused(Exception):
    """A refused request: its status and message."""

    def __init__(self, status: int, reason: str):
        super().__init__(reason)
        self.status, self.reason = status, reason


class Guard:
    """An ASGI application around another. ``names``: host names of the server."""

    def __init__(self, app: App, names: frozenset[str], limits: Limits):
        self._app = app
        self._names = names
        self.limits = limits
        #: (method, status) -> number of answers; methods and statuses are few.
        self.answers: dict[tuple[str, int], int] = {}
        #: Ends the streams of events; otherwise a stopping server would wait for them.
        self.end_streams: Callable[[], None] = lambda: None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._count(scope["method"], message["status"])
                message = {**message, "headers": _with_headers(message.get("headers", []))}
            await send(message)

        try:
            self._check(scope)
            await self._app(scope, _Body(scope, receive, self.limits.body_seconds).receive, sending)
        except Refused as refused:
            if started:
                raise
            text = f"{refused.reason}\n".encode()
            headers = [
                (b"content-type", b"text/plain; charset=utf-8"),
                (b"content-length", str(len(text)).encode()),
                (b"connection", b"close"),
            ]
            start = {"type": "http.response.start", "status": refused.status, "headers": headers}
            await sending(start)
            await sending({"type": "http.response.body", "body": text})

    def _check(self, scope: Scope) -> None:
        if scope["method"] not in _METHODS:
            raise Refused(405, "this method is not known here")
        if len(scope["raw_path"]) + len(scope["query_string"]) > _LONGEST_TARGET:
            raise Refused(414, "the address is too long")
        if b"%00" in scope["query_string"]:
            raise Refused(400, "the query has a NUL in it")
        if any(ord(character) < 32 or character == "\x7f" for character in scope["path"]):
            raise Refused(400, "the address has control characters in it")
        host = _only(scope, b"host")
        name = _host_name(host)
        if name not in self._names:
            raise Refused(421, "this host name is not known here: see `web: names` in devices.yaml")
        if scope["method"] in ("GET", "HEAD"):
            return
        origin = _only(scope, b"origin", needed=False)
        if origin is not None:
            parts = urlsplit(origin)
            if parts.scheme not in ("http", "https") or parts.netloc.lower() != host.lower():
                raise Refused(403, "a page of another site asks for this change")
        elif not _only(scope, b"authorization", needed=False):
            raise Refused(403, "a change needs the header Origin, or a token in Authorization")
        if _only(scope, b"sec-fetch-site", needed=False) not in (None, "same-origin"):
            raise Refused(403, "a page of another site asks for this change")

    def _count(self, method: str, status: int) -> None:
        key = (method if method in _METHODS else "other", status)
        self.answers[key] = self.answers.get(key, 0) + 1


class _Body:
    """A body of bounded length and time."""

    def __init__(self, scope: Scope, receive: Receive, seconds: float):
        length = _only(scope, b"content-length", needed=False)
        if length is not None and (not length.isdigit() or int(length[:12]) > MOST_BODY_BYTES):
            raise Refused(413, f"a body has at most {MOST_BODY_BYTES} bytes")
        self._receive = receive
        self._seconds = seconds
        self._left = MOST_BODY_BYTES
        self._until: float | None = None
        self._whole = False

    async def receive(self) -> Message:
        if self._whole:  # only the end of the connection can follow
            return await self._receive()
        loop = asyncio.get_running_loop()
        if self._until is None:
            self._until = loop.time() + self._seconds
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            raise Refused(408, "the body did not come in time") from None
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise Refused(413, f"a body has at most {MOST_BODY_BYTES} bytes")
        self._whole = not message.get("more_body", False)
        return message


def _only(scope: Scope, name: bytes, *, needed: bool = True) -> Any:
    """Return the value of a header; None if it is missing and not ``needed``."""
    found = [value for key, value in scope["headers"] if key == name]
    if len(found) > 1 or (needed and not found):
        raise Refused(400, f"the header {name.decode()} must occur exactly once")
    return found[0].decode("latin-1") if found else None


def _host_name(host: str) -> str:
    """Return the name in a Host header, without its port."""
    try:
        parts = urlsplit(f"//{host}")
        name, _ = parts.hostname, parts.port
    except ValueError:
        name = None
    if name is None or parts.path or "@" in host:
        raise Refused(400, "the header host is not a host")
    return name.rstrip(".")


def _with_headers(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    there = {key.lower() for key, _ in headers}
    more = [(k.encode(), v.encode()) for k, v in _HEADERS.items() if k.encode() not in there]
    return [*headers, *more]
