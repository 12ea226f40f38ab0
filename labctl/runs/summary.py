"""What a run measured, by variant: all good trials of a variant, put together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from labctl.records import ModelIdentity, TrialRecord, TrialState
from labctl.stats import percentile


@dataclass(frozen=True)
class VariantSummary:
    """One variant. Durations in ns; ``None`` = nothing was measured.

    ``token_*_ns`` are percentiles over the gaps of all its good trials together;
    ``ttft_ns`` and ``tokens_per_second`` are medians over its good trials; ``ratio`` is its median
    token time over that of the first variant that has one.
    """

    variant: str
    model: ModelIdentity
    trials_ok: int
    trials_failed: int
    trials_skipped: int
    generated_tokens: int | None
    ttft_ns: int | None
    token_p10_ns: int | None
    token_p50_ns: int | None
    token_p90_ns: int | None
    tokens_per_second: float | None
    ratio: float | None
    checks_failed: tuple[str, ...]
    failures: tuple[str, ...]


def summarise(trials: Iterable[TrialRecord]) -> list[VariantSummary]:
    """One summary a variant, in the order of first appearance; warm-ups are left out."""
    variants: dict[str, list[TrialRecord]] = {}
    for trial in trials:
        group = variants.setdefault(trial.variant, [])
        if trial.repeat > 0 or trial.state is TrialState.FAILED:
            group.append(trial)
    summaries: list[VariantSummary] = []
    base_ns: int | None = None
    for variant, group in variants.items():
        if group:
            summary = _summary(variant, group, base_ns)
            base_ns = base_ns or summary.token_p50_ns
            summaries.append(summary)
    return summaries


def _summary(variant: str, group: Sequence[TrialRecord], base_ns: int | None) -> VariantSummary:
    good = [t for t in group if t.state is TrialState.OK]
    timings = [t.timing for t in good if t.timing is not None]
    gaps = [gap for timing in timings for gap in timing.token_ns]
    p50 = _percentile_ns(gaps, 50)
    return VariantSummary(
        variant=variant,
        model=group[0].model,
        trials_ok=len(good),
        trials_failed=sum(t.state is TrialState.FAILED for t in group),
        trials_skipped=sum(t.state is TrialState.SKIPPED for t in group),
        generated_tokens=sum(t.generated_tokens or 0 for t in timings) or None,
        ttft_ns=_percentile_ns([t.ttft_ns for t in timings if t.ttft_ns is not None], 50),
        token_p10_ns=_percentile_ns(gaps, 10),
        token_p50_ns=p50,
        token_p90_ns=_percentile_ns(gaps, 90),
        tokens_per_second=_median(
            [t.tokens_per_second for t in timings if t.tokens_per_second is not None]
        ),
        ratio=p50 / (base_ns or p50) if p50 else None,
        checks_failed=tuple(dict.fromkeys(c.name for t in good for c in t.checks if c.ok is False)),
        failures=tuple(
            dict.fromkeys(
                f"{t.failure.kind} ({t.failure.blame}): {t.failure.message}"
                for t in group
                if t.failure
            )
        ),
    )


def _median(values: Sequence[float]) -> float | None:
    return percentile(values, 50) if values else None


def _percentile_ns(values: Sequence[int], q: float) -> int | None:
    return round(percentile(values, q)) if values else None
