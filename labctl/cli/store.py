"""``labctl store``: labctl's files on boards, several at once. ``deploy`` sends them."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import click

from labctl.board.prune import Inventory, PrunePolicy, Pruner, StoreEntry, Verified, choose, find
from labctl.cli.deploy_view import waiting_text
from labctl.cli.lab import connect_board, lab_of
from labctl.cli.options import DURATION, SIZE, choose_boards, several_boards
from labctl.cli.output import json_option
from labctl.cli.progress import ProgressView
from labctl.cli.root import Invocation
from labctl.config.lab import Board, LabFile
from labctl.errors import (
    BoardBusy,
    BoardError,
    ExitStatus,
    HostError,
    LabctlError,
    printable,
    printable_line,
)
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.board.session import hold_board
from labctl.runs.deploy import at_once, board_document, pruner_of, when_free
from labctl.transport.base import Transport
from labctl.units import counted, size

#: Age of files to prune if neither an age nor a free-space target is given.
_DEFAULT_OLDER_SECONDS = 30 * 86400.0


@dataclass(frozen=True)
class _Pins:
    """Objects to pin and to unpin, by name or by the first digits of the SHA-256."""

    add: Sequence[str] = ()
    drop: Sequence[str] = ()


@dataclass(frozen=True)
class Findings:
    """Result of a command on a board, for programs and for people, with its exit status."""

    document: Mapping[str, object] | LabctlError
    lines: Sequence[str]
    status: int = ExitStatus.OK


def list_boards(work: "_StoreWork") -> int:
    """List the files of the board stores."""
    return work.run(lambda board, transport: _listed(work.lab, board, transport))


def _listed(lab: LabFile, board: Board, transport: Transport) -> Findings:
    with hold_board(board, transport, lab, BoardUse("store list", kind="store")) as held:
        there = pruner_of(held)[0].inventory()
    lines = []
    for item in sorted(there.objects, key=lambda item: item.label):
        pinned = ", pinned" if item.sha256 in there.pins else ""
        lines.append(f"{item.label}  {size(item.size_bytes)}{age_text(item)}{pinned}")
    lines += [f"{item.path}  {size(item.size_bytes)}, incomplete" for item in there.partials]
    lines += [f"{item.path}  {size(item.size_bytes)}, a job's files" for item in there.jobs]
    whole = sum(item.size_bytes for item in (*there.objects, *there.partials, *there.jobs))
    free = "" if there.free_bytes is None else f", {size(there.free_bytes)} free"
    return Findings(
        there.document(),
        [*lines, f"{counted(len(there.objects), 'file')}, {size(whole)} in all{free}"],
    )


def age_text(item: StoreEntry) -> str:
    """Return the time since a file was last used; nothing if the board's clock is unreliable."""
    if item.age_seconds is None:
        return ""
    days = item.age_seconds // 86400
    return f", unused for {counted(days, 'day')}" if days else ", used in the last 24 hours"


def _verify_boards(work: "_StoreWork") -> int:
    """Read every file of the board stores again; remove and name damaged ones."""
    return work.run(lambda board, transport: _verify(work.lab, board, transport, work))


def _verify(lab: LabFile, board: Board, transport: Transport, work: "_StoreWork") -> Findings:
    unread: dict[str, str] = {}
    with hold_board(board, transport, lab, BoardUse("store verify", kind="store")) as held:
        held.claim.refuse_if_taken(orphans=True)  # reading disturbs a measurement
        held.claim.take_in_lab()
        before = held.store.contents()
        # The agent hashes the other files; the agent itself is hashed by the board's own program.
        wanted = held.agent_object.stored
        agents = [item for item in before if item.sha256 == wanted.sha256]
        damaged = [item.name or item.sha256 for item in held.store.verify(agents)]
        held.bring_agent(lambda _item, _done: None, anew=bool(damaged))
        rest = [item for item in before if item.sha256 != wanted.sha256]
        total = sum(item.size_bytes for item in rest)
        with work.view.step(f"verify {board.name}", total=total) as step:
            done = 0
            for item in rest:
                work.go_on()
                name = item.name or item.sha256
                step.update(done, note=name)
                try:
                    if held.store.verify([item]):
                        damaged.append(name)
                except BoardError as error:  # bad storage; other files may be good
                    unread[name] = error.message
                done += item.size_bytes
    good = len(before) - len(damaged) - len(unread)
    return Findings(
        Verified(len(before), damaged, unread).document(),
        [
            *(f"{name} was damaged and is removed" for name in damaged),
            *(f"{name} cannot be read: {why}" for name, why in unread.items()),
            f"{good} of {len(before)} files are good",
        ],
        ExitStatus.INFRA if damaged or unread else ExitStatus.OK,
    )


