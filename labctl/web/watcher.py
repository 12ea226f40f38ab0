"""Checks the lab once a second for all open pages, and sends them the names of changed parts."""

import asyncio
import hashlib
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from fastapi.responses import StreamingResponse

from labctl.database.base import patience
from labctl.errors import LabctlError
from labctl.farm.news import LabNews
from labctl.farm.webhooks import notify
from labctl.index.filters import Filter
from labctl.web.lab_view import LabView
from labctl.web.live_runs import LiveRun, LiveRuns
from labctl.web.request_checks import Limits, Receive, Refused, Scope, Send

_LOOK_SECONDS = 1.0
#: Pause after comparing the index with its folders, as a multiple of its time: seconds for 100,000
#: runs.
_INDEX_SHARE = 10.0
TOPICS = ("boards", "queue", "runs", "audit")

_log = logging.getLogger("labctl.web")


class Watcher:
    """One thread that checks the lab, and any number of streams that wait for changes."""

    def __init__(self, view: LabView, limits: Limits):
        self._view = view
        self.limits = limits
        self._runs = LiveRuns()
        self.live: Sequence[LiveRun] = ()
        #: topic -> digest of its contents on pages
        self.seen: dict[str, str] = dict.fromkeys(TOPICS, "")
        self.clients = 0
        self._stop = threading.Event()
        self._closed = False
        self._changed: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._next_index = 0.0
        self._news: LabNews | None = None
        self._teller = ThreadPoolExecutor(1, "labctl-web-webhooks")

    def start(self) -> None:
        """Start checking; called in the loop of the server."""
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="labctl-web-watcher", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """End all streams, and the thread."""
        self._closed = True
        self._tell()
        self._stop.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self._teller.shutdown, cancel_futures=True)

    def close_streams(self) -> None:
        """End all streams: a stopping server waits for them."""
        self._closed = True
        self._tell()

    def look(self) -> None:
        """Check the lab once. Raises HostError, ConfigError."""
        began = time.monotonic()
        if began >= self._next_index:
            self._view.repository.refresh()
            took = time.monotonic() - began
            self._next_index = time.monotonic() + max(_LOOK_SECONDS, _INDEX_SHARE * took)
        answer = self._view.repository.answer
        wanted = Filter(states=("unfinished",))
        unfinished = answer(lambda index: index.runs(wanted, limit=1000)) or []
        ids = [one.run.id for one in unfinished]
        self.live = self._runs.look(self._view.runs_folder, ids)
        boards = [asdict(board) for board in self._view.boards()]
        jobs = [asdict(job) for job in self._view.state.jobs.list(ended=50)]
        last = self._view.state.audit.list(limit=1)
        newest = answer(lambda index: index.runs(limit=50)) or []
        stamps = [(one.run.id, one.run.stamp, one.tags) for one in newest]
        seen = {
            "boards": _digest(_shown(boards)),
            "queue": _digest(jobs),
            "runs": _digest([stamps, [asdict(one) for one in self.live]]),
            "audit": _digest([one.id for one in last]),
        }
        if seen != self.seen:
            self.seen = seen
            self._tell()
        self._tell_webhooks()

    def _tell_webhooks(self) -> None:
        """Send news to the lab's webhooks, in a separate thread: they may be slow."""
        lab = self._view.lab
        if not lab.lab.webhooks:
            return
        if self._news is None:
            self._news = LabNews(self._view.state)
        for event in self._news.look():
            self._teller.submit(notify, lab, event, note=_log.warning)

    async def changes(self, still_reads: Callable[[], Awaitable[bool]]) -> AsyncIterator[str]:
        """Yield server-sent events (WHATWG HTML, 9.2): the topics that have changed.

        The events end when ``still_reads`` returns False: the reader no longer has access.
        """
        assert self._changed is not None
        known = dict(self.seen)
        yield "retry: 3000\nevent: hello\ndata: \n\n"
        asked = time.monotonic()
        while not self._closed:
            if time.monotonic() - asked >= self.limits.alive_seconds:
                if not await still_reads():
                    return
                asked = time.monotonic()
            changed = self._changed
            topics = [topic for topic in TOPICS if self.seen[topic] != known[topic]]
            if topics:
                known = dict(self.seen)
                yield f"event: changed\ndata: {' '.join(topics)}\n\n"
                continue
            try:
                await asyncio.wait_for(changed.wait(), self.limits.alive_seconds)
            except TimeoutError:
                yield ": still here\n\n"

    @property
    def is_closed(self) -> bool:
        """True once streams must end."""
        return self._closed

    def _run(self) -> None:
        said = ""
        while not self._stop.is_set():
            try:
                with patience(0.0):
                    self.look()
                said = ""
            except LabctlError as error:  # the database restarts; the next check finds it again
                if error.message != said:
                    _log.warning("%s", error.message)
                said = error.message
            self._stop.wait(_LOOK_SECONDS)

    def _tell(self) -> None:
        if self._loop is None or self._loop.is_closed():
            return

        def wake() -> None:
            before, self._changed = self._changed, asyncio.Event()
            if before is not None:
                before.set()

        self._loop.call_soon_threadsafe(wake)


class EventStream(StreamingResponse):
    """Server-sent events. The number of streams at a time is limited.

    Raises Refused before its first byte if there are too many.
    """

    def __init__(self, watcher: Watcher, events: AsyncIterator[str]):
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._watcher = watcher

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream; it counts as open until it has ended."""
        watcher = self._watcher
        if watcher.clients >= watcher.limits.streams:
            raise Refused(503, "too many open pages: this one does not change by itself")
        watcher.clients += 1  # no other request runs between the check and this line
        try:
            await super().__call__(scope, receive, send)
        finally:
            watcher.clients -= 1


def _shown(boards: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Remove fields that change with each renewal of a lease and are never shown."""
    for board in boards:
        if board["lease"] is not None:
            board["lease"]["expires"] = 0
    return boards


def _digest(document: object) -> str:
    text = json.dumps(document, default=str, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
