"""Refuse requests that honest browsers and programs never send, before reading them.

DNS rebinding gives a wrong Host. A form of another site gives a wrong Origin (RFC 6454). So does a
page on another port of this host, to which browsers send the same cookies.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_BODY_BYTES = 64 * 1024
#: Maximum bytes of a refused body to read before its connection ends.
_MOST_DRAINED_BYTES = 4 << 20
_METHODS = ("GET", "HEAD", "POST", "DELETE")
_LONGEST_TARGET = 4096
#: Only our own scripts and styles, nothing from other sites, and no frames.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
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

    #: Maximum connections at a time; a further connection is answered with 503.
    connections: int = 200
    #: Maximum requests at a time of one address, except the proxies in devices.yaml.
    requests_of_address: int = 100
    #: Maximum connections of one address that wait without a request for more than a second.
    waiting_of_address: int = 20
    #: Time from the start of a connection, or of its next request, to the end of the request's
    #: head.
    head_seconds: float = 5.0
    #: Time from the first to the last byte of a body.
    body_seconds: float = 15.0
    #: Maximum streams of events at a time.
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
    """An ASGI application around another application.

    Args:
        app: the application.
        names: host names of the server.
        limits: limits for its clients.
        proxies: addresses that many people share.
    """

    def __init__(
        self,
        app: App,
        names: frozenset[str],
        limits: Limits,
        proxies: Sequence[IPv4Network | IPv6Network] = (),
    ):
        self._app = app
        self._names = names
        self._proxies = proxies
        self._active: Counter[str] = Counter()
        #: Connections without a request by address, oldest first.
        self.idle: dict[str, dict[asyncio.Transport, None]] = {}
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
        body = _Body(scope, receive, self.limits.body_seconds)

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._count(scope["method"], message["status"])
                headers = _with_headers(message.get("headers", []))
                if body.is_open:
                    headers.append((b"connection", b"close"))
                message = {**message, "headers": headers}
            elif body.is_open and not message.get("more_body", False):
                # Closing a connection with unread bytes resets it: the answer would be lost.
                await send({**message, "more_body": True})
                await body.drain()
                message = {"type": "http.response.body", "body": b""}
            await send(message)

        address = self.address_of(scope.get("client"))
        self._active[address] += 1
        try:
            self._check(scope, address)
            body.check()
            if scope["method"] == "HEAD":
                await _answer_head(self._app, scope, body.receive, sending)
            else:
                await self._app(scope, body.receive, sending)
        except Refused as refused:
            if started:
                raise
            text = f"{refused.reason}\n".encode()
            headers = [
                (b"content-type", b"text/plain; charset=utf-8"),
                (b"content-length", str(len(text)).encode()),
            ]
            start = {"type": "http.response.start", "status": refused.status, "headers": headers}
            await sending(start)
            await sending({"type": "http.response.body", "body": text})
        finally:
            self._active[address] -= 1
            if not self._active[address]:
                del self._active[address]

    def address_of(self, client: tuple[str, int] | None) -> str:
        """Return the address of a client for limits: IPv4, or the /64 network of IPv6.

        Empty for named proxies and for a Unix socket.
        """
        if not client:
            return ""
        try:
            address = ip_address(client[0])
        except ValueError:
            return ""
        if any(address in network for network in self._proxies):
            return ""
        if address.version == 6:
            return str(ip_network((address, 64), strict=False))
        return str(address)

    def _check(self, scope: Scope, address: str) -> None:
        if address and self._active[address] > self.limits.requests_of_address:
            raise Refused(503, "too many requests of this address at a time")
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
        headers = dict(scope["headers"])
        self._length = headers.get(b"content-length", b"0")
        self._receive = receive
        self._seconds = seconds
        self._read = 0
        self._until: float | None = None
        #: A client that waits for "100 Continue" sends nothing before it.
        is_there = self._length != b"0" or b"transfer-encoding" in headers
        self.is_open = is_there and b"expect" not in headers

    def check(self) -> None:
        """Raise Refused for a body whose announced length is too long."""
        if not self._length.isdigit() or int(self._length[:12]) > MOST_BODY_BYTES:
            raise Refused(413, f"a body has at most {MOST_BODY_BYTES} bytes")

    async def receive(self) -> Message:
        try:
            message = await self._next()
        except TimeoutError:
            raise Refused(408, "the body did not come in time") from None
        if self._read > MOST_BODY_BYTES:
            raise Refused(413, f"a body has at most {MOST_BODY_BYTES} bytes")
        return message

    async def drain(self) -> None:
        """Read and discard the rest of the body, within limits of bytes and time."""
        with suppress(TimeoutError):
            while self.is_open and self._read <= _MOST_DRAINED_BYTES:
                await self._next()

    async def _next(self) -> Message:
        """Return the next part of the body, then only the end of the connection."""
        if not self.is_open and self._until is not None:
            return await self._receive()
        if self._until is None:
            self._until = asyncio.get_running_loop().time() + self._seconds
        async with asyncio.timeout_at(self._until):
            message = await self._receive()
        self._read += len(message.get("body", b""))
        self.is_open = message.get("more_body", False)
        return message


async def _answer_head(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer HEAD as GET without the body, also if the body never ends (RFC 9110, 9.3.2)."""
    answered = asyncio.Event()

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b""})
            answered.set()

    running = asyncio.create_task(_run(app, {**scope, "method": "GET"}, receive, sending))
    waiting = asyncio.create_task(answered.wait())
    try:
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        if answered.is_set():
            running.cancel()
        await asyncio.wait({running})
    if not running.cancelled():
        running.result()


async def _run(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    await app(scope, receive, send)


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