def _prune_boards(work: "_StoreWork", policy: PrunePolicy, pins: _Pins, *, dry_run: bool) -> int:
    """Pin and unpin, then remove the least recently used objects; pins alone remove nothing."""
    only_pins = bool(pins.add or pins.drop) and policy == PrunePolicy()
    if policy == PrunePolicy():
        policy = PrunePolicy(_DEFAULT_OLDER_SECONDS)

    def prune(board: Board, transport: Transport) -> Findings:
        with hold_board(board, transport, work.lab, BoardUse("store prune", kind="store")) as held:
            if not dry_run:
                held.claim.take_in_lab()
            pruner, agent = pruner_of(held)
            there = _pinned(pruner, pins)
            gone = [] if only_pins else choose(there, replace(policy, needed=(agent,)))
            if not dry_run:
                gone = pruner.remove(gone)
        found = _pruned(there, gone, policy, dry_run=dry_run)
        if only_pins:
            return replace(found, lines=[f"pinned {', '.join(there.pinned) or 'nothing'}"])
        return found

    return work.run(prune)


def _pinned(pruner: Pruner, pins: _Pins) -> Inventory:
    there = pruner.inventory()
    for name in pins.add:
        pruner.pin(find(there, name))
    for name in pins.drop:
        pruner.unpin(find(there, name))
    return pruner.inventory() if pins.add or pins.drop else there


def _pruned(
    there: Inventory, gone: Sequence[StoreEntry], policy: PrunePolicy, *, dry_run: bool
) -> Findings:
    verb = "would remove" if dry_run else "removed"
    lines = [f"{verb}: {item.label}  {size(item.size_bytes)}{age_text(item)}" for item in gone]
    freed = sum(item.size_bytes for item in gone)
    held = f"; pinned: {', '.join(there.pinned)}" if there.pinned else ""
    total = f"{verb}: {size(freed)} in all" if gone else "nothing to remove"
    lines.append(f"{total}{held}")
    if there.holder:
        host = printable(there.holder.host)
        lines.append(f"a controller on {host} uses the board: its files stay")
    free = None if there.free_bytes is None else there.free_bytes + freed
    if policy.free_bytes is not None and free is not None and free < policy.free_bytes:
        lines.append(f"only {size(free)} free afterwards, not {size(policy.free_bytes)}")
    return Findings(there.document_without(gone, dry_run=dry_run), lines)


