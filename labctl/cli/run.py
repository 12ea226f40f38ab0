"""``labctl run``."""

import time

import click
from rich.console import Console

from labctl.cli.lab import connect_board, lab_of
from labctl.cli.progress import ProgressView, Step
from labctl.cli.report import report_json
from labctl.cli.root import Invocation
from labctl.config.recipe import find_recipe
from labctl.errors import Blame, InfraError
from labctl.records import TrialRecord, TrialState
from labctl.report import print_timing_table
from labctl.results.estimate import token_time
from labctl.runs import (
    Observer,
    Outcome,
    PlannedTrial,
    RunRequest,
    TrialProgress,
    conduct_with_spares,
    read_recipe,
)
from labctl.units import digits, duration


@click.command(epilog="Example: labctl run recipes/q8_latency.yaml --board rk1 --set tokens=8")
@click.option("--board", help="The board to run on; default: the lab's default board.")
@click.option(
    "--spare",
    "spares",
    multiple=True,
    metavar="BOARD",
    help="An equal board to go on with when the first one breaks; may be given several times.",
)
@click.option(
    "--set",
    "set_values",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a key of the recipe for this run; may be given several times.",
)
@click.option("--json", "as_json", is_flag=True, help="Print run, rows and records as JSON.")
@click.argument("recipe")
@click.pass_obj
def run(
    invocation: Invocation,
    recipe: str,
    *,
    board: str | None,
    spares: tuple[str, ...],
    set_values: tuple[str, ...],
    as_json: bool,
) -> int:
    """Run a recipe on a board and print its timing table.

    RECIPE is a file, or the name of one of the lab's or of those that come with labctl. Deploys
    what the board lacks; never builds. Raw logs and records land in a new directory under the lab's
    runs/. Ends with 0 when every variant has a result and every gate held, 1 when a program failed
    or a gate was missed, 3 when host, link or board broke: what was finished by then is kept, and
    `labctl resume` goes on, as it does after Ctrl-C or a kill. With --spare the run goes on by
    itself on another board, if that is equal: of the same kind, system and speed (by the probes of
    both).
    """
    lab = lab_of(invocation)
    chosen = lab.board(board)
    wanted = read_recipe(find_recipe(recipe, lab.root), set_values, lab_root=lab.root)
    others = [lab.board(name) for name in dict.fromkeys(spares) if name != chosen.name]
    with ProgressView() as view:
        outcome = conduct_with_spares(
            RunRequest(wanted, chosen, lab.name, lab.root),
            others,
            connect_board,
            RunView(view),
        )
    return tell(invocation, outcome, as_json=as_json)


def tell(invocation: Invocation, outcome: Outcome, *, as_json: bool) -> int:
    """Print what a run came to; its exit status."""
    invocation.status = outcome.exit_status
    if as_json:
        click.echo(report_json(outcome.run, list(outcome.trials), outcome.directory.path))
    else:
        print_timing_table(Console(), outcome.run, outcome.trials, outcome.gates)
        click.echo(f"run directory: {outcome.directory.path}")
    return outcome.exit_status


class RunView(Observer):
    """Shows a run as it goes."""

    def __init__(self, view: ProgressView):
        self._view = view
        self._step: tuple[str, Step] | None = None
        self._overall: Step | None = None
        self._trial: Step | None = None
        self._trial_began = 0.0
        self._expected_s: float | None = None
        self._link_lost = False
        self._not_run: set[str] = set()

    def note(self, text: str) -> None:
        """One line."""
        self.end_step()
        self._view.say(text)

    def step(self, step: str, done: int, total: int | None) -> None:
        """A bar until another step begins."""
        if self._step is None or self._step[0] != step:
            self.end_step()
            self._step = (step, self._view.open(step, total))
        self._step[1].update(done, total)

    def end_step(self) -> None:
        """The step under way, if any, is done."""
        if self._step:
            self._step[1].finish()
            self._step = None

    def trial_started(self, trial: PlannedTrial, total: int, expected_s: float | None) -> None:
        """A bar of all trials, and one of this trial's time."""
        self.end_step()
        if self._overall is None:
            self._overall = self._view.open("all trials", total)
        self._trial = self._view.open(f"trial {trial.number}/{total} {trial.slug}", expected_s)
        self._trial_began, self._expected_s = time.monotonic(), expected_s

    def trial_progress(self, progress: TrialProgress) -> None:
        """Phase, amount, rate and heat; asked every five seconds at most."""
        self._link_lost = False
        if self._trial is None:
            return
        elapsed, remaining = time.monotonic() - self._trial_began, progress.remaining_s
        if remaining is None and self._expected_s is not None:
            # By the board's clock: it waited for before, or ran under an earlier controller.
            left = self._expected_s - (progress.elapsed_s or 0.0)
            remaining = left if left > 0 else None
        self._trial.clock(elapsed, remaining, standing(progress))

    def link_lost(self, error: InfraError) -> None:
        """One line each time, however often it is tried again."""
        if not self._link_lost:
            self._link_lost = True
            self._view.say(f"{error.message}; trying again")

    def repeated(self, error: Exception) -> None:
        """The bar goes; one line says why."""
        if self._trial:
            self._trial.finish(f"cut: {error}; it is begun again")
            self._trial = None

    def trial_finished(self, record: TrialRecord, total: int) -> None:
        """One line of result; of trials that are not run, one line for each variant."""
        if self._trial:
            self._trial.finish(_result(record))
            self._trial = None
        elif record.variant not in self._not_run:
            self._not_run.add(record.variant)
            self._view.say(f"trial {record.number}/{total} {record.slug}: {_result(record)}")
        if record.failure and record.failure.blame is Blame.JOB and record.failure.hint:
            self._view.say(f"  hint: {record.failure.hint}")
        if self._overall:
            self._overall.update(record.number)


def standing(progress: TrialProgress) -> str:
    """``generating, 17/32 tokens, 3.21 tokens/s, 61.3 °C``, as far as it is known."""
    parts = [progress.phase]
    if progress.done:
        total = "" if progress.total is None else f"/{progress.total}"
        parts.append(f"{progress.done}{total} {progress.unit}")
    if progress.per_second is not None:
        parts.append(f"{digits(progress.per_second)} {progress.unit}/s")
    if progress.temperature_mc is not None:
        parts.append(f"{progress.temperature_mc / 1000:.1f} °C")
    return ", ".join(parts)


def _result(record: TrialRecord) -> str:
    if record.state is TrialState.SKIPPED:
        return f"not measured: {record.skip_reason}"
    if record.failure:
        # What is no job's failure ends the run, and is told as its end.
        told = f": {record.failure.message}" if record.failure.blame is Blame.JOB else ""
        return f"failed ({record.failure.blame}){told}"
    time = token_time(record)
    return f"{duration(time)} a token" if time else "ok"
