"""What a recipe would do on a board: seen before anything moves."""

from dataclasses import dataclass

from pydantic import JsonValue

from labctl.records import Execution, TrialPrediction
from labctl.runs.conduct import RunRequest
from labctl.runs.fit import settled_variants
from labctl.runs.observer import Observer
from labctl.runs.plan import Plan
from labctl.runs.planning import Foresight, foresee, plan_trials
from labctl.runs.prepare import prepare
from labctl.runs.rates import known_rates
from labctl.runs.session import meet_board
from labctl.transport import Transport
from labctl.units import duration


@dataclass(frozen=True)
class OutlookRow:
    """One variant: its trials that will be, those that may be, and what one of them takes."""

    variant: str
    trials: int
    optional: int
    tokens: int | None
    predicted: TrialPrediction | None


@dataclass(frozen=True)
class Outlook:
    """A plan with all that is foreseen of it."""

    plan: Plan
    foresight: Foresight
    max_seconds: float
    notes: tuple[str, ...]

    def rows(self) -> list[OutlookRow]:
        """A row a variant, in the order of the recipe."""
        rows = []
        for slug in dict.fromkeys(trial.variant.slug for trial in self.plan.trials):
            trials = [trial for trial in self.plan.trials if trial.variant.slug == slug]
            sure = [trial for trial in trials if not trial.optional]
            predicted = self.foresight.of(trials[0])
            rows.append(
                OutlookRow(slug, len(sure), len(trials) - len(sure), trials[0].tokens, predicted)
            )
        return rows

    def sentences(self) -> list[str]:
        """What a reader of the rows has to know."""
        limit = f"max_time is {duration(self.max_seconds * 1e9)}"
        if self.foresight.facts.execution is not Execution.BOARD:
            told = f"nothing is predicted: {self.foresight.facts.execution}, not a board"
        elif self.plan.predicted_seconds is None:
            told = "nothing is predicted: neither a probe nor the target tells this board's speed"
        else:
            seconds = duration(self.plan.predicted_seconds * 1e9)
            sources = ", ".join(dict.fromkeys(self.foresight.sources.values()))
            told = f"predicted to take {seconds}, loading included, from {sources}"
        bounds = [
            f"{slug}: {prediction.explanation}"
            for slug, prediction in self.foresight.predicted.items()
        ]
        return [f"{told}; {limit}", *bounds, *(f"note: {note}" for note in self.notes)]

    def document(self) -> dict[str, JsonValue]:
        """All of it for machines; durations in ns."""
        return {
            "trials": [trial.record().model_dump(mode="json") for trial in self.plan.trials],
            "variants": {
                row.variant: row.predicted.model_dump(mode="json") if row.predicted else None
                for row in self.rows()
            },
            "predicted_seconds": self.plan.predicted_seconds,
            "max_seconds": self.max_seconds,
            "notes": list(self.notes),
        }


def outlook(request: RunRequest, transport: Transport, observer: Observer) -> Outlook:
    """Prepare on this host, ask the board what it is, and plan; nothing is sent.

    Raises ConfigError when even the least amount does not fit into ``max_time``, and as
    :func:`labctl.runs.conduct`.
    """
    recipe, board = request.recipe, request.board
    prepared = prepare(recipe, board, request.lab_root, observer.step)
    with meet_board(board, transport, lab_root=request.lab_root) as met:
        variants, notes = settled_variants(prepared, met.facts)
        rates = known_rates(request.lab_root, board.name, met.target)
        foresight = foresee(prepared, variants, met.facts, rates)
    max_seconds = min(recipe.max_time, board.limits.max_time or recipe.max_time)
    plan = plan_trials(recipe, variants, foresight, max_seconds)
    return Outlook(plan, foresight, max_seconds, (*notes, *plan.notes))
