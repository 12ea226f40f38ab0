"""``labctl run --spare``: fail over to another equal board when the first one breaks."""

from collections.abc import Callable, Sequence
from functools import partial

from labctl.config.lab import Board
from labctl.errors import BoardError, ConfigError, LinkError
from labctl.runs.observer import Observer, RunSession
from labctl.runs.record.under_way import last_board
from labctl.runs.resume import ResumeRequest, resume_recorded
from labctl.runs.run import RunRequest, run_recorded
from labctl.runs.runner import Judge, Outcome, usual_status
from labctl.transport.base import Transport


def run_with_failover(
    request: RunRequest,
    others: Sequence[Board],
    connect: Callable[[Board], Transport],
    observer: Observer,
    judge: Judge = usual_status,
) -> Outcome:
    """Run a recipe; if link or board fail, continue on each of the other boards in turn.

    The run's last event has the exit status that ``judge`` gives it. Raises the errors of
    :func:`labctl.runs.run.run_recipe`; if several boards failed, the last one's error. Raises
    ConfigError for a board of another target, and if the run ended on another board with a
    ConfigError.
    """
    for other in others:
        if other.target != request.board.target:
            raise ConfigError(
                f"board {other.name} is a {other.target}, board {request.board.name} a"
                f" {request.board.target}: a run cannot move from one to the other",
                hint="name a board of the same target",
            )
    with RunSession(observer) as session:
        outcome = _on_one_of(request, others, connect, observer, session)
        session.finished(judge(outcome))
        return outcome


def _on_one_of(
    request: RunRequest,
    others: Sequence[Board],
    connect: Callable[[Board], Transport],
    observer: Observer,
    session: RunSession,
) -> Outcome:
    try:
        return run_recorded(request, partial(connect, request.board), observer, session)
    except (LinkError, BoardError) as error:
        directory = session.directory
        if directory is None or not directory.is_planned:
            raise
        broken: LinkError | BoardError = error
    for other in others:
        observer.note(f"{broken.message}; the run continues on board {other.name}")
        again = ResumeRequest(
            directory, other, request.lab, request.build, request.compare, request.use
        )
        try:
            return resume_recorded(again, partial(connect, other), observer, session)
        except (LinkError, BoardError) as error:
            broken = error
        except ConfigError as error:
            if last_board(directory) == other.name:
                raise  # the run had moved there, and ended with this error
            observer.note(f"note: board {other.name} cannot take it: {error.message}")
    raise broken
