"""``labctl queue``: jobs that wait for boards."""

import json

import click

from labctl.cli.complete import JOB
from labctl.cli.lab import lab_of
from labctl.cli.output import json_option, note
from labctl.cli.root import Invocation
from labctl.errors import printable_line
from labctl.state.audit import checked_reason
from labctl.state.events import this_user
from labctl.state.job import Job
from labctl.state.state import lab_state
from labctl.units import duration, local_time

_ended_option = click.option(
    "--ended",
    type=click.IntRange(0, 1000),
    default=0,
    metavar="N",
    help="Also list the last N jobs that ended.",
)


@click.group(
    invoke_without_command=True,
    subcommand_metavar="[list|cancel|move]",
    epilog="Example: labctl queue",
)
@_ended_option
@json_option("Print the jobs as JSON.")
@click.pass_context
def queue(ctx: click.Context, *, ended: int, as_json: bool) -> None:
    """List the jobs of the lab's queue, in the order in which they begin.

    Greater priority comes first; within one priority users take turns, and of one user's jobs the
    first submitted comes first.
    """
    if ctx.invoked_subcommand is None:
        _list(ctx.obj, ended, as_json=as_json)


@queue.command("list", epilog="Example: labctl queue list --ended 10")
@_ended_option
@json_option("Print the jobs as JSON.")
@click.pass_obj
def list_(invocation: Invocation, *, ended: int, as_json: bool) -> None:
    """List the jobs, as `labctl queue` does."""
    _list(invocation, ended, as_json=as_json)


@queue.command(epilog="Example: labctl queue cancel 3f2a --reason 'wrong model'")
@click.option("--reason", help="Reason, for the job and the audit log.")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=JOB)
@click.pass_obj
def cancel(invocation: Invocation, jobs: tuple[str, ...], *, reason: str | None) -> None:
    """Cancel waiting jobs, and stop running jobs.

    JOB is a job's id or the start of one. Trials that a run has finished are kept.
    """
    state, who = lab_state(lab_of(invocation)), this_user()
    reason = checked_reason(reason)
    for job in [state.jobs.find(name) for name in jobs]:
        now = state.jobs.cancel(job.id, printable_line(reason or f"cancelled by {who}"))
        state.audit.record(who, "cli", "queue cancel", job.id, reason)
        what = "is cancelled" if now.state == "cancelled" else "is asked to stop"
        click.echo(f"job {job.id} ({printable_line(job.name)}) {what}")


@queue.command(
    epilog="Examples: labctl queue move 3f2a --first; labctl queue move 3f2a --priority 5"
)
@click.option("--first", is_flag=True, help="Begin it before all others.")
@click.option("--priority", type=click.IntRange(-100, 100), help="New priority of the job.")
@click.argument("job", shell_complete=JOB)
@click.pass_obj
def move(invocation: Invocation, job: str, *, first: bool, priority: int | None) -> None:
    """Give a waiting job another place."""
    if not first and priority is None:
        raise click.UsageError("give --first or --priority N")
    state = lab_state(lab_of(invocation))
    found = state.jobs.find(job)
    state.jobs.move(found.id, priority=priority, first=first)
    details = {"first": first, "priority": priority}
    state.audit.record(this_user(), "cli", "queue move", found.id, details=details)
    jobs = state.jobs.list()
    waiting = [one.id for one in jobs if one.waits]
    place = f"place {waiting.index(found.id) + 1}" if found.id in waiting else "no longer waiting"
    click.echo(f"job {found.id}: {place}, priority {state.jobs.find(found.id).priority}")


def _list(invocation: Invocation, ended: int, *, as_json: bool) -> None:
    lab = lab_of(invocation)
    state = lab_state(lab)
    jobs = state.jobs.list(ended=ended)
    if as_json:
        click.echo(json.dumps([job.document() for job in jobs], indent=2))
        return
    if not jobs:
        note("no job waits or runs")
    stopped, place = state.groups.stopped(), 0
    for job in jobs:
        is_stopped = job.waits and job.group_id in stopped
        place += job.waits and not is_stopped
        waits = "stopped" if is_stopped else f"{place}."
        at = waits if job.waits else "damaged" if job.damaged else job.state
        facts = _facts(job)
        if is_stopped:
            facts.append(f"{stopped[str(job.group_id)]} is stopped: its command continues it")
        click.echo(printable_line("  ".join([job.id, f"{at:9}", *facts])))
    served = any(worker.is_alive for worker in state.workers.list())
    owned = {*stopped, *state.workers.of_groups()}
    if not served and any(_needs_worker(job) and job.group_id not in owned for job in jobs):
        several = any(board.host for board in lab.lab.boards.values())
        note(f"nobody serves the queue: start `labctl worker`{' on each lab host' * several}")


def _needs_worker(job: Job) -> bool:
    """Return True if a job waits and only a worker can run it."""
    return job.waits and job.runner == "worker"


def _facts(job: Job) -> list[str]:
    took = f"about {duration(job.expected_seconds * 1e9)}" if job.expected_seconds else "?"
    where = job.board or ",".join(job.boards[:4]) + (",…" if len(job.boards) > 4 else "")
    facts = [job.name, where, job.submitter, took, f"submitted {local_time(job.submitted_at)}"]
    facts += [f"priority {job.priority}"] if job.priority else []
    facts += [f"run {job.run}"] if job.run else []
    facts += [f"status {job.exit_status}"] if job.exit_status is not None else []
    return [*facts, *(text for text in (job.reason, job.damaged) if text)]