class _StoreWork:
    """Work on all boards in parallel; a failure on one does not affect the others."""

    def __init__(
        self,
        lab: LabFile,
        boards: Sequence[Board],
        view: ProgressView,
        *,
        as_json: bool,
        wait: bool,
    ):
        self.lab = lab
        self.view = view
        self._boards = boards
        self._as_json = as_json
        self._wait = wait
        #: Boards whose present user was reported.
        self._named: set[str] = set()
        self._stopped = threading.Event()

    def go_on(self) -> None:
        """Raise HostError when the command was interrupted."""
        if self._stopped.is_set():
            raise HostError("interrupted")

    def run(self, work: Callable[[Board, Transport], Findings]) -> int:
        """Do the work and print the results, board by board. Raises the error of a single board."""
        found: dict[str, Findings] = {}
        with ExitStack() as opened:
            links = [(board, opened.enter_context(connect_board(board))) for board in self._boards]

            def inspect(link: tuple[Board, Transport]) -> None:
                board, transport = link
                try:
                    found[board.name] = when_free(
                        lambda: work(board, transport), partial(self._waits, board)
                    )
                except LabctlError as error:
                    if len(links) == 1:
                        raise
                    found[board.name] = self._failed(board, error)

            def stop() -> None:
                self._stopped.set()
                for _, transport in links:  # ends the waiting for a board
                    transport.close()

            at_once(links, inspect, stop)
        self.view.bars.stop()
        results = [(board.name, found[board.name]) for board in self._boards]
        if self._as_json:
            rows = [board_document(name, findings.document) for name, findings in results]
            click.echo(json.dumps(rows, indent=2))
        else:
            for name, findings in results:
                for line in findings.lines:
                    click.echo(printable_line(f"{name}: {line}"))
        return max((findings.status for _, findings in results), default=ExitStatus.OK)

    def _waits(self, board: Board, error: BoardBusy) -> None:
        self.go_on()
        if not self._wait:
            raise error
        if board.name not in self._named:
            self._named.add(board.name)
            self.view.say(waiting_text(error))

    def _failed(self, board: Board, error: LabctlError) -> Findings:
        """Report a failure at once. It is repeated among the results."""
        if not self._stopped.is_set():  # otherwise the interrupt is reported
            self.view.say(f"{board.name}: {error.message}")
            if error.hint:
                self.view.say(f"  hint: {error.hint}")
        return Findings(error, [f"failed: {error.message}"], error.exit_status)


@click.group(epilog="Example: labctl store prune --board rk1 --free 4GB --dry-run")
def store() -> None:
    """List, verify, prune and pin the files of boards.

    A board store has programs and models under their SHA-256; `labctl deploy` sends them. While
    another labctl uses a board, every command here waits.
    """


def _common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every command here."""
    with_json = json_option("Print the result as JSON.")
    return several_boards(with_json(click.pass_obj(command)))


def _work(
    invocation: Invocation,
    view: ProgressView,
    *,
    boards: Sequence[str],
    tags: Sequence[str],
    every: bool,
    as_json: bool,
    no_wait: bool,
) -> _StoreWork:
    lab = lab_of(invocation)
    named = choose_boards(lab, boards, tags, every=every)
    return _StoreWork(lab, named, view, as_json=as_json, wait=not no_wait)


@store.command("list", epilog="Example: labctl store list --all")
@_common
def list_command(invocation: Invocation, **chosen: Any) -> int:
    """List the files of boards, with their age and size."""
    with ProgressView() as view:
        return list_boards(_work(invocation, view, **chosen))


@store.command(epilog="Example: labctl store verify --all")
@_common
def verify(invocation: Invocation, **chosen: Any) -> int:
    """Hash every file again; remove and list damaged ones."""
    with ProgressView() as view:
        return _verify_boards(_work(invocation, view, **chosen))


@store.command(epilog="Example: labctl store prune --older 30d --dry-run")
@click.option("--older", type=DURATION, help="Remove files unused for longer, e.g. 30d.")
@click.option("--free", type=SIZE, help="Remove files until this much is free, e.g. 4GB.")
@click.option("--dry-run", is_flag=True, help="List what would be removed; remove nothing.")
@_common
def prune(
    invocation: Invocation, *, older: float | None, free: int | None, dry_run: bool, **chosen: Any
) -> int:
    """Remove the least recently used files.

    Default without --older and --free: files unused for 30 days. Pinned files and files of a
    running job stay.
    """
    with ProgressView() as view:
        work = _work(invocation, view, **chosen)
        return _prune_boards(work, PrunePolicy(older, free), _Pins(), dry_run=dry_run)


@store.command(epilog="Example: labctl store pin llama-completion")
@click.option("--undo", is_flag=True, help="Unpin these files.")
@click.argument("names", nargs=-1, required=True)
@_common
def pin(invocation: Invocation, *, names: tuple[str, ...], undo: bool, **chosen: Any) -> int:
    """Pin files by name or the first digits of their SHA-256: prune keeps them."""
    pins = _Pins(drop=names) if undo else _Pins(add=names)
    with ProgressView() as view:
        return _prune_boards(_work(invocation, view, **chosen), PrunePolicy(), pins, dry_run=False)
