"""``labctl runs prune`` and ``runs trash``: the space of old runs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from labctl.cli.complete import TRASHED
from labctl.cli.lab import lab_or_own
from labctl.cli.output import confirm, json_option, note
from labctl.cli.root import Invocation
from labctl.cli.run_filters import filter_options
from labctl.errors import ConfigError, HostTimeout
from labctl.index.filters import Filter
from labctl.units import counted, size

if TYPE_CHECKING:
    from labctl.runs.record.directory import RunDirectory

#: Number of runs to keep for each recipe on each board: a month of nights.
_KEPT = 30


@click.command(epilog="Example: labctl runs prune --keep-last 10 --until 90d --dry-run")
@filter_options
@click.option(
    "--keep-last",
    type=click.IntRange(min=1),
    default=_KEPT,
    show_default=True,
    metavar="N",
    help="Keep the last N runs with a good trial of each recipe on each board.",
)
@click.option("--compress", is_flag=True, help="Compress their records instead of moving them.")
@click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option("Print ids and sizes as JSON.")
@click.pass_obj
def prune(
    invocation: Invocation,
    *,
    wanted: Filter,
    keep_last: int,
    compress: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Move old runs to the trash.

    Keeps, for each recipe on each board, all runs since the N-th newest one with a good trial. Also
    keeps runs of baselines, runs that show a regression, have a tag or a note, were imported, are
    damaged, in progress, or links. Conditions limit the runs to move. `labctl runs trash empty`
    frees the space.

    With --compress nothing is moved: the records of older finished runs, which contain the times of
    all tokens, are compressed in place. Every command reads them as before.
    """
    from labctl.compare.regressions import runs_of_regressions
    from labctl.compare.thresholds import Thresholds
    from labctl.runs.record.repository import RunRepository
    from labctl.runs.record.retention import compressible_runs, old_runs
    from labctl.state.state import lab_state

    lab = lab_or_own(invocation)
    runs = lab.root / "runs"
    repository = RunRepository(runs, note)
    if compress:
        found = compressible_runs(runs, repository, wanted, keep_last=keep_last)
        _compress(found, dry_run=dry_run, as_json=as_json)
        return
    shown = runs_of_regressions(repository.trials(), Thresholds.of_recipe({}))
    needed = [run for one in lab_state(lab).baselines.list() for run in one.runs]
    protected = dict.fromkeys(shown, "that show a regression")
    protected |= dict.fromkeys(needed, "that a baseline needs")
    plan = old_runs(runs, repository, wanted, keep_last=keep_last, protected=protected)
    sizes = plan.sizes
    if not as_json:
        for run, bytes_ in sizes.items():
            click.echo(f"{run}  {size(bytes_)}")
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(plan.kept.items()))
        note(f"{counted(len(sizes), 'run')}, {size(plan.freed_bytes)}; kept: {reasons or 'none'}")
    moved: list[str] = []
    if sizes and not dry_run:
        if not yes:
            confirm(f"move {counted(len(sizes), 'run')} to the trash")
        moved = _move(runs, list(sizes))
    if as_json:
        click.echo(json.dumps(plan.document(moved, dry_run=dry_run), indent=2))
    if moved:
        note(f"moved to {runs / 'trash'}; `labctl runs trash empty` frees the space")


def _move(runs: Path, ids: Sequence[str]) -> list[str]:
    """Move runs to the trash; return the moved ones, even after an error."""
    from labctl.runs.record.directory import RunDirectory
    from labctl.runs.record.trash import move_to_trash

    moved = []
    for run in ids:
        try:
            move_to_trash(RunDirectory(runs / run))
            moved.append(run)
        except ConfigError as error:  # another labctl took it meanwhile
            note(f"not moved: {error.message}")
    return moved


def _compress(found: Sequence["RunDirectory"], *, dry_run: bool, as_json: bool) -> None:
    from labctl.runs.record.retention import compression_document

    freed: dict[str, int | None] = {}
    for one in found:
        try:
            freed[one.path.name] = None if dry_run else one.compress()
        except (ConfigError, HostTimeout) as error:  # another labctl moves or compresses it
            note(f"not compressed: {error.message}")
    if as_json:
        click.echo(json.dumps(compression_document(freed, dry_run=dry_run), indent=2))
        return
    for run in freed:
        click.echo(run)
    saved = "" if dry_run else f": {size(sum(bytes_ or 0 for bytes_ in freed.values()))} freed"
    note(f"{counted(len(freed), 'run')}{saved}")


@click.group(invoke_without_command=True, epilog="Example: labctl runs trash")
@json_option("Print ids, folders and sizes as JSON.")
@click.pass_context
def trash(ctx: click.Context, *, as_json: bool) -> None:
    """List the runs in the trash, newest first.

    They take space until `labctl runs trash empty`.
    """
    if ctx.invoked_subcommand is not None:
        return
    from labctl.runs.record.trash import trashed_runs

    invocation: Invocation = ctx.obj
    runs = lab_or_own(invocation).root / "runs"
    found = trashed_runs(runs)
    if as_json:
        click.echo(json.dumps([one.document() for one in found], indent=2))
        return
    for one in found:
        click.echo(f"{one.path.name}  {size(one.size_bytes)}")
    note(f"{counted(len(found), 'run')}, {size(sum(one.size_bytes for one in found))}")


@trash.command(epilog="Example: labctl runs trash empty --yes")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def empty(invocation: Invocation, *, yes: bool) -> None:
    """Remove all runs in the trash for good."""
    from labctl.runs.record.trash import empty_trash, trashed_runs

    runs = lab_or_own(invocation).root / "runs"
    count = len(trashed_runs(runs))
    if count and not yes:
        confirm(f"remove {counted(count, 'run')} for good")
    removed = empty_trash(runs)
    freed = size(sum(one.size_bytes for one in removed))
    click.echo(f"{counted(len(removed), 'run')} removed, {freed} freed")


@trash.command(epilog="Example: labctl runs trash restore 16fc2f")
@click.argument("names", metavar="RUN...", nargs=-1, required=True, shell_complete=TRASHED)
@click.pass_obj
def restore(invocation: Invocation, names: Sequence[str]) -> None:
    """Move runs back from the trash."""
    from labctl.runs.record.trash import restore as move_back

    runs = lab_or_own(invocation).root / "runs"
    for name in names:
        click.echo(f"restored {move_back(runs, name).path}")
