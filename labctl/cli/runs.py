"""``labctl runs``: the lab's runs."""

from collections.abc import Sequence

import click
from click.core import ParameterSource

from labctl.cli.complete import RUN, TAG
from labctl.cli.lab import runs_folder
from labctl.cli.output import confirm, json_option, note
from labctl.cli.root import Invocation
from labctl.cli.run_filters import filter_options
from labctl.cli.run_list import print_runs
from labctl.cli.runs_prune import prune, trash
from labctl.errors import printable_line
from labctl.index import Filter
from labctl.runs.record.annotations import add_tags, remove_tags, set_note
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.lookup import find_run
from labctl.runs.record.repository import note_in_index

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


runs.add_command(prune)
runs.add_command(trash)


def _find(invocation: Invocation, name: str) -> RunDirectory:
    return find_run(runs_folder(invocation, name), name)
