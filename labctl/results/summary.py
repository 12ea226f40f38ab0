"""Summaries of a run's trials, and the estimate that every table shows.

An estimate is the geometric mean over the good trials, with one value per trial. It is the centre
of its interval; `labctl compare` compares it. The interval comes only from the spread between
trials: the tokens of one trial share process, memory and heat, and are not independent.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from labctl.config.recipe import Precision
from labctl.figures.trials import FIGURES, TOKEN, has_energy, token_time
from labctl.records.energy import EnergyRecord
from labctl.records.run import RunRecord
from labctl.records.timing import TimingRecord
from labctl.records.trial import ModelIdentity, TrialRecord, TrialState
from labctl.stats.describe import geometric_mean, median, percentile
from labctl.stats.intervals import Interval, geometric_interval
from labctl.stats.log_ratio import Repeat, within_run

#: Confidence of intervals if the recipe gives no confidence.
LEVEL = 0.95
#: Definition of an estimate, in words for people and machines.
ESTIMATE = "geometric mean"


@dataclass(frozen=True)
class Estimate:
    """Estimate of one figure of a variant, from one value per trial.

    ``value``: geometric mean. ``interval``: interval of ``value``; None for a single trial.
    ``median`` may lie outside ``interval``.
    """

    value: float
    median: float
    interval: Interval | None


@dataclass(frozen=True)
class Ratio:
    """Ratio of a variant's token time to the first variant's.

    ``interval`` is None if fewer than two rounds have both variants; ``value`` is then the ratio of
    the estimates.
    """

    value: float
    interval: Interval | None


def wanted_precision(run: RunRecord) -> Precision | None:
    """Return the precision that the run's recipe asks for; None for a fixed number of repeats."""
    wanted = run.recipe_resolved.get("repeats_until")
    return Precision.model_validate(wanted) if wanted else None


def good_trials(trials: Iterable[TrialRecord]) -> list[TrialRecord]:
    """Return the trials that count: successful, not warm-up."""
    return [trial for trial in trials if trial.state is TrialState.OK and trial.repeat > 0]


def estimate_of(values: Sequence[float], until: Precision | None = None) -> Estimate | None:
    """Return the estimate of a figure from one value per trial.

    None without values, or if a value is <= 0. ``until``: the precision that stopped the repeats,
    which widens the interval.
    """
    if min(values, default=0) <= 0:
        return None
    found = None
    if len(values) > 1:
        level = until.level if until else LEVEL
        found = geometric_interval(values, level=level, stopped=until is not None)
    return Estimate(found.mean if found else geometric_mean(values), median(values), found)


def ratio_of(
    trials: Iterable[TrialRecord], first: Iterable[TrialRecord], until: Precision | None
) -> Ratio | None:
    """Return the ratio of a variant to the first one; None if one of them has no token time.

    Uses the estimate of `labctl compare`: the geometric mean of the ratios within each round if
    the rounds were interleaved, else the ratio of the geometric means.
    """
    own, base = repeats_of(trials), repeats_of(first)
    if not own or not base:
        return None
    found = within_run(own, base, stopped=until is not None)
    if found is None:
        mean, reference = (geometric_mean([one.value for one in side]) for side in (own, base))
        return Ratio(mean / reference, None)
    return Ratio(found.ratio, found.interval(until.level if until else LEVEL))


def repeats_of(trials: Iterable[TrialRecord]) -> list[Repeat]:
    """Return the token times of good trials, in ns, with their rounds and positions."""
    return [
        Repeat(trial.repeat, trial.number, time)
        for trial in good_trials(trials)
        if (time := token_time(trial))
    ]


@dataclass(frozen=True)
class TestSummary:
    """One test of a benchmark; medians over the good trials of each trial's percentiles.

    ``repetitions``: number of repetitions in all trials together.
    """

    __test__ = False  # not a pytest class

    name: str
    repetitions: int
    p10_ns: int
    p50_ns: int
    p90_ns: int
    tokens_per_second: float


