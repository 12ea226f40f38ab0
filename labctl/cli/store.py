"""``labctl store``: labctl's files on boards. ``deploy`` sends them."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from labctl.board import PrunePolicy
from labctl.cli.board_options import choose_boards, several_boards
from labctl.cli.lab import lab_of
from labctl.cli.output import json_option, note
from labctl.cli.parameters import DURATION, SIZE
from labctl.cli.progress import ProgressView
from labctl.cli.root import Invocation
from labctl.cli.store_work import Pins, StoreWork, list_boards, prune_boards, verify_boards


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
) -> StoreWork:
    lab = lab_of(invocation)
    named = choose_boards(lab, boards, tags, every=every)
    return StoreWork(lab, named, view, as_json=as_json, wait=not no_wait)


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
        return verify_boards(_work(invocation, view, **chosen))


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
        return prune_boards(work, PrunePolicy(older, free), Pins(), dry_run=dry_run)


@store.command(epilog="Example: labctl store pin llama-completion")
@click.option("--undo", is_flag=True, help="Unpin these files.")
@click.argument("names", nargs=-1, required=True)
@_common
def pin(invocation: Invocation, *, names: tuple[str, ...], undo: bool, **chosen: Any) -> int:
    """Pin files by name or the first digits of their SHA-256: prune keeps them."""
    pins = Pins(drop=names) if undo else Pins(add=names)
    with ProgressView() as view:
        return prune_boards(_work(invocation, view, **chosen), PrunePolicy(), pins, dry_run=False)


#: Old options of ``labctl deploy`` before 0.2; accepted, and hidden, for one release.
_OLD_FLAGS = (
    click.option("--verify", is_flag=True, hidden=True, help="Old for labctl store verify."),
    click.option("--prune", is_flag=True, hidden=True, help="Old for labctl store prune."),
    click.option("--older", type=DURATION, hidden=True, help="With --prune."),
    click.option("--free", type=SIZE, hidden=True, help="With --prune."),
    click.option("--dry-run", is_flag=True, hidden=True, help="With --prune."),
    click.option("--pin", "pins", multiple=True, hidden=True, help="Old for labctl store pin."),
    click.option("--unpin", "unpins", multiple=True, hidden=True, help="Undo --pin."),
)


def old_store_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the hidden options of `labctl deploy` that :func:`run_old_flags` understands."""
    for option in _OLD_FLAGS:
        command = option(command)
    return command


def run_old_flags(
    invocation: Invocation,
    chosen: dict[str, Any],
    *,
    only_plan: bool,
    verify: bool,
    prune: bool,
    older: float | None,
    free: int | None,
    dry_run: bool,
    pins: tuple[str, ...],
    unpins: tuple[str, ...],
) -> int | None:
    """Do what old options of `labctl deploy` ask for; None when there are none."""
    prune = prune or bool(pins or unpins)
    if only_plan + verify + prune > 1:
        raise click.UsageError("choose one of --plan, --verify, and --prune with its pins")
    if not prune and (older is not None or free is not None or dry_run):
        raise click.UsageError("--older, --free and --dry-run belong to --prune")
    if not (verify or prune):
        return None
    new = "verify" if verify else "pin" if pins or unpins else "prune"
    note(f"note: use labctl store {new} instead")
    with ProgressView() as view:
        work = _work(invocation, view, **chosen)
        if verify:
            return verify_boards(work)
        policy = PrunePolicy(older, free)
        return prune_boards(work, policy, Pins(pins, unpins), dry_run=dry_run)
