"""Figures of a stage, by their names in gates, tables and CSV files."""

from collections.abc import Callable, Mapping

from labctl.evaluation.serving.metrics import Distribution, StageMetrics

Figure = Callable[[StageMetrics], float | None]


def _percentile(times: str, percent: str) -> Figure:
    def figure(metrics: StageMetrics) -> float | None:
        found: Distribution | None = getattr(metrics, f"{times}_ns")
        return None if found is None else float(getattr(found, percent)) / 1e6

    return figure


#: Figures of one load, by name.
OF_A_STAGE: Mapping[str, Figure] = {
    "requests_per_second": lambda metrics: metrics.requests_per_second,
    "output_tokens_per_second": lambda metrics: metrics.output_tokens_per_second,
    "total_tokens_per_second": lambda metrics: metrics.total_tokens_per_second,
    "goodput": lambda metrics: metrics.goodput,
    "good_share": lambda metrics: metrics.good_share,
    "failed_share": lambda metrics: metrics.failed / metrics.requests,
    "offered_per_second": lambda metrics: metrics.offered_per_second,
    "departures": lambda metrics: metrics.departures,
    **{
        f"{times}_{percent}_ms": _percentile(times, percent)
        for times in ("ttft", "tpot", "itl", "latency", "lateness")
        for percent in ("p50", "p90", "p99")
    },
}
#: Figures of the whole test.
OF_THE_TEST = ("knee_rate",)
FIGURES = (*OF_A_STAGE, *OF_THE_TEST)
