"""Send missing objects to a board: once each, verified there, then published. Measure the rate."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from labctl.board.store import BoardStore
from labctl.board.upload.client import ChunkedFile
from labctl.board.upload.resumable import DeliveryOptions
from labctl.deploy.plan import DeployPlan, Object
from labctl.errors import ConfigError, InfraError
from labctl.files import write_atomic
from labctl.retry import wait_until
from labctl.units import counted, size

#: Called with an object and the number of its bytes on the board so far.
OnProgress = Callable[[Object, int], None]


def _ignore(*_what: object) -> None:
    """Do nothing."""


class Sources:
    """Files of this host, read once for all boards that get them at the same time.

    A file is opened for the first board, and closed after the last.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, tuple[ChunkedFile, int]] = {}

    @contextmanager
    def reading(self, item: Object) -> Iterator[ChunkedFile]:
        """Open the object's file. Raises ConfigError if it has changed."""
        with self._lock:
            source, users = self._open.get(item.sha256, (None, 0))
            if source is None:
                source = ChunkedFile(item.local, item.sha256, item.size_bytes)
            self._open[item.sha256] = source, users + 1
        try:
            yield source
        finally:
            with self._lock:
                _, users = self._open.pop(item.sha256)
                if users > 1:
                    self._open[item.sha256] = source, users - 1
                else:
                    source.close()


@dataclass(frozen=True)
class DeployOptions:
    """Options of a deploy.

    ``sources`` is shared by all boards served at the same time. ``pace`` is called with the number
    of bytes before they are sent, and may wait; ``on_loss`` is called with the reason for each
    reconnection.
    """

    progress: OnProgress = _ignore
    pace: Callable[[int], None] = _ignore
    on_loss: Callable[[InfraError], None] = _ignore
    sources: Sources = field(default_factory=Sources)


def deploy(
    store: BoardStore, plan: DeployPlan, options: DeployOptions | None = None
) -> dict[str, str]:
    """Send the missing objects to the board; return the path there of every object, by SHA-256.

    Only complete objects count: after an error, finished objects stay, and a new plan has the rest.
    Raises the errors of :meth:`BoardStore.receive`.
    """
    options = options or DeployOptions()
    for item in plan.missing:

        def progress(done_bytes: int, item: Object = item) -> None:
            options.progress(item, done_bytes)

        with options.sources.reading(item) as source:
            store.receive(
                source,
                item.stored,
                executable=item.executable,
                options=DeliveryOptions(
                    progress=progress, pace=options.pace, on_loss=options.on_loss
                ),
            )
    return {item.sha256: store.path(item.sha256) for item in plan.objects}


#: At a lower rate per board, sending a single piece exceeds the boards' time-out.
LEAST_BYTES_PER_SECOND = 100_000
#: Burst after a pause, in seconds of the rate.
_BURST_SECONDS = 0.1
_LONGEST_WAIT_SECONDS = 3600.0
#: Fewer bytes measure the start of a transfer, not the link's rate.
LEAST_BYTES = 16 << 20


class Pace:
    """A token bucket. Threads can share it, and then share the rate.

    Raises ConfigError for a rate below ``LEAST_BYTES_PER_SECOND`` for each of ``boards``.
    """

    def __init__(self, bytes_per_second: int, boards: int = 1):
        least = LEAST_BYTES_PER_SECOND * boards
        if bytes_per_second < least:
            raise ConfigError(
                f"a limit of {size(bytes_per_second)}/s is too slow for {counted(boards, 'board')}",
                hint=f"the least is {size(least)}/s; serve fewer boards at once",
            )
        self._rate = bytes_per_second
        self._lock = threading.Lock()
        self._due = 0.0

    def __call__(self, count: int) -> None:
        """Wait until the given number of bytes may be sent."""
        with self._lock:
            now = time.monotonic()
            # Bytes use up time after they are sent; an idle link saves only a small burst.
            start = max(self._due, now - _BURST_SECONDS)
            self._due = start + count / self._rate
        if start > now:
            wait_until(
                lambda: time.monotonic() >= start,
                timeout=_LONGEST_WAIT_SECONDS,
                interval=start - now,
            )


def known_rate(path: Path) -> float | None:
    """Return the bytes per second of the last delivery, from a file; None if there is none."""
    try:
        rate = json.loads(path.read_text(encoding="utf-8"))["bytes_per_second"]
    except (OSError, ValueError, KeyError, TypeError):
        return None  # an unreadable file counts as missing
    return float(rate) if isinstance(rate, int | float) and rate > 0 else None


@dataclass
class Stopwatch:
    """Number of bytes sent over a link, and their time. Call it before bytes are sent."""

    sent_bytes: int = 0
    _began: float = field(init=False)
    _last: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self._last = time.monotonic()

    def __call__(self, count: int) -> None:
        """Count bytes that are about to be sent."""
        self.sent_bytes += count
        self._last = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the stopwatch was made."""
        return time.monotonic() - self._began

    @property
    def bytes_per_second(self) -> float | None:
        """Rate; None if too few bytes were sent to measure it."""
        return self.sent_bytes / self.seconds if self.sent_bytes >= LEAST_BYTES else None

    @contextmanager
    def noted(self, path: Path) -> Iterator[Self]:
        """Store the rate of the bytes sent in the block, if any, for :func:`known_rate`.

        The rate of an interrupted delivery is stored too. Raises HostError.
        """
        try:
            yield self
        except BaseException:
            self._note(path, self._last - self._began)
            raise
        self._note(path, self.seconds)

    def _note(self, path: Path, seconds: float) -> None:
        if self.sent_bytes >= LEAST_BYTES and seconds > 0:
            rate = round(self.sent_bytes / seconds)
            write_atomic(path, json.dumps({"bytes_per_second": rate}) + "\n")
