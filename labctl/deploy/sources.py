"""Files of this host that are read once for all boards that get them at the same time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from labctl.board import ChunkedFile
from labctl.deploy.plan import Object


class Sources:
    """Opened when the first board wants a file, closed when the last is done with it."""

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
