"""Requests to one server over HTTP: limits of time and size, kinds of failures, a secret key."""

import asyncio
import json
import math
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pydantic import JsonValue

from labctl.config.printed import read_json
from labctl.errors import ConfigError, OutputNotUnderstood
from labctl.evaluation.endpoints.errors import Refused, TryAgain
from labctl.evaluation.endpoints.events import MOST_BYTES, EventReader
from labctl.http import many_at_once, reason_of

if TYPE_CHECKING:
    import httpx

#: Time-out (s) of an answer that needs no model: a list of models, tokens of a text.
FACT_SECONDS = 60.0
_MOST_ERROR_BYTES = 64 << 10
_SHOWN = 500
#: HTTP statuses that mean that the server does not have the path.
_ABSENT = (404, 405, 501)
#: Shorter keys, such as `x` or `EMPTY`, may be words in answers too: see :class:`Connection`.
_DISTINCT_KEY = 8


@dataclass(frozen=True)
class Exchange:
    """Times of one answer in ns of the monotonic clock, and the server's name.

    ``is_stream``: it came as events, not in one piece.
    """

    sent_ns: int
    done_ns: int
    server: str | None
    is_stream: bool


class Connection:
    """Requests to one server, ``connections`` at once; others wait before their time starts.

    The key is sent as a bearer token, to this server alone: redirects are not followed. A server
    may repeat the key, so it is replaced in everything that is kept or shown. A short key is
    replaced only in error messages, and only as a whole word: otherwise answers would be garbled.
    """

    def __init__(
        self, address: str, *, key: str | None, connections: int, silence_s: float | None = None
    ):
        self.address = address
        self._in_messages, self._in_records = _patterns(key)
        parts = urlsplit(address)
        host = parts.hostname or ""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        if parts.scheme == "http":
            # llama-server promises to keep a connection, but closes it after a stream: the next
            # request would be lost. A new one costs a round trip; over TLS it would cost more.
            headers["Connection"] = "close"
        self._client = many_at_once(
            address,
            connections=connections,
            headers=headers,
            silence_s=silence_s,
            # A proxy cannot reach this host's own servers.
            direct=host in ("localhost", "::1") or host.startswith("127."),
        )
        self._slots = asyncio.Semaphore(connections)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def exchange(
        self,
        path: str,
        document: Mapping[str, JsonValue],
        take: Callable[[int, bytes], None],
        *,
        timeout: float,
    ) -> Exchange:
        """Post a request; call ``take`` for each event with its stamp, or once for a whole answer.

        Raises TryAgain, Refused, ConfigError, OutputNotUnderstood.
        """
        content = json.dumps(document).encode()
        last = 0

        def noted(stamp_ns: int, data: bytes) -> None:
            nonlocal last
            last = stamp_ns
            take(stamp_ns, self._without_key(data))

        async with self._slots:
            with self._lost(timeout):
                async with asyncio.timeout(timeout):
                    sent = time.monotonic_ns()
                    async with self._client.stream(
                        "POST", path, content=content, headers={"Content-Type": "application/json"}
                    ) as answer:
                        await self._check(answer)
                        is_stream = "event-stream" in answer.headers.get("Content-Type", "")
                        if is_stream:
                            reader = EventReader(noted)
                            async for piece in answer.aiter_raw():
                                reader.feed(piece, time.monotonic_ns())
                            reader.close()
                        else:
                            body = await _body(answer, MOST_BYTES)
                            noted(time.monotonic_ns(), body)
        return Exchange(sent, last or time.monotonic_ns(), self._server(answer), is_stream)

    async def fact(
        self, method: str, path: str, document: Mapping[str, JsonValue] | None = None
    ) -> tuple[bytes, str | None] | None:
        """Return a small answer's body and the server's name; None if the server lacks the path."""
        content = None if document is None else json.dumps(document).encode()
        headers = {} if content is None else {"Content-Type": "application/json"}
        with self._lost(FACT_SECONDS):
            async with (
                asyncio.timeout(FACT_SECONDS),
                self._client.stream(method, path, content=content, headers=headers) as answer,
            ):
                if answer.status_code in _ABSENT:
                    return None
                await self._check(answer)
                body = await _body(answer, MOST_BYTES)
                return self._without_key(body), self._server(answer)

    @asynccontextmanager
    async def page(self, path: str, *, timeout: float) -> "AsyncIterator[httpx.Response]":
        """Yield the answer of a path that is not part of the API, whatever its status.

        ``timeout``: seconds, including the reading of the body in the block. Raises TryAgain.
        """
        with self._lost(timeout):
            async with asyncio.timeout(timeout), self._client.stream("GET", path) as answer:
                yield answer

    async def trouble(self, answer: "httpx.Response") -> TryAgain:
        """Return the error of an answer, with the server's words."""
        said = self._shown(_error_in(await _body(answer, _MOST_ERROR_BYTES)))
        what = f"{self.address}: {answer.request.url.path}: status {answer.status_code}"
        return _try_again(f"{what}: {said}" if said else what, answer)

    def _server(self, answer: "httpx.Response") -> str | None:
        name = answer.headers.get("Server")
        return None if name is None else self._without_key(name.encode()).decode()[:_SHOWN]

    def error_in_stream(self, error: object) -> Exception:
        """Return the failure that an event reports; a failure of the server leads to a retry."""
        code = error.get("code") if isinstance(error, dict) else None
        message = f"{self.address} ended the answer with an error: {self._shown(_message(error))}"
        if isinstance(code, int) and 400 <= code < 500 and code not in (408, 429):
            return refused(message, code, self._shown(_message(error)))
        return TryAgain(message)

    async def _check(self, answer: "httpx.Response") -> None:
        """Raise the error that a status means."""
        status = answer.status_code
        if status == 200:
            return
        if 300 <= status < 400:
            leads_to = urlsplit(answer.headers.get("Location", "")).netloc
            raise ConfigError(
                f"{self.address} redirects to {self._shown(leads_to) or 'another path'}",
                hint="use the address that it redirects to: redirects are not followed",
            )
        body = await _body(answer, _MOST_ERROR_BYTES)
        said = self._shown(_error_in(body))
        message = f"{self.address}: status {status}: {said}"
        if status in (401, 403):
            raise ConfigError(message, hint="key_env names the variable that holds the key")
        if status == 404:
            raise ConfigError(message, hint="check the address, the api and served_name")
        if status in (408, 425, 429) or (status >= 500 and status not in (501, 505)):
            raise _try_again(message, answer)
        raise refused(message, status, said)

    @contextmanager
    def _lost(self, timeout: float) -> Iterator[None]:
        """Raise losses of the connection, and time-outs, as TryAgain."""
        import httpx

        try:
            yield
        except TimeoutError as error:
            raise TryAgain(f"{self.address} did not answer in {timeout:g} s") from error
        except httpx.HTTPError as error:
            raise TryAgain(
                f"lost {self.address}: {reason_of(error)}", hint="is the server still running?"
            ) from error

    def _without_key(self, data: bytes) -> bytes:
        """Remove the key, which the server may repeat, from text for records."""
        return data if self._in_records is None else self._in_records.sub(b"***", data)

    def _shown(self, text: str) -> str:
        """Return a server's text for a message, without the key, which the server may repeat."""
        text = text if self._in_messages is None else self._in_messages.sub("***", text)
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _patterns(key: str | None) -> "tuple[re.Pattern[str] | None, re.Pattern[bytes] | None]":
    """Return patterns that find a key in messages, and in kept answers."""
    if not key:
        return None, None
    word = re.escape(key)
    if len(key) >= _DISTINCT_KEY:
        return re.compile(word), re.compile(word.encode())
    return re.compile(rf"(?<![\w-]){word}(?![\w-])"), None


def refused(message: str, status: int, said: str = "") -> Refused:
    """Return the refusal of a request."""
    error = Refused(message)
    error.status, error.said = status, said
    return error


def _try_again(message: str, answer: "httpx.Response") -> TryAgain:
    error = TryAgain(message)
    error.status = answer.status_code
    error.retry_after_s = _seconds(answer.headers.get("Retry-After"))
    return error


async def _body(answer: "httpx.Response", most: int) -> bytes:
    body = bytearray()
    async for piece in answer.aiter_raw():
        body += piece
        if len(body) > most:
            raise OutputNotUnderstood(f"the server's answer has no end: {len(body)} bytes so far")
    return bytes(body)


def _error_in(body: bytes) -> str:
    """Return the message in an error's body; servers write it in several ways."""
    try:
        document = read_json(body)
    except ValueError:
        return body.decode(errors="replace")
    return _message(document)


def _message(found: object) -> str:
    for name in ("error", "message", "detail"):
        while isinstance(found, dict) and found.get(name):
            found = found[name]
    return str(found)


def _seconds(retry_after: str | None) -> float | None:
    """Read ``Retry-After``: seconds, or a date (RFC 9110, 10.2.3)."""
    if retry_after is None:
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(retry_after).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
