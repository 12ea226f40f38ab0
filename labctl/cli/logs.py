"""``labctl logs``: the events of a run or a job."""

from pathlib import Path

import click

from labctl import interrupts
from labctl.cli.complete import RUN
from labctl.cli.lab import lab_or_own, runs_folder
from labctl.cli.output import note
from labctl.cli.root import Invocation
from labctl.errors import ConfigError, ExitStatus, printable_line
from labctl.records.events import AnyEvent, Contact, End, Note, Trial
from labctl.runs.watch import Watch, find_watched
from labctl.state.job import Job
from labctl.state.state import lab_state

_LOOK_SECONDS = 1.0
_ENDED = ("done", "cancelled")


@click.command(epilog="Examples: labctl logs latest; labctl logs -f 3f2a81c0")
@click.option("-f", "--follow", is_flag=True, help="Follow until the run ends; exit as it does.")
@click.argument("run", metavar="RUN|JOB", shell_complete=RUN)
@click.pass_obj
def logs(invocation: Invocation, run: str, *, follow: bool) -> int:
    """Print what happened in a run, a line for each event.

    RUN is a run's id, the start or end of one, the path of its directory, or `latest`; JOB is the
    id of a queued job. With -f, waits for a waiting job to start; for a job on another host, waits
    until it ends, then its lines are here. `labctl watch` shows the progress of a run instead.
    """
    lab = lab_or_own(invocation)
    state = lab_state(lab)
    job = _job_of(invocation, run)
    told = ""
    while job is not None and not _is_readable(job, lab.root / "runs"):
        if job.state in _ENDED or (job.run is None and not follow):
            return _tell_without_run(job)
        words = f"job {job.id} is {job.state}"
        if job.run is not None and job.worker is not None:
            words += f" on host {job.worker.partition(':')[0]}, and its run is not here yet"
        if not follow:
            note(printable_line(f"{words}; wait for it: `labctl logs -f {job.id}`"))
            return ExitStatus.OK
        words = printable_line(words)
        if words != told:
            note(words)
            told = words
        interrupts.sleep(_LOOK_SECONDS)
        job = state.jobs.get(job.id)
    name = run if job is None or job.run is None else job.run
    directory = find_watched(runs_folder(invocation, name), name)
    watched = Watch(directory)
    for event in watched.events():
        if event is None:
            if not follow:
                break
        elif (line := _line(event)) is not None:
            click.echo(printable_line(line))
    end = watched.end()
    if end is None:
        if follow:
            note(f"the controller of run {directory.path.name} is gone")
        return ExitStatus.INFRA if follow else ExitStatus.OK
    return end.exit_status if follow else ExitStatus.OK


def _job_of(invocation: Invocation, name: str) -> Job | None:
    """Return the job with this id; None if there is no such job."""
    try:
        return lab_state(lab_or_own(invocation)).jobs.find(name)
    except ConfigError:
        return None


def _is_readable(job: Job, runs: Path) -> bool:
    """Return True if a job's run can be read: it is on this host, or has ended on another."""
    return job.run is not None and (job.state in _ENDED or (runs / job.run).is_dir())


def _tell_without_run(job: Job) -> int:
    why = f": {job.reason}" if job.reason else ""
    note(printable_line(f"job {job.id} is {job.state} and has no run{why}"))
    if job.state == "cancelled":  # not a success for `logs -f`
        return ExitStatus.INTERRUPTED
    return job.exit_status or ExitStatus.OK


def _line(event: AnyEvent) -> str | None:
    """Return an event as a line; None for progress."""
    at = f"{event.utc:%Y-%m-%d %H:%M:%S}"
    match event:
        case Note():
            return f"{at}  {event.text}"
        case Contact():
            return f"{at}  {event.recipe} on {event.board}, run {event.run}"
        case Trial():
            why = event.reason or (event.failure.message if event.failure else "")
            what = f"trial {event.number} of {event.trials}, {event.variant}: {event.state}"
            return f"{at}  {what}{': ' if why else ''}{why}"
        case End():
            why = f" ({event.failure.blame}): {event.failure.message}" if event.failure else ""
            return f"{at}  {event.state}, exit status {event.exit_status}{why}"
        case _:
            return None
