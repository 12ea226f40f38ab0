"""What a run measured, by variant: all good trials of a variant, put together."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from labctl.records import JobStatus, ModelIdentity, TimingRecord, TrialRecord, TrialState
from labctl.stats import percentile


@dataclass(frozen=True)
class TestSummary:
    """One test of a benchmark: all repetitions of all good trials together, medians."""

    __test__ = False  # no test of pytest's

    name: str
    repetitions: int
    p10_ns: int
    p50_ns: int
    p90_ns: int
    tokens_per_second: float


@dataclass(frozen=True)
class MeasureSummary:
    """Something else that was measured: its values in all good trials; median, in ``unit``.

    ``error`` is the greatest that a program told of its own estimate.
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
    """What the board drew in the good trials whose meter told it; medians, and the greatest peak.

    ``absent``: how many have none, and ``reason`` why the first of them has not.
    """

    trials: int
    joules: float | None
    joules_per_token: float | None
    mean_watts: float | None
    peak_watts: float | None
    absent: int
    reason: str | None


@dataclass(frozen=True)
class VariantSummary:
    """One variant. Durations in ns; ``None`` = nothing was measured.

    ``token_*_ns`` are percentiles over the times of single tokens of all its good trials together;
    the others are medians over its good trials; ``ratio`` is its median token time over that of the
    first variant, None when that one has none. ``load_ns``, ``prompt_eval_ns`` and ``eval_ns`` are
    what the program says of itself, ``end_to_end_ns`` is from its start to its end, and
    ``prefill_tokens_per_second`` the rate at which the prompt was read. ``peak_memory_bytes`` is
    the greatest resident set of any trial, pages of the model's file included, and
    ``read_bytes_per_token`` what a token made storage read.
    """

    variant: str
    model: ModelIdentity
    trials_ok: int
    trials_failed: int
    trials_skipped: int
    generated_tokens: int | None
    load_ns: int | None
    prompt_eval_ns: int | None
    eval_ns: int | None
    end_to_end_ns: int | None
    peak_memory_bytes: int | None
    read_bytes_per_token: int | None
    ttft_ns: int | None
    token_p10_ns: int | None
    token_p50_ns: int | None
    token_p90_ns: int | None
    tokens_per_second: float | None
    prefill_tokens_per_second: float | None
    ratio: float | None
    tests: tuple[TestSummary, ...]
    measures: tuple[MeasureSummary, ...]
    #: None: the board has no meter.
    energy: EnergySummary | None
    checks_failed: tuple[str, ...]
    failures: tuple[str, ...]
    #: Why the first of the skipped trials was not run.
    skip_reason: str | None


def summarise(trials: Iterable[TrialRecord], order: Sequence[str] = ()) -> list[VariantSummary]:
    """One summary a variant that has trials, in this order or else as they appear.

    Warm-ups are left out.
    """
    variants: dict[str, list[TrialRecord]] = {variant: [] for variant in order}
    for trial in trials:
        group = variants.setdefault(trial.variant, [])
        if trial.repeat > 0 or trial.state is TrialState.FAILED:
            group.append(trial)
    base_ns = _percentile_ns(_token_times(next(iter(variants.values()), [])), 50)
    return [_summary(variant, group, base_ns) for variant, group in variants.items() if group]


def token_time(trial: TrialRecord) -> int | None:
    """A trial's time of a token: the median where single tokens were seen, else the mean."""
    return None if trial.timing is None else trial.timing.p50_ns or trial.timing.mean_ns


def _timings(group: Iterable[TrialRecord]) -> list[TimingRecord]:
    return [t.timing for t in group if t.state is TrialState.OK and t.timing is not None]


def _token_times(group: Iterable[TrialRecord]) -> list[int]:
    """Times of single tokens: as in the records, a gap that holds several is none of them.

    Nor is any gap of a record without ``p50_ns``: there too many tokens came together.
    """
    return [
        gap
        for timing in _timings(group)
        if timing.p50_ns is not None
        for index, gap in enumerate(timing.token_ns)
        if index not in timing.merged_chunks
    ]


