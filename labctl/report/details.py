"""Details of a run that do not fit into its table, and the reasons below the table.

Details: phases, benchmark tests, energy and more. Reasons: causes of the numbers, and their
reliability.
"""

from collections.abc import Iterable, Iterator, Sequence

from labctl.performance.bottleneck import NAMES
from labctl.records.run import RunRecord
from labctl.records.trial import NOT_JUDGED, TrialRecord
from labctl.results.comparability import cache_class
from labctl.results.repeats import outliers, ratio_verdict, trend_verdict, verdict
from labctl.results.summary import (
    good_trials,
    summarise,
    wanted_precision,
)
from labctl.results.telemetry import RECLAIMING
from labctl.stats.describe import median
from labctl.units import duration


def reasons(run: RunRecord, trials: Sequence[TrialRecord]) -> list[str]:
    """Yield lines for people: bounds, predictions, precision, outliers, missing values."""
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
    return [*lines, *_open_checks(groups.values()), *_not_had(trials), *_again(trials)]


def _of_variant(group: Sequence[TrialRecord]) -> Iterator[str]:
    """Yield sentences of the middle trial, as an example for all trials of the variant."""
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
    near = [text for trial in group if (text := _between_predictions(trial))]
    if near:
        yield f"{group[0].variant}: {near[0]}"
    shares = [trial.evidence.reclaim_share for trial in group if trial.evidence]
    reclaimed = [share for share in shares if share is not None]  # 0 is a share too
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
        text = ", ".join(f"{name} in {', '.join(of)}" for name, of in starts.items())
        yield (
            f"{group[0].variant}: trials began with different shares of the model in memory"
            f" ({text}): their TTFTs are not comparable"
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
    """Return both predicted times of a model whose size is close to the memory's; for people."""
    expected, measured = trial.predicted, trial.timing.mean_ns if trial.timing else None
    if expected is None or expected.storage_token_ns is None or measured is None:
        return ""
    upper = ""
    if expected.upper_token_ns is not None:
        upper = f" (up to {duration(expected.upper_token_ns)} by single pages)"
    return (
        f"its need is so near to the memory that {duration(expected.resident_token_ns)} a token"
        f" were predicted if the weights stay there, {duration(expected.storage_token_ns)} if"
        f" storage reads them again{upper}; measured {duration(measured)}"
    )


def _failed_checks(variant: str, group: Sequence[TrialRecord]) -> Iterator[str]:
    """Yield the details of failed checks, which the table only names."""
    failed: dict[str, list[str]] = {}
    for trial in group:
        for check in trial.checks:
            if check.ok is False:
                failed.setdefault(check.name, []).append(f"trial {trial.number}: {check.detail}")
    for name, found in failed.items():
        yield f"{variant}: {name} failed in {len(found)} of {len(group)} trials; {found[0]}"


def _open_checks(groups: Iterable[Sequence[TrialRecord]]) -> Iterator[str]:
    """Yield the checks that were not judged, each reason once."""
    found: dict[str, list[str]] = {}
    for check in (check for group in groups for trial in group for check in trial.checks):
        if check.is_open and (why := check.detail.partition(NOT_JUDGED)[2]):
            names = found.setdefault(why, [])
            names += [] if check.name in names else [check.name]
    if found:
        text = "; ".join(f"{', '.join(names)} ({why})" for why, names in found.items())
        yield f"{NOT_JUDGED}{text}"


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
