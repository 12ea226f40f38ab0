"""``labctl runs``: the lab's runs, as plain columns that are quick to make."""

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from labctl.cli.complete import RUN, TAG
from labctl.cli.lab import runs_folder
from labctl.cli.output import confirm, json_option, note
from labctl.cli.root import Invocation
from labctl.cli.run_filters import filter_options, unknown_names
from labctl.cli.runs_prune import prune, trash
from labctl.errors import printable_line
from labctl.figures.figure import Figure, small
from labctl.index.filters import Filter
from labctl.index.index import IndexedRun
from labctl.index.rows import LISTED
from labctl.runs.record.annotations import add_tags, remove_tags, set_note
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.lookup import ended_before_trials, find_run
from labctl.runs.record.repository import RunRepository, note_in_index
from labctl.units import size
from labctl.units import width as text_width

_GAP = "  "
#: Columns that are shortened if a line is too long, in this order, with their minimum width.
_CUT = (("tags", 6), ("recipe", 10), ("board", 6), ("recipe", 4), ("tags", 4))

Column = tuple[str, Callable[[IndexedRun], str]]


#: Number of runs in a list by default.
LIMIT = 50


@click.group(invoke_without_command=True, epilog="Example: labctl runs --board rk1 --since 7d")
@filter_options
@click.option(
    "-n",
    "limit",
    type=click.IntRange(min=0),
    default=LIMIT,
    show_default=True,
    help="Number of runs to list, newest first; 0: all.",
)
@click.option("--wide", is_flag=True, help="Print full ids and all columns.")
@json_option("Print the list as JSON, times in ns.")
@click.pass_context
def runs(ctx: click.Context, *, wanted: Filter, limit: int, wide: bool, as_json: bool) -> None:
    """List the lab's runs, newest first.

    Without a command, lists runs that meet all conditions. The token time is each variant's
    estimate, from the fastest variant to the slowest. The exit status is 0 even if nothing is
    found.
    """
    if ctx.invoked_subcommand is not None:
        _refuse_options(ctx, ctx.invoked_subcommand)
        return
    invocation: Invocation = ctx.obj
    print_runs(
        runs_folder(invocation, "latest"), wanted, limit=limit or None, wide=wide, as_json=as_json
    )


