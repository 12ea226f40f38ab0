"""The ``time`` that a plan needs for its rows."""

import math
from collections.abc import Sequence

from labctl.config.types import format_duration
from labctl.farm.nightly.budget import LOOKS
from labctl.records.night import NightRow


def needed_seconds(rows: Sequence[NightRow]) -> float:
    """Return the time (s) that holds the screening of a board's rows, and one's confirmation."""
    screening = sum(2 * row.seconds * row.screen for row in rows)
    return screening + max(2 * row.seconds * LOOKS * row.look for row in rows)


def enough_time(row: NightRow, rows: Sequence[NightRow]) -> str:
    """Return which ``time`` would do for a row alone, and for the rows of its board.

    Returns an empty text if nobody knows how long a run takes.
    """
    if not row.seconds:
        return ""
    own = [one for one in rows if one.board == row.board and one.seconds and one.screen]
    alone, of_board = needed_seconds([row]), needed_seconds([row, *(o for o in own if o != row)])
    text = f"`time: {_time(alone)}` would do"
    if of_board > alone:
        text += f" for it alone, `time: {_time(of_board)}` for all rows of board {row.board}"
    return f"{text}, and the time of the builds"


def _time(seconds: float) -> str:
    """Return a time as a plan has it, rounded up to whole minutes."""
    return format_duration(60.0 * math.ceil(seconds / 60))
