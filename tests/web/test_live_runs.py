"""What pages tell of a run in progress."""

from functools import reduce

from labctl.records.board import Execution
from labctl.records.events import AnyEvent, Contact, Loss, Progress, Trial
from labctl.web.live_runs import LiveRun, after


def contact(board: str) -> Contact:
    return Contact(
        run="run", recipe="speed", board=board, target="rk3568", execution=Execution.BOARD
    )


def test_nothing_of_a_board_that_was_lost_is_told_of_the_next_one() -> None:
    events: list[AnyEvent] = [
        contact("rk1"),
        Trial(number=2, trials=8, slug="threads-4", variant="threads=4", state="started"),
        Progress(phase="generate", done=3, total=9, unit="tokens", temperature_mc=81_000),
        Loss(text="rk1 is gone"),
    ]
    before = reduce(after, events, LiveRun("run"))
    assert (before.board, before.temperature_mc, before.lost) == ("rk1", 81_000, True)
    fresh = LiveRun("run", recipe="speed", board="rk2", execution="board")
    assert after(before, contact("rk2")) == fresh
