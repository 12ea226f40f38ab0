"""``labctl run --detach``: a run in the lab's queue, and a worker for it."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from labctl import process
from labctl.cli.output import note
from labctl.config.lab import FILE_NAME, Board, LabFile
from labctl.config.recipe import Recipe
from labctl.errors import ConfigError, ExitStatus, HostError
from labctl.evaluation.any_recipe import AnyRecipe, longest_seconds, target_of
from labctl.farm.batch_plan import without_agent
from labctl.farm.expected import expected_seconds
from labctl.farm.run_content import RunContent
from labctl.files import host_writes
from labctl.runs.inputs.untrusted_recipe import check_board
from labctl.state.job import NewJob, new_job_id
from labctl.state.state import LabState, lab_state

_LOG = "worker.log"


def submit(
    lab: LabFile,
    recipe: AnyRecipe,
    pool: Sequence[Board],
    priority: int,
    *,
    untrusted: bool = False,
) -> int:
    """Put a run into the queue and print its job; start a worker if no worker runs.

    The lab keeps a copy of the files of an ``untrusted`` recipe. Raises ConfigError if this host
    does not have an input of the run, or no board can have an agent.
    """
    for board in pool:
        if board.name not in lab.lab.boards:
            raise ConfigError(
                f"board {board.name} is not in a {FILE_NAME}: the queue does not know it",
                hint="add it: `labctl boards add NAME HOST:PORT`",
            )
        if (target := target_of(recipe)) not in (None, board.target):
            raise ConfigError(
                f"recipe {recipe.name} is for target {target}, board {board.name} is a"
                f" {board.target}",
                hint="choose another board, or change the recipe's target",
            )
        if untrusted:
            check_board(board)
    if lab.database is None:  # all boards belong to this host
        without_agent(lab, {board.name for board in pool})
    names, state, job_id = tuple(board.name for board in pool), lab_state(lab), new_job_id()
    expected = expected_seconds(lab, recipe, names, untrusted=untrusted)
    if untrusted and isinstance(recipe, Recipe):
        from labctl.farm.untrusted_run import discard_ended, take_files

        discard_ended(lab.root, state)
        recipe = take_files(recipe, lab.root, job_id)
    found = RunContent.of(recipe, lab.root, target=pool[0].target, untrusted=untrusted)
    if lab.lab.store is not None:
        from labctl.farm.queue_ledger import share_inputs
        from labctl.farm.store import lab_store

        share_inputs(lab, lab_store(lab), found)
    new = NewJob(
        recipe.name,
        found.document(),
        names,
        "untrusted" if untrusted else "run",
        priority=priority,
        expected_seconds=expected,
        max_seconds=longest_seconds(recipe, pool),
        id=job_id,
    )
    (job,) = state.jobs.submit(new)
    click.echo(job.id)
    note(f"follow it: labctl logs -f {job.id}; cancel it: labctl queue cancel {job.id}")
    serve_if_nobody_does(lab, pool)
    return ExitStatus.OK


def serve_if_nobody_does(lab: LabFile, pool: Sequence[Board]) -> None:
    """Wake the workers of boards; without one, start it here or name the hosts that need one."""
    names, hosts = [board.name for board in pool], sorted({one.host for one in pool if one.host})
    try:
        is_served = _is_served(lab_state(lab), names)
    except HostError as error:  # after a failure, a CI would submit the job again
        note(f"note: the job waits; whether a worker is there is unknown: {error.message}")
        return
    if is_served:
        from labctl.farm.queue_engine import wake_workers

        wake_workers(lab, names)
    elif hosts:
        note(f"no worker serves these boards: start `labctl worker` on {' or '.join(hosts)}")
    else:
        _serve(lab)


def _is_served(state: LabState, boards: Sequence[str]) -> bool:
    return any(
        worker.is_alive and set(worker.boards) & set(boards) for worker in state.workers.list()
    )


def _serve(lab: LabFile) -> None:
    """Start a worker on this host that ends when the queue is empty."""
    log: Path = lab.root / _LOG
    pid = start_in_background(lab, ["worker", "--until-empty"], log)
    note(f"worker {pid} runs the queue until it is empty; its log: {log}")
    note(f"stop it: kill {pid} lets its jobs end; a second time breaks them off")


def start_in_background(lab: LabFile, words: Sequence[str], log: Path) -> int:
    """Start ``labctl WORDS`` in the lab's folder; return its process id. It outlives this process.

    Its output is appended to ``log``. Raises HostError.
    """
    argv = [sys.executable, "-P", "-m", "labctl", "--lab", str(lab.root), *words]
    with host_writes(log), log.open("ab") as output:
        started = process.start(
            argv, cwd=lab.root, stdout=output.fileno(), stderr=subprocess.STDOUT
        )
    return started.pid
