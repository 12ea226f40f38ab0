"""Health checks between the jobs of users, wherever jobs run: worker, queue, batch."""

from collections.abc import Callable, Sequence

from labctl.config.lab import Board, LabFile
from labctl.errors import LabctlError
from labctl.farm.health.checking import Connect, check_if_due
from labctl.records.events import AnyEvent, Note
from labctl.runs.observer import Observer
from labctl.state import lab_state, this_user


def checks_before_jobs(
    lab: LabFile,
    connect: Connect,
    note: Callable[[str], None],
    *,
    hosted: Sequence[Board] | None = None,
) -> Callable[[str], None]:
    """Return a function that checks a board's health if a check is due.

    It does nothing in a lab without health checks. ``hosted`` are the boards of this host; None:
    all of the lab.
    """

    def show(event: AnyEvent) -> None:
        if isinstance(event, Note):
            note(event.text)

    def look(board: str) -> None:
        try:
            check_if_due(lab, lab.board(board), connect, Observer(show), hosted=hosted)
        except LabctlError as error:  # this says nothing about the board: its jobs continue
            note(f"the health of {board} cannot be checked: {error.message}")

    return look if "health" in lab.lab.model_fields_set else lambda _board: None


def require_health(
    lab: LabFile, connect: Connect, note: Callable[[str], None]
) -> Callable[[str, str | None], None]:
    """Return a function that checks a board for a user if a check is due.

    It raises BoardOutOfService if the board is sick, unless the user (``USER@HOST``; None: who runs
    this process) holds it, and BoardBusy while an untrusted recipe has it.
    """
    look, state = checks_before_jobs(lab, connect, note), lab_state(lab)

    def ready(board: str, by: str | None) -> None:
        look(board)
        state.health.require_work(board, by or this_user())

    return ready
