"""Boards whose health check is due, and reasons not to trust a board."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from labctl.config.lab import LabFile
from labctl.state.health import BY_PEOPLE, NEVER_CHECKED, UNTRUSTED, BoardHealth
from labctl.state.state import LabState, lab_state

_DAY_SECONDS = 86_400.0
#: Older events say little about a board today.
_LOOKED_BACK_DAYS = 14
_RECOVERIES, _FLIPS = 2, 2


@dataclass(frozen=True)
class Due:
    """A board to check before the next job of a user, and the reason."""

    board: str
    reason: str


def due(lab: LabFile) -> list[Due]:
    """Return the boards whose health check is due now, longest waiting first.

    Boards in maintenance, retired boards and boards changed by an untrusted recipe are never due. A
    bad board is checked like the others: it may have been repaired. Raises HostError, ConfigError.
    """
    state = lab_state(lab)
    now = state.moment()
    known = {one.board: one for one in state.health.list()}
    found = []
    for name in lab.lab.boards:
        health = known.get(name, BoardHealth(name))
        is_settled = health.health in BY_PEOPLE or UNTRUSTED in health.evidence
        if not is_settled and (reason := _reason(lab, health, now)):
            found.append((health.checked_at or 0.0, Due(name, reason)))
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]


def _reason(lab: LabFile, health: BoardHealth, now: float) -> str | None:
    settings = lab.lab.health
    at = health.check_wanted_at
    # It may also postpone a check that is due. A date farther ahead comes from a clock that was
    # wrong.
    farthest = now + max(settings.cooling, settings.host_window) + _DAY_SECONDS
    if at is not None and at <= farthest:
        return health.check_wanted_for if at <= now else None
    if health.checked_at is None:
        return NEVER_CHECKED
    if health.checked_at > now + _DAY_SECONDS:
        return "the last check has a date in the future"
    if now - health.checked_at >= settings.every:
        return f"the last check was {(now - health.checked_at) / 3600:.1f} h ago"
    if health.jobs_since_check >= settings.jobs:
        return f"{health.jobs_since_check} jobs since the last check"
    return None


def suspicion(state: LabState, board: str) -> Sequence[str]:
    """Return the reasons in the last days not to trust a board; empty if it is trusted.

    A regression seen only on such a board must first be confirmed on another board.
    """
    health = state.health.get(board)
    events = state.events.list(board, since=state.moment() - _LOOKED_BACK_DAYS * _DAY_SECONDS)
    found = [] if health.may_work else [f"its health is {health.health}: {health.reason}"]
    often = Counter((event.kind, event.value) for event in events)
    flips = sum(count for (kind, _), count in often.items() if kind == "flip")
    if flips >= _FLIPS:
        found.append(f"its verdicts flipped {flips} times in {_LOOKED_BACK_DAYS} days")
    recoveries = sum(
        event.kind == "recovery" and event.details.get("helped") is True for event in events
    )
    if recoveries >= _RECOVERIES:
        found.append(f"it had to be brought back {recoveries} times in {_LOOKED_BACK_DAYS} days")
    found += [
        f"{count} of its last checks found it {value}"
        for (kind, value), count in often.items()
        if kind == "check" and value in ("slow", "hot")
    ]
    if any(event.kind == "firmware" and event.reason for event in events):
        found.append("its firmware changed")
    return found
