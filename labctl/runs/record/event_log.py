"""``events.jsonl`` of a run directory: its controller writes it, others read it."""

import errno
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Self

from pydantic_core import PydanticSerializationError

from labctl import interrupts
from labctl.locks import is_locked
from labctl.records.base import NewerRecord
from labctl.records.events import Answers, AnyEvent, Deploy, Fetch, Load, Progress, read_event

EVENTS = "events.jsonl"


#: Maximum size of a run's events on this host.
MAX_BYTES = 16_000_000


#: Maximum share of progress: the rest is for events that are never left out.
_PROGRESS_SHARE = 0.75


#: Minimum interval (s) of written progress of one trial or step.
INTERVAL_SECONDS = 1.0


class EventLog:
    """Appends events; for use as a context manager. A full disk ends events, not the run.

    Progress is written at most once per ``interval_s``, and less often as its part of the file
    fills, so that the remaining space lasts for another time as long as the run so far. Its part
    never fills. Other events are always written. ``on_failure`` gets the reason why writing stops.
    """

    def __init__(
        self,
        path: Path,
        on_failure: Callable[[str], None],
        *,
        max_bytes: int = MAX_BYTES,
        interval_s: float = INTERVAL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._path = path
        self._on_failure = on_failure
        #: Bytes left for progress.
        self._room = max_bytes * _PROGRESS_SHARE
        self._max_bytes = max_bytes
        self._interval_s = interval_s
        self._clock = clock
        self._lock = threading.Lock()
        self._file: BinaryIO | None = None
        self._size = 0
        self._began = clock()
        #: Time of the last written progress.
        self._last = -math.inf
        #: Steps whose start (False) or end (True) was written.
        self._edges: set[tuple[str, bool]] = set()

    def __enter__(self) -> Self:
        try:
            self._file = self._path.open("a+b", buffering=0)
            self._size = self._file.seek(0, os.SEEK_END)
            self._room -= self._size
            if self._size:
                self._file.seek(-1, os.SEEK_END)
                if self._file.read(1) != b"\n":  # torn by a power cut or a full disk
                    self._append(self._file, b"\n")
        except OSError as error:
            self._give_up(error)
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def write(self, event: AnyEvent) -> None:
        """Write an event, if it is due. Raises nothing; reports an event that is not JSON."""
        try:
            line = event.model_dump_json(exclude_none=True).encode() + b"\n"
        except PydanticSerializationError as error:
            self._on_failure(f"note: a {event.event} event is left out of {self._path}: {error}")
            return
        failed: OSError | None = None
        with self._lock:
            if self._file is None or not self._is_due(event, len(line)):
                return
            try:
                self._append(self._file, line)
            except OSError as error:
                failed = error
        if failed is not None:
            self._give_up(failed)

    def _is_due(self, event: AnyEvent, length: int) -> bool:
        if not isinstance(event, Fetch | Deploy | Progress | Answers | Load):
            return True
        now = self._clock()
        edge = (
            None
            if isinstance(event, Progress | Answers | Load)
            else (event.step, event.done == event.total)
        )
        if edge is None or edge in self._edges:
            if self._room <= length or self._size + length > self._max_bytes:
                return False
            interval = max(self._interval_s, (now - self._began) * length / self._room)
            if now - self._last < interval:
                return False
            self._last = now
        else:
            self._edges.add(edge)
        self._room -= length
        return True

    def _append(self, file: BinaryIO, line: bytes) -> None:
        if file.write(line) != len(line):  # the disk is full; the next write raises an error
            with suppress(OSError):
                os.ftruncate(file.fileno(), self._size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size += len(line)

    def _give_up(self, error: OSError) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()
        why = error.strerror or str(error)
        self._on_failure(f"note: no more events are written to {self._path}: {why}")


#: Interval (s) of reads of a watched file.
_LOOK_SECONDS = 0.5


class EventReader:
    """Reads the events of a file that grows."""

    def __init__(self, path: Path):
        self._path = path
        self._offset = 0
        self._file: BinaryIO | None = None
        #: Number of lines that are not events: torn by a power cut or a full disk.
        self.damaged = 0

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """Keep the file open, if it exists: a refused run removes it with its last event."""
        with suppress(FileNotFoundError):
            self._file = self._path.open("rb")
        try:
            yield
        finally:
            if self._file:
                self._file.close()
                self._file = None

    def _open(self) -> BinaryIO:
        if self._file is None:
            return self._path.open("rb")
        return open(self._file.fileno(), "rb", closefd=False)  # opened again: with an empty buffer

    def read(self) -> Iterator[AnyEvent]:
        """Yield new events; an incomplete last line is left for the next call.

        Raises NewerRecord. A missing file has no events.
        """
        try:
            with self._open() as file:
                file.seek(self._offset)
                for line in file:
                    if not line.endswith(b"\n"):
                        return
                    self._offset += len(line)
                    try:
                        event = read_event(line, self._path)
                    except NewerRecord:
                        raise
                    except ValueError:
                        self.damaged += 1
                        continue
                    yield event
        except FileNotFoundError:
            return


def follow(
    directory: Path, reader: EventReader, *, wait: Callable[[float], None] = interrupts.sleep
) -> Iterator[AnyEvent | None]:
    """Yield a run's events until no controller is left to write any.

    Yields None if there is nothing new. Raises NewerRecord.
    """
    with reader.kept_open():
        while True:
            alive = is_locked(directory / "lock")  # first: then its last lines are read
            came = False
            for event in reader.read():
                came = True
                yield event
            if not alive:
                return
            if not came:
                yield None
            wait(_LOOK_SECONDS)
