"""The lab hosts of a night's boards, and the requirements to measure a board of another host."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from labctl.config.lab import LabFile
from labctl.errors import ConfigError
from labctl.records.night import NightRecord
from labctl.state.state import lab_state
from labctl.units import duration


def check_reach(lab: LabFile, board: str, own: str) -> None:
    """Raise ConfigError for a board of another host that a night of this host cannot measure."""
    known = lab.lab.boards.get(board)
    there = None if known is None else known.host
    if there is None or there == own:
        return
    where = f"board {board} is attached to host {there}, and this is {own}"
    same = f"where this host is {there}, type `labctl nightly --host {there}`"
    if lab.database is None:
        raise ConfigError(
            f"{where}: a night reaches it through a PostgreSQL, and this lab has none",
            hint=f"add `database: postgresql://USER@HOST/DATABASE` to {lab.path}; {same}",
        )
    if lab.lab.store is None:
        raise ConfigError(
            f"{where}: its builds and runs travel through a shared store, and this lab has none",
            hint=f"add `store`, which both hosts see, to {lab.path}; {same}",
        )
    state = lab_state(lab)
    is_known = any(one.host == there or board in one.boards for one in state.workers.list())
    if not is_known and not state.events.list(board, limit=1):
        raise ConfigError(
            f"{where}: no worker was ever seen there",
            hint=f"start `labctl worker --host {there}` on that host; {same}",
        )


@dataclass(frozen=True)
class NightHost:
    """A lab host of a night's boards."""

    boards: tuple[str, ...]
    #: True for the host of the night, which uses its boards itself.
    is_this: bool
    #: Boards that no living worker serves -> time (s) since its last sign of life, if known.
    unserved: Mapping[str, float | None]


def hosts_of(lab: LabFile, record: NightRecord, own: str) -> Mapping[str, NightHost]:
    """Return the hosts of a night's boards, by name."""
    found: dict[str, list[str]] = {}
    for board in dict.fromkeys(row.board for row in record.rows):
        found.setdefault(lab.lab.boards[board].host or own, []).append(board)
    workers = lab_state(lab).workers.list() if set(found) - {own} else ()
    served = {board for one in workers if one.is_alive for board in one.boards}

    def silent(board: str) -> float | None:
        return min((one.silent_seconds for one in workers if board in one.boards), default=None)

    return {
        host: NightHost(
            tuple(boards),
            host == own,
            {} if host == own else {one: silent(one) for one in boards if one not in served},
        )
        for host, boards in found.items()
    }


def host_lines(hosts: Mapping[str, NightHost]) -> Iterator[str]:
    """Yield the hosts for people, unless all boards are of this one."""
    if all(host.is_this for host in hosts.values()):
        return
    for name, host in hosts.items():
        which = f"{name} (this one)" if host.is_this else name
        alive = "" if host.is_this or host.unserved else "; its worker is alive"
        yield f"host {which}: {', '.join(host.boards)}{alive}"
        for board, silent in host.unserved.items():
            since = "" if silent is None else f", last sign of life {duration(silent * 1e9)} ago"
            yield f"NO WORKER serves {board} now{since}: start `labctl worker` on host {name}"
