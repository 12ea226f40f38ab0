"""Carrying out a plan: each missing object sent once, proven on the board, then published."""

from collections.abc import Callable

from labctl.board import BoardStore
from labctl.deploy.plan import DeployPlan, Object

#: Gets an object and the bytes of it that were sent so far.
OnProgress = Callable[[Object, int], None]


def deploy(
    store: BoardStore, plan: DeployPlan, on_progress: OnProgress | None = None
) -> dict[str, str]:
    """Bring what is missing to the board; the path there of every object, by SHA-256.

    An object counts only when it is whole: after an error, what was finished stays, and a new plan
    holds the rest. Raises what :meth:`BoardStore.publish` raises.
    """
    for item in plan.missing:

        def progress(sent_bytes: int, item: Object = item) -> None:
            if on_progress:
                on_progress(item, sent_bytes)

        store.publish(item.local, item.stored, executable=item.executable, progress=progress)
    return {item.sha256: store.path(item.sha256) for item in plan.objects}
