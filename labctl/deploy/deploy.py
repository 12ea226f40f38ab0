"""Carrying out a plan: each missing object sent once, proven on the board, then published."""

from collections.abc import Callable
from dataclasses import dataclass, field

from labctl.board import BoardStore, DeliveryOptions
from labctl.deploy.plan import DeployPlan, Object
from labctl.deploy.sources import Sources
from labctl.errors import InfraError

#: Gets an object and the bytes of it that are on the board so far.
OnProgress = Callable[[Object, int], None]


def _ignore(*_what: object) -> None:
    """Nobody wants to know."""


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
