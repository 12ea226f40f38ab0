"""``labctl watch``."""

import time

import click

from labctl.cli.complete import RUN
from labctl.cli.lab import runs_folder
from labctl.cli.output import note
from labctl.cli.progress import ProgressView
from labctl.cli.root import Invocation
from labctl.cli.run_view import RunView
from labctl.errors import ExitStatus, printable_line
from labctl.runs.record.directory import RunDirectory
from labctl.runs.watch import Watch, find_watched
from labctl.units import counted

#: After this time (s) without an event, a line says that the controller is alive.
_SILENCE_SECONDS = 60.0


@click.command(epilog="Example: labctl watch latest")
@click.argument("run", required=False, shell_complete=RUN)
@click.pass_obj
def watch(invocation: Invocation, run: str | None) -> int:
    """Show a run that another process drives.

    RUN is a run's id, the start or end of one, the path of its directory, or `latest`; default: the
    newest run in progress. Reads the run's events.jsonl, and its records at the end: disturbs
    neither the board nor the run. Ends with the run and its exit status, or with 3 if its
    controller died.
    """
    directory = find_watched(runs_folder(invocation, run or "latest"), run)
    watched = Watch(directory)
    with ProgressView() as view:
        view.say(f"run directory: {directory.path}")
        shown = RunView(view)
        heard, silent = time.monotonic(), False
        for event in watched.events():
            if event is not None:
                shown.show(event)
                heard, silent = time.monotonic(), False
            elif not silent and time.monotonic() - heard > _SILENCE_SECONDS:
                silent = True
                view.say(f"no event for {_SILENCE_SECONDS:.0f} s; the controller is alive")
        shown.close()
    if watched.damaged:
        torn = counted(watched.damaged, "torn line")
        note(f"note: {torn} in the events left out")
    return _show_end(directory, watched, shown.now)


def _show_end(directory: RunDirectory, watched: Watch, now: str) -> int:
    """Print the end of the run and the next command; return the exit status."""
    run, end, removed = directory.path.name, watched.end(), not directory.path.is_dir()
    again = f"labctl resume {run}" if directory.is_planned else "labctl run (no trial was started)"
    if end is None:
        at = f" since {watched.last.utc:%Y-%m-%d %H:%M:%S} UTC" if watched.last else ""
        what = f" ({now})" if now else ""
        click.echo(printable_line(f"the controller of run {run} is gone{at}{what}"), err=True)
        click.echo(f"to continue: {again}", err=True)
        return ExitStatus.INFRA
    if end.state == "finished":
        click.echo(f"run {run} is finished; its tables: labctl report {run}", err=True)
        return end.exit_status
    why = f" ({end.failure.blame}): {end.failure.message}" if end.failure else ""
    how = "was refused" if removed else end.state
    click.echo(printable_line(f"run {run} {how}{why}"), err=True)
    if end.failure and end.failure.hint:
        click.echo(printable_line(f"hint: {end.failure.hint}"), err=True)
    if not removed:
        click.echo(f"to continue: {again}", err=True)
    return end.exit_status
