"""``labctl batch``."""

import json
import shlex
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import click

from labctl.cli.board_choice import boards_on
from labctl.cli.lab import connect_board, lab_of
from labctl.cli.output import json_option, note, way_on
from labctl.cli.root import Invocation
from labctl.cli.run import comparing_with
from labctl.config.lab import LabFile
from labctl.config.yaml.document import load
from labctl.database.base import patience
from labctl.errors import ConfigError, ExitStatus, HostError, printable_line
from labctl.farm.batch import Batch, BatchJobs
from labctl.farm.batch_plan import BatchPlan, PlannedBatch, plan_batch, without_agent
from labctl.farm.expected import expected_seconds
from labctl.farm.job import FarmJob, JobResult
from labctl.state.state import lab_state
from labctl.units import counted, duration


@click.command(epilog="Example: labctl batch night.yaml")
@click.option("--host", metavar="NAME", help="Name of this lab host; default: its own name.")
@click.option(
    "--detach", is_flag=True, help="Put the jobs into the lab's queue, print the batch, and end."
)
@click.option("--new", is_flag=True, help="Begin a new batch even if an earlier one is unfinished.")
@click.option("--dry-run", is_flag=True, help="Only show the jobs, their boards and times.")
@click.option(
    "--untrusted",
    is_flag=True,
    help="Nobody vouches for the plan, as of a pull request: confine its recipes to the present"
    " folder and to boards with `untrusted: true`.",
)
@json_option("Print the jobs and their results as JSON.")
@click.argument("plan", type=click.Path(path_type=Path, dir_okay=False))
@click.pass_obj
def batch(
    invocation: Invocation,
    plan: Path,
    *,
    host: str | None,
    detach: bool,
    new: bool,
    dry_run: bool,
    untrusted: bool,
    as_json: bool,
) -> int:
    """Run a plan of recipes on many boards, each as soon as one is free.

    PLAN is a YAML file; `labctl docs queue` describes it. Jobs are ordered so that all boards end
    at about the same time. A job interrupted by a failing host, link or board continues on an equal
    board. After Ctrl-C or a kill, the same command continues the batch; finished trials are not run
    again. Exit status 0: all runs are good; 1: a program failed or a gate was missed; 2: a job is
    wrong; 3: boards failed.
    """
    lab, workspace = lab_of(invocation), None
    if untrusted:
        from labctl.runs.inputs.untrusted_recipe import Workspace

        workspace = Workspace.of(plan, lab.root, invocation.lab)
    planned = plan_batch(
        load(plan, BatchPlan),
        lab,
        lambda selector: boards_on(lab, selector),
        lambda recipe, boards: expected_seconds(lab, recipe, boards, untrusted=untrusted),
        workspace,
    )
    if dry_run:
        _show_plan([one.job for one in planned.jobs], as_json)
        return ExitStatus.OK
    lacking = without_agent(lab, {board for one in planned.jobs for board in one.job.boards})
    for name, error in sorted(lacking.items()):
        note(f"note: board {name} is left out: {error.message}; remedy: {error.hint}")
    current = _current(lab, planned, new=new)
    del planned  # may be thousands of recipes; the batch has them on disk
    this_host = host or socket.gethostname()
    own = _own_boards(lab, this_host, current)
    jobs = BatchJobs(lab, current, own, lacking, partial(_tell, current))
    with current.held():
        if detach:
            return _detach(lab, current, jobs, this_host)
        again = shlex.join(["labctl", "batch", *["--untrusted"] * untrusted, str(plan)])
        with way_on(f"finished jobs are kept; to continue: {again}"):
            _run(lab, current, jobs, own, this_host)
        with way_on(f"all jobs have ended; they are in {current.path}"):
            _show_results(current.finish(jobs.results), jobs, as_json=as_json)
    return _status(jobs)


def _own_boards(lab: LabFile, host: str, current: Batch) -> list[str]:
    """Return the boards of a batch that belong to this host or to no host; all without database."""
    names = dict.fromkeys(board for one in current.jobs for board in one.job.boards)
    is_alone = lab.database is None
    return [name for name in names if is_alone or lab.board(name).host in (None, host)]


