"""What a table cannot show of a run: why its numbers are what they are, what to trust."""

from collections.abc import Iterator, Sequence

from labctl.config.recipe import Precision
from labctl.records import RunRecord, TrialRecord, TrialState
from labctl.runs.outliers import outliers
from labctl.runs.precision import verdict
from labctl.units import duration


def reasons(run: RunRecord, trials: Sequence[TrialRecord]) -> list[str]:
    """Lines for people: bounds, predictions, precision, outliers, what could not be had."""
    groups: dict[str, list[TrialRecord]] = {}
    for trial in trials:
        if trial.state is TrialState.OK and trial.repeat > 0:
            groups.setdefault(trial.variant, []).append(trial)
    lines = [line for group in groups.values() for line in _of_variant(group)]
    if wanted := run.recipe_resolved.get("repeats_until"):
        precision = Precision.model_validate(wanted)
        lines += [verdict(precision, name, group) for name, group in groups.items()]
    lines += [outlier.sentence for outlier in outliers(trials)]
    return [*lines, *_not_had(trials), *_again(trials)]


def _of_variant(group: Sequence[TrialRecord]) -> Iterator[str]:
    """Of the trial in the middle, a sentence; one trial's is as good as another's."""
    bound = sorted(
        (trial for trial in group if trial.bound), key=lambda t: t.bound.share if t.bound else 0
    )
    if not bound:
        return
    middle = bound[len(bound) // 2]
    if middle.bound:
        yield f"{middle.variant}: {middle.bound.sentence}"
    if middle.predicted and middle.timing and middle.timing.mean_ns:
        told, took = duration(middle.predicted.token_ns), duration(middle.timing.mean_ns)
        yield f"{middle.variant}: predicted {told} a token, measured {took}"


def _not_had(trials: Sequence[TrialRecord]) -> Iterator[str]:
    missing: dict[tuple[str, str, str], int] = {}
    for trial in trials:
        for one in trial.surroundings:
            if one.ok is not True:
                key = (one.name, one.wanted, one.had)
                missing[key] = missing.get(key, 0) + 1
    for (name, wanted, had), count in missing.items():
        yield f"not as asked in {count} trials: {name} {wanted}: {had}"


def _again(trials: Sequence[TrialRecord]) -> Iterator[str]:
    for trial in trials:
        for failure in trial.earlier_failures:
            yield f"trial {trial.number} was begun again: {failure.message}"
