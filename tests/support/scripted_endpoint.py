"""A real HTTP server on loopback that answers as it is told, with the APIs of model servers.

::

    with scripted_endpoint({"2 + 2?": "It is \\boxed{4}."}) as server:
        ...  # server.address, server.requests

    def script(asked):  # asked is the question's text
        if asked.attempt == 1:
            return Answer(status=429, headers={"Retry-After": "0"})
        return Answer("It is 4.", first_s=0.1, token_s=0.01)

``python scripted_endpoint.py TOKENS FIRST_S TOKEN_S [LINES]`` serves one answer to every question
and prints its address: a process of its own, for measurements. LINES: its page ``/metrics`` has so
many lines of histograms before its counters.
"""

import asyncio
import contextlib
import json
import ssl
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scripted_answers import Answer, Asked, Script, Step, steps, tokenize
from scripted_metrics import Counters, Page
from scripted_shapes import MODEL, Done, Shape, dumped, facts, shape

from labctl.tcp import close_server

TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}<|assistant|>"


@dataclass
class Request:
    """One request as it came. Times are ns of the monotonic clock, which this process shares."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str]
    arrived_ns: int
    text: str | None = None
    attempt: int = 0
    #: When each token was sent, and whether the client was gone before the end.
    sent_ns: list[int] = field(default_factory=list)
    done_ns: int | None = None
    broke_off: bool = False


class ScriptedEndpoint:
    """The server; ``requests`` has all of them in the order of their arrival.

    ``slots``: how many answers are made at once, the others wait; None: all.
    """

    def __init__(self, script: Script, *, slots: int | None = None, context: int = 4096):
        self.script, self.context = script, context
        self.requests: list[Request] = []
        self.at_once = self.most_at_once = self.connections = 0
        self.address = ""
        self.models = [MODEL]
        #: Paths that this server does not have.
        self.missing: set[str] = set()
        #: Answers of paths that are not for answers, in place of the usual ones.
        self.facts: dict[str, Any] = {}
        #: Keys that a request counts as having: this server reports what nobody asked for.
        self.unasked: dict[str, Any] = {}
        #: What it does, counted; and the page ``/metrics``, which it has if this is set.
        self.counters = Counters()
        self.metrics: Callable[[Counters], Page] | None = None
        #: Status or page of ``/health``, which it has if this is set.
        self.health: int | Page | None = None
        #: A key that requests must bear.
        self.key: str | None = None
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._is_over = False
        self._asked: Counter[str] = Counter()
        self._slots = asyncio.Semaphore(slots) if slots else None

    @property
    def answered(self) -> list[Request]:
        """Requests for an answer, without those for facts."""
        return [request for request in self.requests if request.text is not None]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection's requests until the client is gone."""
        if self._is_over:
            writer.transport.abort()
            return
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = writer
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass
        finally:
            del self._serving[task]
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                writer.close()

    async def drop_clients(self) -> None:
        """Serve nobody any more; who is served now is cut."""
        self._is_over = True
        serving = dict(self._serving)
        for task, writer in serving.items():
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        line = await reader.readline()
        arrived = time.monotonic_ns()
        if not line:
            return False
        headers = {}
        while (header := await reader.readline()).strip():
            name, _, value = header.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        content = await reader.readexactly(int(headers.get("content-length", 0)))
        path = line.split()[1].decode("latin-1")
        body = json.loads(content) if content else {}
        request = Request(path, body, headers, arrived)
        self.requests.append(request)
        if path in ("/health", "/metrics"):
            return await self._show(path, writer) and headers.get("connection") != "close"
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            stays = await self._respond(request, writer)
            return stays and headers.get("connection") != "close"
        except ConnectionError:
            request.broke_off = True
            raise
        finally:
            self.at_once -= 1
            request.done_ns = time.monotonic_ns()

    async def _show(self, path: str, writer: asyncio.StreamWriter) -> bool:
        """Say how it is; vLLM does this without a key."""
        page: Page | None = None
        if path == "/health" and self.health is not None:
            page = self.health if isinstance(self.health, Page) else Page(b"", self.health)
        if path == "/metrics" and self.metrics is not None:
            page = self.metrics(self.counters)
        if page is None:
            return await _send(writer, 404, {"error": {"message": "File Not Found"}})
        await asyncio.sleep(page.wait_s)
        if page.breaks_off:
            _head(writer, page.status, {"Content-Type": "text/plain"}, length=len(page.body) + 1)
            writer.write(page.body)
            await writer.drain()
            return False
        if not page.endless:
            return await _send(writer, page.status, page.body)
        _head(writer, page.status, {"Content-Type": "text/plain"}, chunked=True)
        while True:
            _chunk(writer, page.body)
            await writer.drain()
            await asyncio.sleep(page.pause_s)

    async def _respond(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            message = f"no such key: {request.headers.get('authorization')}"
            return await _send(writer, 401, {"error": {"message": message}})
        form = shape(request.path, {**self.unasked, **request.body})
        if form is None or request.path in self.missing:
            told = self.facts.get(request.path)
            if told is None and request.path not in self.missing:
                told = facts(request.path, request.body, TEMPLATE, self.context, self.models)
            if told is None:
                return await _send(writer, 404, {"error": {"message": "File Not Found"}})
            return await _send(writer, 200, told)
        asked = Asked(form.prompt)
        self._asked[asked] += 1
        asked.body, asked.path = request.body, request.path
        asked.attempt, asked.at_once = self._asked[asked], self.at_once
        request.text, request.attempt = str(asked), asked.attempt
        told = self.script(asked)
        answer = told if isinstance(told, Answer) else Answer(told)
        if answer.hang:
            await asyncio.Event().wait()
        if answer.status != 200 or answer.body is not None:
            told = form.error(answer.status, answer.message)
            return await _send(writer, answer.status, answer.body or told, answer.headers)
        with self._counted("waiting"):
            slot = self._slots or contextlib.nullcontext()
            await slot.__aenter__()
        try:
            with self._counted("running"):
                if answer.stream:
                    return await _replay(answer.stream, writer)
                return await self._give(request, form, answer, writer)
        finally:
            await slot.__aexit__(None, None, None)

    @contextlib.contextmanager
    def _counted(self, gauge: str) -> Iterator[None]:
        setattr(self.counters, gauge, getattr(self.counters, gauge) + 1)
        try:
            yield
        finally:
            setattr(self.counters, gauge, getattr(self.counters, gauge) - 1)

    async def _give(
        self, request: Request, form: Shape, answer: Answer, writer: asyncio.StreamWriter
    ) -> bool:
        began = time.monotonic()
        if form.stream:
            _head(writer, 200, {"Content-Type": "text/event-stream"}, chunked=True)
        made: list[Step] = []
        offset = first_ns = 0
        for step in steps(answer, form.limit, form.stops):
            due = began + answer.first_s + len(made) * answer.token_s
            if (wait := due - time.monotonic()) > 0:
                await asyncio.sleep(wait)  # its pace is the script's
            if len(made) == answer.reset_after:
                writer.transport.abort()
                return False
            if len(made) in (answer.end_after, answer.error_after):
                if len(made) == answer.error_after:
                    _event(writer, form.error(500, answer.message))
                return await _end(writer)
            made.append(step)
            first_ns = first_ns or time.monotonic_ns()
            if form.stream and (event := form.event(step, answer, len(made), offset)) is not None:
                request.sent_ns.append(time.monotonic_ns())
                _event(writer, *form.copies(event))
                await writer.drain()
            if answer.flood:
                made.clear()
                await asyncio.sleep(0)  # its client has its turn
            offset += len(step.content.decode(errors="replace"))
        done = Done(
            made, answer, len(tokenize(form.prompt)), answer.first_s, time.monotonic() - began
        )
        times_ns = request.arrived_ns, first_ns
        self.counters.end(*times_ns, done.prompt_tokens, done.count, answers=form.answers)
        if not form.stream:
            return await _send(writer, 200, form.whole(done), answer.headers)
        for event in form.last(done):
            _event(writer, event)
        if form.ends_with_done:
            _chunk(writer, b"data: [DONE]\n\n")
        return await _end(writer)


def _head(
    writer: asyncio.StreamWriter,
    status: int,
    headers: Mapping[str, str],
    *,
    length: int = 0,
    chunked: bool = False,
) -> None:
    size = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {length}"
    lines = [f"HTTP/1.1 {status} Scripted", size, "Server: scripted/1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))


def _chunk(writer: asyncio.StreamWriter, content: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(content), content))


def _event(writer: asyncio.StreamWriter, *documents: Any) -> None:
    for document in documents:
        _chunk(writer, b"data: " + dumped(document) + b"\n\n")


async def _replay(stream: Sequence[tuple[float, Any]], writer: asyncio.StreamWriter) -> bool:
    began = time.monotonic()
    _head(writer, 200, {"Content-Type": "text/event-stream"}, chunked=True)
    for at, event in stream:
        await asyncio.sleep(max(0.0, began + at - time.monotonic()))  # its pace is the script's
        if isinstance(event, bytes):
            _chunk(writer, event)
        else:
            _event(writer, event)
        await writer.drain()
    return await _end(writer)


async def _end(writer: asyncio.StreamWriter) -> bool:
    """End a stream, and the connection without a word of it, as llama-server does."""
    _chunk(writer, b"")
    await writer.drain()
    return False


async def _send(
    writer: asyncio.StreamWriter, status: int, told: Any, more: Mapping[str, str] | None = None
) -> bool:
    body = told if isinstance(told, bytes) else dumped(told)
    headers = {"Content-Type": "application/json", **(more or {})}
    _head(writer, status, headers, length=len(body))
    writer.write(body)
    await writer.drain()
    return True


@contextlib.contextmanager
def scripted_endpoint(
    script: Script | Mapping[str, Any],
    *,
    tls: ssl.SSLContext | None = None,
    port: int = 0,
    **more: Any,
) -> Iterator[ScriptedEndpoint]:
    """Serve in a thread of its own.

    A mapping holds answers by a part of the question that is asked; ``""`` is for all others.
    """
    ready = threading.Event()
    server = ScriptedEndpoint(
        by_question(script) if isinstance(script, Mapping) else script, **more
    )
    loop = asyncio.new_event_loop()

    async def run() -> None:
        listening = await asyncio.start_server(
            server.serve, "127.0.0.1", port, ssl=tls, backlog=1024, limit=1 << 24
        )
        bound = listening.sockets[0].getsockname()[1]
        server.address = f"{'https' if tls else 'http'}://127.0.0.1:{bound}"
        ready.set()
        await over.wait()
        close_server(listening)
        await server.drop_clients()
        await listening.wait_closed()

    def work() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(run())

    over = asyncio.Event()
    thread = threading.Thread(target=work, name="scripted endpoint")
    thread.start()
    try:
        assert ready.wait(10)
        yield server
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()


def by_question(answers: Mapping[str, Any]) -> Script:
    """Answers by a part of the question; the longest that fits wins."""
    parts = sorted(answers, key=len, reverse=True)

    def script(asked: Asked) -> Any:
        return next(
            (answers[part] for part in parts if part in asked),
            Answer(status=400, message=f"no answer was scripted to {asked[:80]!r}"),
        )

    return script


def main() -> None:
    """Serve one answer until stdin closes."""
    count, first_s, token_s = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    answer = Answer([" word"] * (count - 1), first_s=first_s, token_s=token_s)
    with scripted_endpoint(lambda _asked: answer) as server:
        if len(sys.argv) > 4:
            before = b"".join(
                b'vllm:inter_token_latency_seconds_bucket{engine="%d",le="0.5"} 1.0\n' % number
                for number in range(int(sys.argv[4]))
            )
            server.metrics = lambda counters: Page(before + counters.page())
        sys.stdout.write(f"{server.address}\n")
        sys.stdout.flush()
        sys.stdin.read()
        for request in server.answered:
            sys.stdout.write(json.dumps([request.text, request.sent_ns]) + "\n")


if __name__ == "__main__":
    main()