def _run(lab: LabFile, current: Batch, jobs: BatchJobs, own: Sequence[str], this_host: str) -> None:
    """Run the jobs on boards of this host that no worker serves, and wait for all."""
    from labctl.farm.host_setup import host_worker

    worker = host_worker(
        lab,
        this_host,
        own,
        connect=connect_board,
        compare=comparing_with(lab),
        note=lambda line: note(printable_line(line)),
        group=current.group,
        is_over=jobs.look,
    )
    jobs.reaches = worker.reaches
    state = lab_state(lab)
    state.groups.own(jobs.group, worker.name, _dead_on(this_host), boards=own)
    try:
        _submit(lab, current, jobs)
        worker.run(until_empty=True)
    finally:
        with suppress(HostError, ConfigError), patience(0.0):  # the ownership expires soon
            state.groups.leave(current.group, worker.name)


def _submit(lab: LabFile, current: Batch, jobs: BatchJobs) -> None:
    from labctl.farm.queue_engine import wake_workers

    if ended := jobs.submit():
        note(f"{ended} of {counted(len(current.jobs), 'job')} have ended before")
    wake_workers(lab, sorted({board for one in current.jobs for board in one.job.boards}))


def _dead_on(host: str) -> Callable[[str], bool]:
    """Return a function: True for owners on this host, which are dead: we hold the batch's lock."""
    return lambda owner: owner.startswith(f"{host}:")


def _detach(lab: LabFile, current: Batch, jobs: BatchJobs, this_host: str) -> int:
    from labctl.cli.run_detached import serve_if_nobody_does

    lab_state(lab).groups.own(jobs.group, None, _dead_on(this_host))
    _submit(lab, current, jobs)
    click.echo(current.path.name)
    note("follow it: the same command without --detach; `labctl queue` shows its jobs")
    boards = {board: lab.board(board) for one in current.jobs for board in one.job.boards}
    serve_if_nobody_does(lab, list(boards.values()))
    return ExitStatus.OK


def _current(lab: LabFile, planned: PlannedBatch, *, new: bool) -> Batch:
    """Return the unfinished batch of the plan, else a new one."""
    earlier = Batch.unfinished(lab.root, planned.name, lambda line: note(printable_line(line)))
    same = [one for one in earlier if one.digest == planned.digest]
    if same and not new:
        note(f"continuing {same[0].path.name}")
        return same[0]
    if earlier:
        note(f"note: the unfinished batch {earlier[0].path.name} has other jobs; it stays as it is")
    current = Batch.begin(lab.root, planned)
    note(f"batch directory: {current.path}")
    return current


def _tell(current: Batch, job: FarmJob, board: str, end: JobResult, ended: int | None) -> None:
    """Print the end of an attempt. ``ended``: number of ended jobs; None: the job waits again."""
    words = [f"job {job.id} {job.name} on {board}: {_word(end)}"]
    words += [end.reason] if end.reason else []
    words += [f"run {end.run}"] if end.run else []
    words += ["it waits again"] if ended is None else []
    place = "" if ended is None else f"[{ended}/{len(current.jobs)}] "
    note(printable_line(f"{place}{'; '.join(words)}"))


def _word(result: JobResult) -> str:
    if result.exit_status == ExitStatus.OK:
        return "good"
    return "stopped" if result.exit_status == ExitStatus.INTERRUPTED else f"failed ({result.blame})"


def _status(jobs: BatchJobs) -> int:
    found = {result.exit_status for result in jobs.results.values()}
    order = (ExitStatus.JOB, ExitStatus.CONFIG, ExitStatus.INFRA)
    return next((status for status in order if status in found), ExitStatus.OK)


def _show_plan(jobs: list[FarmJob], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([job.document() for job in jobs], indent=2))
        return
    for job in jobs:
        seconds = duration(job.expected_seconds * 1e9)
        click.echo(f"{job.id}  {job.name}  {seconds}  {', '.join(job.boards)}")
    total = duration(sum(job.expected_seconds for job in jobs) * 1e9)
    click.echo(f"{counted(len(jobs), 'job')}, {total} of board time")


def _show_results(document: Mapping[str, object], jobs: BatchJobs, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    counts = Counter(_word(result) for result in jobs.results.values())
    words = ", ".join(f"{number} {word}" for word, number in sorted(counts.items()))
    click.echo(f"{counted(len(jobs.results), 'job')}: {words}")
