"""``labctl batch``."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from threading import Event

import click

from labctl.cli.board_choice import boards_on
from labctl.cli.lab import connect_board, lab_of
from labctl.cli.output import json_option, note, way_on
from labctl.cli.root import Invocation
from labctl.cli.run import comparing_with
from labctl.config.lab import LabFile
from labctl.config.yaml.document import load
from labctl.database import patience
from labctl.errors import Blame, ConfigError, ExitStatus, LabctlError, printable_line
from labctl.farm.batch import Batch
from labctl.farm.batch_plan import BatchPlan, PlannedBatch, plan_batch, without_agent
from labctl.farm.dispatcher import Dispatcher
from labctl.farm.expected import expected_seconds
from labctl.farm.health import require_health
from labctl.farm.job import FarmJob, JobResult
from labctl.farm.run_executor import READY_AT_ONCE, RunExecutor
from labctl.farm.schedule import Schedule
from labctl.state import BoardHealth, Health, lab_state
from labctl.units import counted, duration

NO_BOARD = "no board is left to run it on"


@click.command(epilog="Example: labctl batch night.yaml")
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
    current = _current(lab, planned, new=new)
    del planned  # may be thousands of recipes; the batch has them on disk
    with current.held(), way_on(f"finished jobs are kept; to continue: labctl batch {plan}"):
        _run(lab, current, lacking)
    with way_on(f"all jobs have ended; they are in {current.path}"):
        _show_results(current, as_json)
    return _status(current)


def _current(lab: LabFile, planned: PlannedBatch, *, new: bool) -> Batch:
    """Return the unfinished batch of the plan, else a new one."""
    earlier = Batch.unfinished(lab.root, planned.name, lambda line: note(printable_line(line)))
    same = [one for one in earlier if one.digest == planned.digest]
    if same and not new:
        current = same[0]
        done = len(current.jobs) - len(current.remaining)
        note(f"continuing {current.path.name}: {done} of {len(current.jobs)} jobs have ended")
        return current
    if earlier:
        note(f"note: the unfinished batch {earlier[0].path.name} has other jobs; it stays as it is")
    current = Batch.begin(lab.root, planned)
    note(f"batch directory: {current.path}")
    return current


def _run(lab: LabFile, current: Batch, lacking: Mapping[str, ConfigError]) -> None:
    jobs = current.remaining
    wanted = {board for job in jobs for board in job.boards}
    for name in sorted(wanted & lacking.keys()):
        error = lacking[name]
        note(f"note: board {name} is left out: {error.message}; remedy: {error.hint}")
    wanted -= lacking.keys()
    state, boards, well = lab_state(lab), {}, set()
    known = {one.board: one for one in state.health.list()}
    for name in sorted(wanted):
        health = known.get(name, BoardHealth(name))
        if any(health.may_do("untrusted" if job.untrusted else "run") for job in jobs):
            boards[name] = lab.board(name).shares
            if health.health is Health.GOOD:
                well.add(name)
        else:
            note(f"note: board {name} is left out: its health is {health.health}")
    schedule = Schedule(boards, lab.lab.shared_limits, well=well, deal_above=READY_AT_ONCE)
    schedule.add(*jobs)

    def count(board: str, stopping: Event) -> None:
        try:
            with patience(stopping=stopping):
                state.health.job_done(board)
        except LabctlError as error:  # the job's results are kept anyway
            note(printable_line(f"note: a job on {board} is not counted: {error.message}"))

    ready = require_health(lab, connect_board, lambda line: note(printable_line(line)))
    executor = RunExecutor(
        lab,
        current,
        connect_board,
        compare=comparing_with(lab),
        before_job=ready,
        after_job=count,
    )

    def ended(job: FarmJob, board: str, attempt: JobResult, result: JobResult | None) -> None:
        if result is not None:
            current.note_result(job, board, result)
        _tell(current, job, board, attempt, again=result is None)

    Dispatcher(schedule, executor, on_end=ended).run()
    for job in schedule.stranded:
        why = next((f": {lacking[one].message}" for one in job.boards if one in lacking), "")
        result = JobResult(ExitStatus.INFRA, blame=Blame.INFRA, reason=f"{NO_BOARD}{why}")
        current.note_result(job, "", result)
        _tell(current, job, "no board", result, again=False)


def _tell(current: Batch, job: FarmJob, board: str, attempt: JobResult, *, again: bool) -> None:
    if again and attempt.is_board_taken:
        return  # it waits, as in any queue
    words = [f"job {job.id} {job.name} on {board}: {_word(attempt)}"]
    words += [attempt.reason] if attempt.reason else []
    words += [f"run {attempt.run}"] if attempt.run else []
    place = f"[{len(current.results)}/{len(current.jobs)}]"
    note(printable_line(f"{place} {'; '.join(words)}{'; it waits again' if again else ''}"))


def _word(result: JobResult) -> str:
    if result.exit_status == ExitStatus.OK:
        return "good"
    return "stopped" if result.exit_status == ExitStatus.INTERRUPTED else f"failed ({result.blame})"


def _status(current: Batch) -> int:
    found = {result.exit_status for result in current.results.values()}
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


def _show_results(current: Batch, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(current.document(), indent=2))
        return
    counts = Counter(_word(result) for result in current.results.values())
    words = ", ".join(f"{number} {word}" for word, number in sorted(counts.items()))
    click.echo(f"{counted(len(current.jobs), 'job')}: {words}")