@dataclass(frozen=True)
class MeasureSummary:
    """Another measured value: its values in all good trials, and their median, in ``unit``.

    ``error``: largest error that the program reported for its estimate.
    """

    name: str
    unit: str
    values: int
    p10: float
    p50: float
    p90: float
    error: float | None


@dataclass(frozen=True)
class EnergySummary:
    """Energy of the good trials, from the meter.

    ``trials``: number of trials with energy above 0. ``absent``: number of trials with no energy,
    or energy <= 0; ``reason``: reason for the first of these. ``doubts``: sentences about the
    energy of phases that is uncertain or withheld.
    """

    trials: int
    absent: int
    reason: str | None
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class VariantSummary:
    """One variant. Durations in ns; ``None``: not measured.

    ``figures``: figures of :mod:`labctl.figures.trials` over the good trials, by name.
    ``token_interval``: interval of the token time; None for fewer than two trials.
    ``token_median_ns``: median of the same values. ``ratio``: token time divided by the first
    variant's in the rounds with both; None if the first variant has no token time.
    ``ratio_interval``: None for fewer than two such rounds; ``ratio`` is then the ratio of the
    estimates.
    """

    variant: str
    model: ModelIdentity
    trials_ok: int
    trials_failed: int
    trials_skipped: int
    #: Number of good trials with a token time; the estimate uses only these.
    trials_timed: int
    figures: Mapping[str, float | None] = field(hash=False)
    token_median_ns: int | None
    token_interval: Interval | None
    ratio: float | None
    ratio_interval: Interval | None
    tests: tuple[TestSummary, ...]
    measures: tuple[MeasureSummary, ...]
    #: None if the board has no meter.
    energy: EnergySummary | None
    #: True if a good trial has a figure that can be checked, and each good trial passed a check.
    checked: bool
    checks_failed: tuple[str, ...]
    #: Names of the checks that apply but could not be judged.
    checks_open: tuple[str, ...]
    failures: tuple[str, ...]
    #: Reason why the first skipped trial was not run.
    skip_reason: str | None

    @property
    def token_ns(self) -> float | None:
        """Estimate of the time per token."""
        return self.figures[TOKEN.name]

    def document(self) -> dict[str, object]:
        """Return the summary for JSON, each figure by its name."""
        found: dict[str, object] = {"estimate": ESTIMATE}
        for name, value in asdict(self).items():
            found |= value if name == "figures" else {name: value}
        return {**found, "model": self.model.model_dump(mode="json")}


def summarise(
    trials: Iterable[TrialRecord], order: Sequence[str] = (), until: Precision | None = None
) -> list[VariantSummary]:
    """Return a summary for each variant with trials, in this order, then in order of appearance.

    Warm-ups do not count, but a failed warm-up is reported, because it ends its variant. ``until``:
    the precision that stopped the repeats, if any.
    """
    variants: dict[str, list[TrialRecord]] = {variant: [] for variant in order}
    for trial in trials:
        group = variants.setdefault(trial.variant, [])
        if trial.repeat > 0 or trial.state is TrialState.FAILED:
            group.append(trial)
    first = next(iter(variants.values()), [])
    return [_summary(variant, group, first, until) for variant, group in variants.items() if group]


def _summary(
    variant: str,
    group: Sequence[TrialRecord],
    first: Sequence[TrialRecord],
    until: Precision | None,
) -> VariantSummary:
    good = [t for t in group if t.state is TrialState.OK]
    checks = [check for t in good for check in t.checks]
    timings = [t.timing for t in good if t.timing is not None]
    times = [time for t in good if (time := token_time(t))]
    token = estimate_of(times, until)
    is_first = group is first
    ratio = ratio_of(group, first, until) if not is_first else Ratio(1.0, None) if times else None
    return VariantSummary(
        variant=variant,
        model=group[0].model,
        trials_ok=len(good),
        trials_failed=sum(t.state is TrialState.FAILED and t.repeat > 0 for t in group),
        trials_skipped=sum(t.state is TrialState.SKIPPED for t in group),
        trials_timed=len(times),
        figures={figure.name: figure.over_all(good) for figure in FIGURES if figure.over},
        token_median_ns=round(token.median) if token else None,
        token_interval=token.interval if token else None,
        ratio=ratio.value if ratio else None,
        ratio_interval=ratio.interval if ratio else None,
        tests=tuple(_tests(timings)),
        measures=tuple(_measures(timings)),
        energy=_energy(good),
        checked=any(map(_has_figure, timings)) and all(map(_passed_a_check, good)),
        checks_failed=_once(check.name for check in checks if check.ok is False),
        checks_open=_once(check.name for check in checks if check.is_open),
        failures=_once(t.failure.sentence for t in group if t.failure),
        skip_reason=next((t.skip_reason for t in group if t.skip_reason), None),
    )


