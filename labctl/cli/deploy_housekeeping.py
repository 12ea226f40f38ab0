"""``labctl deploy --verify`` and ``--prune``: what is on the boards already."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import click

from labctl.board import Inventory, Kept, PrunePolicy, StoredObject, choose, find
from labctl.cli.lab import connect_board
from labctl.cli.progress import ProgressView
from labctl.config.lab import Board, LabFile
from labctl.errors import ExitStatus, LabctlError
from labctl.runs import BoardSession, bring_agent, hold_board, meet_board
from labctl.units import size

#: What ``--prune`` removes when neither an age nor a free-space target is given.
_DEFAULT_OLDER_SECONDS = 30 * 86400.0


@dataclass(frozen=True)
class Pins:
    """What to pin, and what no longer, by name or by the first digits of its SHA-256."""

    add: Sequence[str]
    drop: Sequence[str]


def verify_boards(
    lab: LabFile, boards: Sequence[Board], view: ProgressView, *, as_json: bool
) -> int:
    """Read every file in the boards' stores again; damaged ones are removed and named."""

    def verify(board: Board) -> tuple[dict[str, object], int]:
        checked, damaged = _verify(lab, board, view)
        names = [item.name or item.sha256 for item in damaged]
        if not as_json:
            for name in names:
                click.echo(f"{board.name}: {name} was damaged; it is removed")
            click.echo(f"{board.name}: {checked - len(names)} of {checked} files are good")
        status = ExitStatus.INFRA if damaged else ExitStatus.OK
        return {"checked": checked, "damaged": names}, status

    return _each(boards, verify, as_json=as_json)


def _verify(lab: LabFile, board: Board, view: ProgressView) -> tuple[int, list[StoredObject]]:
    with (
        connect_board(board) as transport,
        meet_board(board, transport, lab_root=lab.root) as met,
    ):
        before = met.store.contents()
        # The agent hashes the others; only the board's own program may vouch for it.
        wanted = met.agent_object(lab.root).stored
        agents = [item for item in before if item.sha256 == wanted.sha256]
        damaged = met.store.verify(agents)
        session = bring_agent(met, lab.root, lambda _item, _done: None)
        rest = [item for item in before if item.sha256 != wanted.sha256]
        with view.step(f"verify {board.name}", total=sum(i.size_bytes for i in rest)) as step:
            done = 0
            for item in rest:
                step.update(done, note=item.name or item.sha256[:12])
                damaged += session.store.verify([item])
                done += item.size_bytes
        return len(before), damaged


def prune_boards(
    lab: LabFile,
    boards: Sequence[Board],
    view: ProgressView,
    policy: PrunePolicy,
    pins: Pins,
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Remove what was not used for long; pins first, so that nothing pinned goes.

    Pins alone remove nothing.
    """
    only_pins = bool(pins.add or pins.drop) and policy == PrunePolicy()
    if policy == PrunePolicy():
        policy = PrunePolicy(_DEFAULT_OLDER_SECONDS)

    def prune(board: Board) -> tuple[dict[str, object], int]:
        with (
            connect_board(board) as transport,
            hold_board(
                board, transport, lab_root=lab.root, on_sent=lambda _item, _done: None
            ) as session,
        ):
            there = _pinned(session, pins)
            agent = session.agent.path.rpartition("/")[2]
            gone = [] if only_pins else choose(there, replace(policy, needed=(agent,)))
            if not dry_run:
                session.pruner().remove(gone)
        pinned = sorted(i.told for i in there.objects if i.sha256 in there.pins)
        if not as_json:
            _tell(board, there, gone, pinned, dry_run=dry_run)
        listed = [{"path": item.path, "name": item.name, "bytes": item.size_bytes} for item in gone]
        return {"removed": listed, "dry_run": dry_run, "pinned": pinned}, ExitStatus.OK

    view.bars.stop()
    return _each(boards, prune, as_json=as_json)


def _pinned(session: BoardSession, pins: Pins) -> Inventory:
    pruner = session.pruner()
    there = pruner.inventory()
    for name in pins.add:
        pruner.pin(find(there, name))
    for name in pins.drop:
        pruner.unpin(find(there, name))
    return pruner.inventory() if pins.add or pins.drop else there


def _tell(
    board: Board, there: Inventory, gone: Sequence[Kept], pinned: Sequence[str], *, dry_run: bool
) -> None:
    verb = "would go" if dry_run else "removed"
    for item in gone:
        age = "" if item.age_seconds is None else f", unused for {item.age_seconds // 86400} days"
        click.echo(f"{board.name}: {verb}: {item.told}  {size(item.size_bytes)}{age}")
    total = f"{size(sum(item.size_bytes for item in gone))} in all" if gone else "nothing"
    held = f"; pinned: {', '.join(pinned)}" if pinned else ""
    click.echo(f"{board.name}: {verb}: {total}{held}")
    if there.foreign_host:
        click.echo(
            f"{board.name}: a controller on {there.foreign_host} took the board lately:"
            " what was used within a day stays"
        )


def _each(
    boards: Sequence[Board],
    work: Callable[[Board], tuple[dict[str, object], int]],
    *,
    as_json: bool,
) -> int:
    """Do it for every board; with several, one's failure does not stop the others."""
    told: list[dict[str, object]] = []
    worst: int = ExitStatus.OK
    for board in boards:
        try:
            found, status = work(board)
        except LabctlError as error:
            if len(boards) == 1:
                raise
            click.echo(f"{board.name}: {error.message}", err=True)
            found, status = {"error": error.message}, error.exit_status
        told.append({"board": board.name, **found})
        worst = max(worst, status)
    if as_json:
        click.echo(json.dumps(told, indent=2))
    return worst
