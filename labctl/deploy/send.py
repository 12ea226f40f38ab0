"""Send a board what it lacks: each object once, proven there, then published."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from labctl.board import BoardStore, ChunkedFile, DeliveryOptions
from labctl.deploy.plan import DeployPlan, Object
from labctl.errors import InfraError

#: Gets an object and the bytes of it that are on the board so far.
OnProgress = Callable[[Object, int], None]


def _ignore(*_what: object) -> None:
    """Nobody wants to know."""


class Sources:
    """Files of this host that are read once for all boards that get them at the same time.

    A file is opened when the first board wants it, and closed when the last is done with it.
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

    ``sources`` is shared by all boards that are served at once. ``pace`` is told of bytes before
    they are sent, and may wait; ``on_loss`` is told why the link has to be taken up again.
    """

    progress: OnProgress = _ignore
    pace: Callable[[int], None] = _ignore
    on_loss: Callable[[InfraError], None] = _ignore
    sources: Sources = field(default_factory=Sources)


def deploy(
    store: BoardStore, plan: DeployPlan, options: DeployOptions | None = None
) -> dict[str, str]:
    """Bring what is missing to the board; the path there of every object, by SHA-256.

    An object counts only when it is whole: after an error, what was finished stays, and a new plan
    holds the rest. Raises what :meth:`BoardStore.receive` raises.
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
