"""The beginning of every run: contact first, fetch later.

A loose cable, a board of another target or one that is taken shows in seconds, not after gigabytes
were downloaded and quantised. While they are, the board is let go: nobody waits for a download.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from labctl.board import Lease
from labctl.config.lab import Board
from labctl.deploy import refuse
from labctl.runs.board.deploy_preview import Offer, make_offer, sending
from labctl.runs.board.held_board import BoardMeeting, BoardSession, bring_agent, meet_board
from labctl.runs.inputs.prepare import Prepared, RecipeFiles
from labctl.runs.observer import Observer
from labctl.transport import Transport


@dataclass(frozen=True)
class OpenedBoard:
    """A board that is ours until the context ends, and a recipe that nothing of is missing here."""

    met: BoardMeeting
    session: BoardSession
    prepared: Prepared
    offer: Offer


@contextmanager
def open_board(
    files: RecipeFiles,
    board: Board,
    connect: Callable[[], Transport],
    observer: Observer,
    *,
    lab_root: Path,
    ours: Callable[[Lease], bool] | None = None,
) -> Iterator[OpenedBoard]:
    """Meet a board, see what it can take, fetch the models, and look again before it is used.

    A lease that is ``ours`` is not respected. Raises BoardBusy and what else
    :func:`labctl.runs.board.held_board.meet_board` raises, what :func:`labctl.models.resolve`
    raises, and all problems of :func:`labctl.deploy.refuse` as soon as they are known.
    """
    with ExitStack() as held:

        def meet() -> BoardMeeting:
            transport = held.enter_context(connect())
            met = held.enter_context(meet_board(board, transport, lab_root=lab_root))
            met.refuse_if_taken(ours=ours)
            return met

        met = meet()
        here = files.models_are_here
        if not here:
            expected = make_offer(met, [files.expected(observer.step)], lab_root)
            refuse(expected.problems, board.name)
            for warning in expected.warnings:
                observer.note(f"note: before anything is fetched: {warning}")
            held.close()
        prepared = files.with_models(observer.step)
        if not here:
            met = meet()
        offer = make_offer(met, [prepared], lab_root)
        refuse(offer.problems, board.name)
        yield OpenedBoard(met, bring_agent(met, lab_root, sending(observer)), prepared, offer)
