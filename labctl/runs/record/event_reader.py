"""Reader of the ``events.jsonl`` of a run directory."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from labctl.files import is_locked
from labctl.records.base import NewerRecord
from labctl.records.events import AnyEvent, read_event

#: Interval (s) of reads of a watched file.
_LOOK_SECONDS = 0.5


class EventReader:
    """Reads the events of a file that grows."""

    def __init__(self, path: Path):
        self._path = path
        self._offset = 0
        self._file: BinaryIO | None = None
        #: Lines that are no events: torn by a power cut or a full disk.
        self.damaged = 0

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """Keep the file open, if there is one: a refused run removes it with its last event."""
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
        return open(self._file.fileno(), "rb", closefd=False)  # anew: with nothing in its buffer

    def read(self) -> Iterator[AnyEvent]:
        """Yield new events; an incomplete last line is left for the next call.

        Raises NewerRecord. A file that is not there has no events.
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
    directory: Path, reader: EventReader, *, wait: Callable[[float], None] = time.sleep
) -> Iterator[AnyEvent | None]:
    """Yield a run's events until no controller is left that could write any.

    None means that nothing new came. Raises NewerRecord.
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