def _once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def _passed_a_check(trial: TrialRecord) -> bool:
    return any(check.ok for check in trial.checks)


def _has_figure(timing: TimingRecord) -> bool:
    """Return True if there is a figure; without one, checks of the board's state mean nothing."""
    times = (timing.load_ns, timing.prompt_eval_ns, timing.eval_ns, timing.ttft_ns, timing.mean_ns)
    known = any(value is not None for value in (*times, timing.tokens_per_second))
    return known or bool(timing.tests or timing.measures)


def _tests(timings: Iterable[TimingRecord]) -> Iterator[TestSummary]:
    samples: dict[str, list[Sequence[int]]] = {}
    tokens: dict[str, int] = {}
    for test in (test for timing in timings for test in timing.tests):
        samples.setdefault(test.name, []).append(test.samples_ns)
        tokens[test.name] = test.prompt_tokens + test.generated_tokens
    for name, trials in samples.items():
        p10, p50, p90 = (median([percentile(times, q) for times in trials]) for q in (10, 50, 90))
        rate = tokens[name] / (p50 / 1e9)
        yield TestSummary(name, sum(map(len, trials)), round(p10), round(p50), round(p90), rate)


def _measures(timings: Iterable[TimingRecord]) -> Iterator[MeasureSummary]:
    values: dict[tuple[str, str], list[float]] = {}
    errors: dict[tuple[str, str], list[float]] = {}
    for measure in (measure for timing in timings for measure in timing.measures):
        key = (measure.name, measure.unit)
        values.setdefault(key, []).append(measure.value)
        errors.setdefault(key, []).extend([] if measure.error is None else [measure.error])
    for key, found in values.items():
        p10, p50, p90 = (percentile(found, q) for q in (10, 50, 90))
        yield MeasureSummary(*key, len(found), p10, p50, p90, max(errors[key], default=None))


def _energy(good: Iterable[TrialRecord]) -> EnergySummary | None:
    found = [trial for trial in good if trial.energy is not None]
    absent = [trial.energy for trial in found if trial.energy and not has_energy(trial)]
    reasons = [
        energy.absent if energy.joules is None else f"its meter says {energy.joules:g} J"
        for energy in absent
    ]
    if not found:
        return None
    doubts = tuple(_doubts([one.energy for one in found if has_energy(one) and one.energy]))
    return EnergySummary(len(found) - len(absent), len(absent), next(iter(reasons), None), doubts)


#: From this number of readings in a phase on, its energy needs no remark.
_SURE_READINGS = 100


def _doubts(energies: Sequence[EnergyRecord]) -> Iterator[str]:
    """Yield sentences about the energy of phases, of the trial with the fewest readings of each."""
    for what, phases in (
        ("net energy per prompt token", [one.prompt for one in energies if one.prompt]),
        ("net energy per token", [one.decode for one in energies if one.decode]),
    ):
        absent = [phase.absent for phase in phases if phase.absent]
        if absent:
            yield f"no {what} of {len(absent)} trials: {absent[0]}"
        known = [phase for phase in phases if phase.readings is not None]
        worst = min(known, key=lambda phase: phase.readings or 0, default=None)
        if worst is None or not worst.joules_per_token or (worst.readings or 0) >= _SURE_READINGS:
            continue
        unsure = (worst.uncertainty_joules or 0.0) / worst.joules_per_token
        yield f"{what}: ± {unsure:.0%} in a trial, with {worst.readings} readings in the phase"
