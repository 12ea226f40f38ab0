"""A run that goes on on another equal board when its own breaks, if the user allows it."""

from collections.abc import Callable, Sequence
from functools import partial

from labctl.config.lab import Board
from labctl.errors import BoardError, ConfigError, LinkError
from labctl.runs.observer import Observer
from labctl.runs.record.directory import RunDirectory
from labctl.runs.resume import ResumeRequest, resume
from labctl.runs.run import RunRequest, conduct
from labctl.runs.runner import Outcome
from labctl.transport import Transport


def conduct_with_spares(
    request: RunRequest,
    spares: Sequence[Board],
    connect: Callable[[Board], Transport],
    observer: Observer,
) -> Outcome:
    """Conduct a run; when link or board break it off, go on on each of the spares in turn.

    Raises what :func:`labctl.runs.run` raises, of several boards that broke the last one's
    error, and ConfigError for a spare of another target.
    """
    for spare in spares:
        if spare.target != request.board.target:
            raise ConfigError(
                f"board {spare.name} is a {spare.target}, board {request.board.name} a"
                f" {request.board.target}: no run goes on from one to the other",
                hint="name a board of the same target",
            )
    begun: list[RunDirectory] = []
    try:
        return conduct(request, partial(connect, request.board), observer, begun.append)
    except (LinkError, BoardError) as error:
        if not begun:
            raise
        broken: LinkError | BoardError = error
    for spare in spares:
        observer.note(f"{broken.message}; the run goes on on board {spare.name}")
        again = ResumeRequest(begun[0], spare, request.lab_name, request.lab_root)
        try:
            return resume(again, partial(connect, spare), observer)
        except (LinkError, BoardError) as error:
            broken = error
        except ConfigError as error:
            observer.note(f"note: board {spare.name} cannot take it: {error.message}")
    raise broken
