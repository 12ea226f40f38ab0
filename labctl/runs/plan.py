"""``labctl plan``: a preview of a recipe on a board, before anything is sent."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from labctl.config.recipe import Recipe
from labctl.config.target import load_target
from labctl.deploy.plan import check_machine
from labctl.errors import ConfigError
from labctl.performance.prediction import board_rates, rates_of
from labctl.records.board import BoardFacts, CpuFacts, Execution
from labctl.records.trial import TrialPrediction
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.board.session import hold_board
from labctl.runs.inputs.prepare import Prepared, prepare, recipe_files
from labctl.runs.inputs.programs import agent_notes
from labctl.runs.observer import Observer
from labctl.runs.planning.forecast import Forecast, make_forecast, plan_trials
from labctl.runs.planning.needed_repeats import RepeatsNeeded
from labctl.runs.planning.trials import Plan, PlannedTrial
from labctl.runs.record.history import (
    Measured,
    SeenBoard,
    Wanted,
    known_noise,
    last_measured,
    last_seen,
)
from labctl.runs.record.repository import RunRepository
from labctl.runs.run import RunRequest
from labctl.transport.base import Transport
from labctl.units import duration, size

#: Placeholder for a fact that only a real board knows.
_EXPECTED = "expected"


@dataclass(frozen=True)
class PreviewRow:
    """One variant: its certain trials, its optional trials, and the time of one trial.

    ``measured`` is the last similar trial, if there is no prediction.
    """

    variant: str
    trials: int
    optional: int
    tokens: int | None
    predicted: TrialPrediction | None
    measured: Measured | None = None

    @property
    def seconds(self) -> float | None:
        """Time of one trial in s; None if unknown."""
        if self.predicted is not None:
            return self.predicted.trial_ns / 1e9
        return self.measured.seconds if self.measured else None


@dataclass(frozen=True)
class Preview:
    """A plan with all its predictions; ``source`` is the source of the board's facts."""

    plan: Plan
    forecast: Forecast
    max_seconds: float
    notes: tuple[str, ...]
    source: str = "the board as it is now"
    measured: Mapping[str, Measured] = field(default_factory=dict)
    #: True if there is no board yet: all facts are the expected facts of its target.
    expected: bool = False
    #: Repeats to compare the variants; None: not requested.
    needed: RepeatsNeeded | None = None

    def rows(self) -> list[PreviewRow]:
        """Return a row for each variant, in the order of the recipe."""
        rows = []
        for slug in dict.fromkeys(trial.variant.slug for trial in self.plan.trials):
            trials = [trial for trial in self.plan.trials if trial.variant.slug == slug]
            sure = [trial for trial in trials if not trial.optional]
            predicted = self.forecast.of(trials[0])
            rows.append(
                PreviewRow(
                    slug,
                    len(sure),
                    len(trials) - len(sure),
                    trials[0].tokens,
                    predicted,
                    None if predicted else self.measured.get(slug),
                )
            )
        return rows

    def messages(self) -> list[str]:
        """Return notes for the reader of the rows."""
        limit = f"max_time is {duration(self.max_seconds * 1e9)}"
        if self.forecast.facts.execution is not Execution.BOARD:
            basis = f"nothing is predicted: {self.forecast.facts.execution}, not a board"
        elif not self.forecast.predicted:
            basis = "no prediction: neither a probe nor the target has a rate"
            if self.forecast.rates is not None:
                basis = "no prediction: what a trial reads is not known, or the rate of reading it"
        elif self.plan.predicted_seconds is None:
            basis = "not all of it is predicted"
        else:
            seconds = duration(self.plan.predicted_seconds * 1e9)
            sources = ", ".join(dict.fromkeys(self.forecast.sources.values()))
            basis = f"predicted to take {seconds}, loading included, from {sources}"
        bounds = [
            f"{slug}: {prediction.explanation}"
            for slug, prediction in self.forecast.predicted.items()
        ]
        last = [
            f"{row.variant}: a trial took {duration(row.measured.seconds * 1e9)} in run"
            f" {row.measured.run}"
            for row in self.rows()
            if row.measured
        ]
        needed = [self.needed.text] if self.needed else []
        notes = [f"note: {note}" for note in self.notes]
        planned = f"planned for {self.source}"
        return [f"{basis}; {limit}", planned, *bounds, *last, *needed, *notes]

    def document(self) -> dict[str, JsonValue]:
        """Return the preview for machines; durations in ns."""
        return {
            "trials": [trial.record().model_dump(mode="json") for trial in self.plan.trials],
            "variants": {
                row.variant: row.predicted.model_dump(mode="json") if row.predicted else None
                for row in self.rows()
            },
            "measured_seconds": {slug: last.seconds for slug, last in self.measured.items()},
            "board": self.source,
            "expected": self.expected,
            "predicted_seconds": self.plan.predicted_seconds,
            "max_seconds": self.max_seconds,
            "comparison": self.needed.document() if self.needed else None,
            "notes": list(self.notes),
        }


