"""Blame of a host: many of its boards that fail at once are its fault, not theirs.

A USB hub, the hdc server, the network of the host: whatever it is, no board is bad because of it,
and no board is switched.
"""

import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from labctl.board.status import board_status
from labctl.config.lab import Board, LabFile
from labctl.state import Health, LabState
from labctl.state.health import BY_PEOPLE
from labctl.transport import Transport

#: Boards that are asked at once.
_AT_ONCE = 32
#: Boards that have to fail together, at least.
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

    It is where half of the boards that are attached to its host fail: they do not answer now, or
    a check of them failed within the window. Those in maintenance, retired or bad for long do not
    count. One event says so within a window, whatever number of boards notice it.
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
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(partial(board_status, connect=connect), others)
        silent = {one.name for one in found if one.state != _CONNECTED}
    failing = {board.name} | {one.name for one in counted if one.name in recent | silent}
    if len(failing) < max(_LEAST, len(counted) / 2):
        return None
    reason = (
        f"{len(failing)} of {len(counted)} boards of {host} fail at once ({_listed(failing)}): look"
        " at its USB hub, its hdc server, its network"
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
    """Name the host that a board is attached to: this one, or one that it is reached through."""
    return board.transport.attached_to or socket.gethostname()


def _counts(state: LabState, board: str) -> bool:
    return state.health.get(board).health not in (*BY_PEOPLE, Health.BAD)


def _listed(names: set[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:8]) + (f" and {len(shown) - 8} more" if len(shown) > 8 else "")
