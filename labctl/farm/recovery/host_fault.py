"""Faults of a host: if many of its boards fail at once, the host is at fault, not the boards.

The cause may be a USB hub, the hdc server or the network of the host. Then the boards' health does
not become bad, and no switch is used.
"""

import socket
from collections.abc import Callable, Sequence
from functools import partial

from labctl.board.status import board_status
from labctl.config.lab import Board, LabFile
from labctl.retry import in_threads
from labctl.state.health import BY_PEOPLE, Health
from labctl.state.state import LabState
from labctl.transport.base import Transport

#: Number of boards to contact in parallel.
_AT_ONCE = 32
#: Minimum number of boards that fail together.
_LEAST = 2
_CONNECTED = "connected"

Connect = Callable[[Board], Transport]


def find_host_fault(
    lab: LabFile,
    board: Board,
    connect: Connect,
    state: LabState,
    hosted: Sequence[Board] | None = None,
) -> str | None:
    """Return why a board's failure is its host's fault; None if it is not.

    The host is at fault if half of its boards fail: they do not answer now, or a check of them
    failed within the window. Boards in maintenance, retired or bad for long do not count. Each
    window records it in one event only, even if many boards notice it.
    """
    host = _host(board)
    same = [one for one in lab.lab.boards.values() if one.host == board.host]
    counted = [
        one
        for one in (same if hosted is None else hosted)
        if one.name == board.name or (_host(one) == host and _counts(state, one.name))
    ]
    now = state.moment()
    since = now - lab.lab.health.host_window
    recent = {
        event.board
        for event in state.events.list(since=since, kinds=["check"])
        if event.value in ("failing", "host")
    }
    others = [one for one in counted if one.name != board.name and one.name not in recent]
    look = partial(board_status, connect=connect)
    found = in_threads(look, others, at_once=_AT_ONCE)
    silent = {one.name for one in found if one.state != _CONNECTED}
    failing = {board.name} | {one.name for one in counted if one.name in recent | silent}
    if len(failing) < max(_LEAST, len(counted) / 2):
        return None
    reason = (
        f"{len(failing)} of {len(counted)} boards of {host} fail at once ({_listed(failing)}):"
        " check its USB hub, its hdc server, its network"
    )
    place = f"host:{host}"
    if not state.events.list(place, since=since, kinds=["host"]):
        state.events.add(
            place,
            "host",
            "fault",
            by="health check",
            reason=reason,
            details={"boards": sorted(failing)},
        )
    return reason


def _host(board: Board) -> str:
    """Return the host of a board: this host, or the host through which it is reached."""
    return board.transport.attached_to or socket.gethostname()


def _counts(state: LabState, board: str) -> bool:
    return state.health.get(board).health not in (*BY_PEOPLE, Health.BAD)


def _listed(names: set[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:8]) + (f" and {len(shown) - 8} more" if len(shown) > 8 else "")