def _summary(variant: str, group: Sequence[TrialRecord], base_ns: int | None) -> VariantSummary:
    good = [t for t in group if t.state is TrialState.OK]
    timings = _timings(group)
    jobs: list[JobStatus] = [t.job for t in good if t.job is not None]
    gaps = _token_times(group)
    p50 = _percentile_ns(gaps, 50)
    return VariantSummary(
        variant=variant,
        model=group[0].model,
        trials_ok=len(good),
        trials_failed=sum(t.state is TrialState.FAILED for t in group),
        trials_skipped=sum(t.state is TrialState.SKIPPED for t in group),
        generated_tokens=sum(t.generated_tokens or 0 for t in timings) or None,
        load_ns=_middle(t.load_ns for t in timings),
        prompt_eval_ns=_middle(t.prompt_eval_ns for t in timings),
        eval_ns=_middle(t.eval_ns for t in timings),
        end_to_end_ns=_middle(job.wall_ns for job in jobs),
        peak_memory_bytes=max(
            (job.max_rss_bytes for job in jobs if job.max_rss_bytes is not None), default=None
        ),
        read_bytes_per_token=_middle(t.evidence.read_bytes_per_token for t in good if t.evidence),
        ttft_ns=_middle(t.ttft_ns for t in timings),
        token_p10_ns=_percentile_ns(gaps, 10),
        token_p50_ns=p50,
        token_p90_ns=_percentile_ns(gaps, 90),
        tokens_per_second=_median(
            [t.tokens_per_second for t in timings if t.tokens_per_second is not None]
        ),
        prefill_tokens_per_second=_median(
            [
                t.prompt_tokens / (t.prompt_eval_ns / 1e9)
                for t in timings
                if t.prompt_tokens and t.prompt_eval_ns
            ]
        ),
        ratio=p50 / base_ns if p50 and base_ns else None,
        tests=tuple(_tests(timings)),
        measures=tuple(_measures(timings)),
        energy=_energy(good),
        checks_failed=tuple(dict.fromkeys(c.name for t in good for c in t.checks if c.ok is False)),
        failures=tuple(
            dict.fromkeys(
                f"{t.failure.kind} ({t.failure.blame}): {t.failure.message}"
                for t in group
                if t.failure
            )
        ),
        skip_reason=next((t.skip_reason for t in group if t.skip_reason), None),
    )


def _tests(timings: Iterable[TimingRecord]) -> Iterator[TestSummary]:
    samples: dict[str, list[int]] = {}
    tokens: dict[str, int] = {}
    for test in (test for timing in timings for test in timing.tests):
        samples.setdefault(test.name, []).extend(test.samples_ns)
        tokens[test.name] = test.prompt_tokens + test.generated_tokens
    for name, times in samples.items():
        p10, p50, p90 = (percentile(times, q) for q in (10, 50, 90))
        rate = tokens[name] / (p50 / 1e9)
        yield TestSummary(name, len(times), round(p10), round(p50), round(p90), rate)


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


def _middle(values: Iterable[int | None]) -> int | None:
    """The median of those that are known; None when none is."""
    return _percentile_ns([value for value in values if value is not None], 50)


def _energy(good: Iterable[TrialRecord]) -> EnergySummary | None:
    found = [trial.energy for trial in good if trial.energy is not None]
    if not found:
        return None
    told = [energy for energy in found if energy.joules is not None]
    reasons = [energy.absent for energy in found if energy.joules is None]

    def values(name: str) -> list[float]:
        return [value for energy in told if (value := getattr(energy, name)) is not None]

    return EnergySummary(
        trials=len(told),
        joules=_median(values("joules")),
        joules_per_token=_median(values("joules_per_token")),
        mean_watts=_median(values("mean_watts")),
        peak_watts=max(values("peak_watts"), default=None),
        absent=len(reasons),
        reason=next(iter(reasons), None),
    )


def _median(values: Sequence[float]) -> float | None:
    return percentile(values, 50) if values else None


def _percentile_ns(values: Sequence[int], q: float) -> int | None:
    return round(percentile(values, q)) if values else None
