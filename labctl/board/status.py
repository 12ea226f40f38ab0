"""Current status of a board: a line of ``labctl boards``.

The board shows if it answers; the lab's state has its holder and its health.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from labctl.board.facts import probe
from labctl.config.lab import Board, LabFile
from labctl.errors import LabctlError, printable_line
from labctl.records.board import Execution
from labctl.state.events import this_user
from labctl.state.health import BY_PEOPLE, BoardHealth, Health
from labctl.state.lease import StateLease
from labctl.state.reservations import Reservation
from labctl.state.state import lab_state
from labctl.transport.base import Transport
from labctl.transport.readiness import board_state
from labctl.units import local_time, size

_TIMEOUT_SECONDS = 15.0


@dataclass(frozen=True)
class BoardStatus:
    """A board as listed by `labctl boards`; ``facts`` if it is connected."""

    name: str
    target: str
    transport: str
    address: str
    state: str
    detail: str
    facts: dict[str, object] | None = None


def board_status(board: Board, connect: Callable[[Board], Transport]) -> BoardStatus:
    """Read a board's facts. Does not raise if the board cannot be reached."""
    way = board.transport
    try:
        with connect(board) as link:
            facts = probe(link, workdir=board.workdir, timeout=_TIMEOUT_SECONDS)
    except LabctlError as error:  # one such board must not hide the others
        state, why = board_state(error), _with_hint(error)
        return BoardStatus(board.name, board.target, way.kind, way.location, state, why)
    detail = [facts.machine, f"{facts.cores} cores"]
    if facts.memory_total_bytes:
        detail.append(f"{size(facts.memory_total_bytes)} memory")
    if facts.storage_free_bytes is not None:
        detail.append(f"{size(facts.storage_free_bytes)} free")
    if facts.execution is not Execution.BOARD:
        detail.append(facts.execution.upper())
    return BoardStatus(
        board.name,
        board.target,
        way.kind,
        way.location,
        board_state(None),
        ", ".join(detail),
        facts.model_dump(mode="json"),
    )


def _with_hint(error: LabctlError) -> str:
    return f"{error.message}; {error.hint}" if error.hint else error.message


#: State of a board in a lab. Any user's job can run on an idle board now.
BoardUse = Literal[
    "idle", "running", "held", "reserved", "maintenance", "offline", "bad", "looping", "retired"
]
BOARD_USES: tuple[BoardUse, ...] = get_args(BoardUse)
_UNFIT: Mapping[Health, BoardUse] = {
    Health.LOOPING: "looping",
    Health.BAD: "bad",
    Health.MAINTENANCE: "maintenance",
    Health.RETIRED: "retired",
}
_KEPT: Mapping[str, BoardUse] = {
    "hold": "held",
    "reservation": "reserved",
    "maintenance": "maintenance",
    "job": "running",  # a damaged entry may belong to a running job
}


@dataclass(frozen=True)
class BoardUsage:
    """Health of one board, and its user; ``health`` None: the lab's state cannot be read."""

    health: BoardHealth | None = None
    lease: StateLease | None = None
    kept: Reservation | None = None

    @property
    def use(self) -> BoardUse | None:
        """Its state, None if unknown: its present use, else the reason why jobs cannot use it."""
        if self.health is None:
            return None
        health = _UNFIT.get(self.health.health)
        reasons: tuple[BoardUse | None, ...] = (
            "running" if self.lease else None,
            health if self.health.health in BY_PEOPLE else None,
            _KEPT[self.kept.kind] if self.kept else None,
            "offline" if self.health.is_offline else None,
            health,
        )
        return next((reason for reason in reasons if reason), "idle")

    def document(self) -> dict[str, object]:
        """Return the usage as JSON; times in s since 1970."""
        lease, kept, health = self.lease, self.kept, self.health
        holder = lease.holder if lease else kept.holder if kept else None
        return {
            "use": self.use,
            "health": health.health.value if health else None,
            "health_reason": health.reason if health else None,
            "holder": holder,
            "purpose": lease.purpose if lease else kept.reason if kept else None,
            "since": lease.since if lease else kept.begins if kept else None,
            "until": lease.expires if lease else kept.ends if kept else None,
            "kept": kept.kind if kept else None,
            "damaged": (lease.damaged if lease else None) or (kept.damaged if kept else None),
        }

    @property
    def text(self) -> str:
        """Text for users; empty if the board is idle, good and was never checked."""
        parts = []
        if (lease := self.lease) and lease.damaged:
            parts.append(f"counts as leased: its lease is {lease.damaged}")
        elif lease and lease.expires:
            since, until = local_time(lease.since), local_time(lease.expires)
            parts.append(
                f"leased by {lease.holder} since {since}: {lease.purpose}"
                f" (until {until}, then renewed)"
            )
        if (kept := self.kept) and kept.damaged:
            parts.append(f"counts as kept: a {kept.kind} of it is {kept.damaged}")
        elif kept:
            words = {"hold": "held by", "reservation": "reserved for", "maintenance": "maintenance"}
            who = "" if kept.kind == "maintenance" else f" {kept.holder}"
            why = f": {kept.reason}" if kept.reason else ""
            times = f"since {local_time(kept.begins)} until {local_time(kept.ends)}"
            parts.append(f"{words[kept.kind]}{who} {times}{why}")
        if (health := self.health) and (health.checked_at or not health.may_work):
            why = f" ({health.reason})" if health.reason else ""
            parts.append(f"health {health.health}{why}")
        return printable_line("; ".join(parts))


def board_usages(lab: LabFile, contacts: Mapping[str, str]) -> dict[str, BoardUsage]:
    """Record the ``contacts`` with boards (words of ``board_state``); return their use by name.

    Raises HostError, ConfigError as the lab's state does.
    """
    state = lab_state(lab)
    made = {name: found for name, found in contacts.items() if found != "misconfigured"}
    state.health.contacted(made, by=this_user())
    leases = {one.board: one for one in state.leases.list()}
    kept = {one.board: one for one in state.reservations.in_force()}
    healths = {one.board: one for one in state.health.list()}
    return {
        name: BoardUsage(healths.get(name, BoardHealth(name)), leases.get(name), kept.get(name))
        for name in contacts
    }