def preview_run(
    request: RunRequest,
    connect: Callable[[], Transport],
    observer: Observer,
    *,
    ask: bool = False,
    proven: Callable[[Prepared, Execution], Sequence[str]] = lambda _prepared, _execution: (),
) -> Preview:
    """Prepare on this host and plan for the board as last seen; nothing is sent.

    Reads the board's facts only if it was never seen, or if ``ask``. ``proven`` returns sentences
    on settings that a search proved. Raises ConfigError if even the smallest amount does not fit
    into ``max_time``, and as :func:`labctl.runs.run.run_recipe`.
    """
    recipe, board, root = request.recipe, request.board, request.lab.root
    prepared = prepare(recipe, board, root, observer.step)
    target = load_target(board.target, root)
    known = None if ask else last_seen(root, board.name)
    if known is None:
        with (
            connect() as transport,
            hold_board(board, transport, request.lab, BoardUse("plan")) as held,
        ):
            known = SeenBoard(held.facts, "the board as it is now")
    else:
        check_machine(target, known.facts)
        known = SeenBoard(known.facts, f"the board as {known.source} saw it")
    rates = board_rates(root, board.name, target)
    forecast = make_forecast(prepared, known.facts, rates)
    plan = plan_trials(recipe, forecast, request.max_seconds)
    trials = {trial.variant.slug: trial for trial in plan.trials if trial.repeat}
    wanted = {
        slug: wanted_of(prepared, trial, known.facts.execution) for slug, trial in trials.items()
    }
    unpredicted = {slug: one for slug, one in wanted.items() if forecast.of(trials[slug]) is None}
    measured = last_measured(root, board.name, unpredicted) if unpredicted else {}
    noise = known_noise(RunRepository(root / "runs", observer.note), board.name, wanted)
    needed = RepeatsNeeded(noise, recipe.comparison)
    agent = agent_notes(known.facts.machine, target, root)
    notes = (*prepared.notes, *agent, *forecast.notes, *plan.notes)
    if recipe.tune is not None:
        notes += ("a search: more trials follow, round by round, within max_time",)
    notes += tuple(proven(prepared, known.facts.execution))
    return Preview(
        plan, forecast, request.max_seconds, notes, known.source, measured, needed=needed
    )


def preview_expected(
    recipe: Recipe, lab_root: Path, memory_bytes: int, observer: Observer
) -> Preview:
    """Plan for a board that does not exist yet, with the expected facts of the recipe's target.

    Needs no program, and makes no model. The system's own memory is subtracted from
    ``memory_bytes``, if the target has it. Raises ConfigError if the target has no expected facts,
    and as :func:`labctl.models.expected.expect`.
    """
    target = load_target(recipe.target, lab_root)
    expected = target.expectations
    if expected is None:
        raise ConfigError(
            f"nothing is expected of target {target.name}: its target.yaml has no `expectations`",
            hint="add them to toolchains/TARGET/target.yaml in the lab, or name a board",
        )
    free = expected.free_of(memory_bytes)
    prepared = recipe_files(recipe, lab_root, must_be_built=False).for_plan(observer.step)
    facts = BoardFacts(
        execution=Execution.BOARD,
        machine=target.machine,
        kernel=_EXPECTED,
        boot_id=_EXPECTED,
        cpus=(CpuFacts(count=expected.cores, features=target.features),),
        memory_total_bytes=memory_bytes,
        memory_available_bytes=free,
    )
    forecast = make_forecast(prepared, facts, rates_of((), expected))
    plan = plan_trials(recipe, forecast, recipe.max_time)
    notes = [*prepared.notes, *forecast.notes, *plan.notes, *forecast.warnings]
    if not expected.system_memory_bytes:
        notes.append(
            f"all memory counts as free: the target.yaml of {target.name} does not say what its"
            " system uses (expectations.system_memory_bytes)"
        )
    having = f"{expected.cores} cores and {size(free)} of {size(memory_bytes)} of memory free"
    source = f"a {target.name} with {having}: EXPECTED, not measured"
    return Preview(plan, forecast, recipe.max_time, tuple(notes), source, expected=True)


def wanted_of(prepared: Prepared, trial: PlannedTrial, execution: Execution) -> Wanted:
    """Return the conditions under which an earlier trial predicts the time of this trial."""
    engine = prepared.engine
    asked = engine.comparability(prepared.tool, engine.parameters(trial.parameters))
    known = {k: v for k, v in {**asked, **prepared.comparability}.items() if v is not None}
    return Wanted(prepared.models[trial.variant.model_key].identity.sha256, known, execution)