def _refuse_options(ctx: click.Context, command: str) -> None:
    """Refuse options of the list before a command, which would ignore them."""
    given = [
        parameter.opts[0]
        for parameter in ctx.command.params
        if isinstance(parameter, click.Option)
        and parameter.expose_value
        and ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(
            f"{', '.join(given)}: an option of the list, which `runs {command}` does not use;"
            f" name the run: `labctl runs {command} --help`"
        )


@runs.command(epilog="Example: labctl runs tag latest release-1.2 baseline")
@click.option("--remove", is_flag=True, help="Remove these tags.")
@click.argument("run", shell_complete=RUN)
@click.argument("tags", nargs=-1, required=True, shell_complete=TAG)
@click.pass_obj
def tag(invocation: Invocation, run: str, tags: Sequence[str], *, remove: bool) -> None:
    """Add tags to a run.

    `labctl runs --tag` finds them. They are kept in the run directory.
    """
    directory = _find(invocation, run)
    left = (remove_tags if remove else add_tags)(directory, tags).tags
    note_in_index(directory, note)
    click.echo(printable_line(f"{directory.path.name}: {' '.join(left) or 'no tags'}"))


@runs.command("note", epilog='Example: labctl runs note latest "fan was off"')
@click.option("--remove", is_flag=True, help="Remove the note.")
@click.argument("run", shell_complete=RUN)
@click.argument("text", required=False)
@click.pass_obj
def note_command(invocation: Invocation, run: str, text: str | None, *, remove: bool) -> None:
    """Write a note on a run; it replaces an earlier note.

    Without a text, prints the note; `labctl show` prints it too. The note is kept in the run
    directory.
    """
    if text is not None and remove:
        raise click.UsageError("give either a text or --remove")
    directory = _find(invocation, run)
    if text is None and not remove:
        click.echo(printable_line(directory.annotations().note or "no note"))
        return
    set_note(directory, text)
    note_in_index(directory, note)


@runs.command(epilog="Example: labctl runs remove 20261122T014405Z-fails-e36eda --yes")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.argument("names", metavar="RUN...", nargs=-1, required=True, shell_complete=RUN)
@click.pass_obj
def remove(invocation: Invocation, names: Sequence[str], *, yes: bool) -> None:
    """Move runs to the trash.

    `labctl runs trash restore` restores them, `labctl runs trash empty` frees their space. Refuses
    runs in progress and runs of baselines.
    """
    from labctl.runs.record.baselines import refuse_needed
    from labctl.runs.record.trash import move_to_trash

    directories = {found.path.resolve(): found for found in (_find(invocation, n) for n in names)}
    refuse_needed(list(directories))
    if not yes:
        confirm(f"move to the trash: {', '.join(path.name for path in directories)}")
    for directory in directories.values():
        click.echo(f"moved to {move_to_trash(directory)}")


def _find(invocation: Invocation, name: str) -> RunDirectory:
    return find_run(runs_folder(invocation, name), name)


def print_runs(
    runs: Path, wanted: Filter, *, limit: int | None, wide: bool = False, as_json: bool = False
) -> None:
    """Print the runs that meet a filter, newest first.

    On standard error, names damaged runs, and the newest run if it ended before its first trial.
    """
    repository = RunRepository(runs, note)
    found = repository.query(wanted, limit=limit)
    if as_json:
        click.echo(json.dumps([one.document() for one in found], indent=2))
    elif found:
        for line in _lines(found, _columns(wide=wide), None if wide else _width()):
            click.echo(line)
    else:
        note(f"no runs in {runs}" if wanted.is_empty else f"no such runs in {runs}")
        for line in unknown_names(repository, wanted):
            note(line)
    _name_damaged(found, repository, wanted)
    if wanted.is_empty:
        _name_unlisted(runs)


def _name_unlisted(runs: Path) -> None:
    """Name the newest run if it ended before its first trial: such runs are not in the list."""
    if not (ended := ended_before_trials(runs)):
        return
    from labctl.runs.record.event_log import EVENTS

    last = ended[0].path
    count = f" (as {len(ended) - 1} before it)" if len(ended) > 1 else ""
    how = f"`labctl watch {last.name}` shows why" if (last / EVENTS).exists() else f"see {last}"
    note(f"not listed: {last.name} ended before its first trial{count}; {how}")


def _name_damaged(found: Sequence[IndexedRun], repository: RunRepository, wanted: Filter) -> None:
    """Name damaged runs: listed runs with the reason, and runs that no filter can read."""
    for one in found:
        if one.run.damage:
            note(f"damaged: {one.run.id}: {printable_line(one.run.damage)}")
    if wanted.is_empty or "damaged" in wanted.states:
        return
    if hidden := repository.query(Filter(states=("damaged",))):
        names = ", ".join(one.run.id for one in hidden)
        note(f"not searched, damaged: {names} (reasons: `labctl runs --state damaged`)")


def _columns(*, wide: bool) -> list[Column]:
    def mark(one: IndexedRun) -> str:
        words = ["date ahead of the clock"] if one.is_ahead else []
        words += [] if one.run.kind == "timing" else [one.run.kind.replace("-", " ")]
        words += ["imported"] if one.run.imported_from is not None else []
        words += [one.run.execution] if one.run.execution in ("emulated", "native-host") else []
        return " ".join(words).upper()

    shown: list[Column] = [
        ("run", lambda one: one.run.id if wide else one.run.id[-6:]),
        ("date", lambda one: one.run.started[: 16 if wide else 10].replace("T", " ")),
        ("recipe", lambda one: one.run.recipe),
        ("board", lambda one: one.run.board or "-"),
        ("state", lambda one: one.run.verdict or one.run.state),
        ("ok", _trials),
        *(_spread(figure) for figure in LISTED if figure.listed == "brief"),
    ]
    if wide:
        shown += [
            *(_spread(figure) for figure in LISTED if figure.listed == "wide"),
            ("failed", lambda one: str(one.run.trials_failed)),
            ("models", lambda one: " ".join(m.quantization or m.key for m in one.models)),
            ("build", lambda one: " ".join(filter(None, (one.run.product, one.run.version)))),
            ("commit", lambda one: (one.run.build_commit or "-")[:9]),
            ("size", lambda one: size(one.run.size_bytes)),
        ]
    shown += [("", mark), ("tags", lambda one: " ".join(one.tags))]
    if wide:
        shown.append(("note", lambda one: one.run.note or ""))
    return shown


def _trials(one: IndexedRun) -> str:
    """Return ``3/4``; nothing for a load test, which has no trials."""
    is_load_test = one.run.kind == "load-test"
    return "" if is_load_test else f"{one.run.trials_ok}/{one.run.trials_planned}"


def _spread(figure: Figure[Any]) -> Column:
    return small(figure.title), lambda one: figure.spread(one.run.figures)


def _width() -> int | None:
    """Return the width of the terminal; None elsewhere: programs get whole values."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _lines(found: Sequence[IndexedRun], columns: Sequence[Column], width: int | None) -> list[str]:
    """Return a heading and a line for each run, cut to ``width``; empty columns are left out.

    A damaged run shows no figures.
    """
    cells = {name or "mark": [printable_line(cell(one)) for one in found] for name, cell in columns}
    cells = {name: column for name, column in cells.items() if any(column)}
    sizes = {
        name: max(map(text_width, [name if name != "mark" else "", *column]))
        for name, column in cells.items()
    }
    over = 0 if width is None else sum(sizes.values()) + len(_GAP) * (len(sizes) - 1) - width
    for name, least in _CUT:
        if over > 0 and name in sizes:
            cut = min(over, max(0, sizes[name] - least))
            sizes[name] -= cut
            over -= cut
    headings = [name if name != "mark" else "" for name in cells]
    rows = [headings, *map(list, zip(*cells.values(), strict=True))]
    return [
        _GAP.join(_fit(cell, size) for cell, size in zip(row, sizes.values(), strict=True)).rstrip()
        for row in rows
    ]


def _fit(cell: str, size: int) -> str:
    if text_width(cell) > size:
        while text_width(cell) > size - 1:
            cell = cell[:-1]
        cell += "…"
    return cell + " " * (size - text_width(cell))


runs.add_command(prune)
runs.add_command(trash)
