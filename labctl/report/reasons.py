"""Sentences below the table of a run: why its numbers are as they are, and which to trust."""

from collections.abc import Iterator, Sequence

from labctl.performance.bottleneck import NAMES
from labctl.records import RunRecord, TrialRecord
from labctl.results.comparability import cache_class
from labctl.results.estimate import good_trials, wanted_precision
from labctl.results.outliers import outliers
from labctl.results.stopping_rule import ratio_verdict, trend_verdict, verdict
from labctl.results.summary import summarise
from labctl.results.telemetry_summary import RECLAIMING
from labctl.stats import median
from labctl.units import duration


def reasons(run: RunRecord, trials: Sequence[TrialRecord]) -> list[str]:
    """Lines for people: bounds, predictions, precision, outliers, what could not be had."""
    groups: dict[str, list[TrialRecord]] = {variant: [] for variant in run.variants}
    for trial in good_trials(trials):
        groups.setdefault(trial.variant, []).append(trial)
    lines = [line for group in groups.values() for line in _of_variant(group)]
    precision = wanted_precision(run)
    rows = summarise(trials, run.variants, precision)
    lines += [line for row in rows if (line := ratio_verdict(row, rows[0].variant))]
    if precision:
        lines += [verdict(precision, name, group) for name, group in groups.items() if group]
    lines += [line for name, group in groups.items() if (line := trend_verdict(name, group))]
    lines += [outlier.sentence for outlier in outliers(trials)]
    lines += [line for v, group in groups.items() for line in _failed_checks(v, group)]
    return [*lines, *_not_had(trials), *_again(trials)]


def _of_variant(group: Sequence[TrialRecord]) -> Iterator[str]:
    """Sentences of the trial in the middle; one trial's are as good as another's."""
    bound = sorted(
        (trial for trial in group if trial.bound), key=lambda t: t.bound.share if t.bound else 0
    )
    if bound:
        middle = bound[len(bound) // 2]
        yield f"{middle.variant}: {middle.bound.sentence if middle.bound else ''}"
    compared = sorted(
        (trial for trial in group if trial.measured_to_predicted),
        key=lambda trial: trial.measured_to_predicted or 0,
    )
    if compared:
        middle = compared[len(compared) // 2]
        yield f"{middle.variant}: {_against_prediction(middle)}"
    near = [told for trial in group if (told := _between_predictions(trial))]
    if near:
        yield f"{group[0].variant}: {near[0]}"
    reclaimed = [t.evidence.reclaim_share for t in group if t.evidence and t.evidence.reclaim_share]
    if reclaimed and (share := median(reclaimed)) >= RECLAIMING:
        yield (
            f"{group[0].variant}: the kernel used {share:.0%} of a CPU to free memory (kswapd),"
            " as it does when more is read than stays in memory; it is not part of quiet"
        )
    starts: dict[str, list[str]] = {}
    for trial in group:
        if found := cache_class(trial.job.state if trial.job else None):
            starts.setdefault(found, []).append(str(trial.number))
    if len(starts) > 1:
        told = ", ".join(f"{name} in {', '.join(of)}" for name, of in starts.items())
        yield (
            f"{group[0].variant}: the model was not equally in memory when trials began ({told}):"
            " their TTFTs are not comparable"
        )


def _against_prediction(trial: TrialRecord) -> str:
    """Compare a trial with its prediction, for people."""
    if not (trial.predicted and trial.timing and trial.measured_to_predicted):
        return ""
    took, expected = duration(trial.timing.mean_ns), duration(trial.predicted.token_ns)
    return (
        f"predicted {expected} a token, bound by {NAMES[trial.predicted.bound]}; measured {took},"
        f" {trial.measured_to_predicted:.2f} times that"
    )


def _between_predictions(trial: TrialRecord) -> str:
    """Both times that were expected near the border of what fits in memory; for people."""
    expected, measured = trial.predicted, trial.timing.mean_ns if trial.timing else None
    if expected is None or expected.storage_token_ns is None or measured is None:
        return ""
    return (
        f"its need is so near to the memory that {duration(expected.resident_token_ns)} a token"
        f" were predicted if the weights stay there, {duration(expected.storage_token_ns)} if"
        f" storage reads them again; measured {duration(measured)}"
    )


def _failed_checks(variant: str, group: Sequence[TrialRecord]) -> Iterator[str]:
    """Yield the details of the checks that the table only names."""
    failed: dict[str, list[str]] = {}
    for trial in group:
        for check in trial.checks:
            if check.ok is False:
                failed.setdefault(check.name, []).append(f"trial {trial.number}: {check.detail}")
    for name, found in failed.items():
        yield f"{variant}: {name} failed in {len(found)} of {len(group)} trials; {found[0]}"


def _not_had(trials: Sequence[TrialRecord]) -> Iterator[str]:
    missing: dict[tuple[str, str, str], int] = {}
    for trial in trials:
        for one in trial.conditions:
            if one.ok is not True:
                key = (one.name, one.wanted, one.had)
                missing[key] = missing.get(key, 0) + 1
    for (name, wanted, had), count in missing.items():
        yield f"not as asked in {count} trials: {name} {wanted}: {had}"


def _again(trials: Sequence[TrialRecord]) -> Iterator[str]:
    for trial in trials:
        for failure in trial.earlier_failures:
            yield f"trial {trial.number} was retried: {failure.message}"
