"""The ``time`` that a plan needs for its rows."""

import math
from collections.abc import Sequence

from labctl.config.types import format_duration
from labctl.farm.nightly.budget import LOOKS
from labctl.records.night import NightRow


def needed_seconds(rows: Sequence[NightRow]) -> float:
    """Return the time (s) for the screening of a board's rows and the confirmation of one row."""
    screening = sum(2 * row.seconds * row.screen for row in rows)
    return screening + max(map(confirming_seconds, rows))


def confirming_seconds(row: NightRow) -> float:
    """Return the time (s) of a row's confirmation; 0 for a row too noisy for it."""
    return 0.0 if row.is_too_noisy else 2 * row.seconds * LOOKS * row.look


def enough_time(row: NightRow, rows: Sequence[NightRow]) -> str:
    """Return the ``time`` that suffices for a row alone, and for the rows of its board.

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
    """Return a time in the form of a plan, rounded up to whole minutes."""
    return format_duration(60.0 * math.ceil(seconds / 60))
