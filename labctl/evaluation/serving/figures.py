"""Figures of a load test: those of one load, by their names in gates, tables and CSV files."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from labctl.evaluation.serving.metrics import Distribution, StageMetrics
from labctl.figures.figure import Figure, Place

LoadFigure: TypeAlias = Figure[StageMetrics]


def sample_of(metrics: StageMetrics, figure: LoadFigure) -> Distribution | None:
    """Return the sample that a percentile is of."""
    found: Distribution | None = getattr(metrics, figure.name.replace(f"_{figure.part}", ""), None)
    return found


def _percentile(times: str, percent: str) -> Callable[[StageMetrics], float | None]:
    def value(metrics: StageMetrics) -> float | None:
        found: Distribution | None = getattr(metrics, f"{times}_ns")
        return None if found is None else float(getattr(found, percent))

    return value


def _percentiles(
    times: str, title: str, place: Place | None, brief: str = ""
) -> Iterator[LoadFigure]:
    """Yield the percentiles of times; ``brief``: those that 80 columns have space for."""
    for percent in ("p50", "p90", "p99"):
        yield Figure(
            f"{times}_{percent}_ns", "ns", title, _percentile(times, percent), place=place,
            short="" if percent == "p50" else percent, part=percent, may_gate=True, better="lower",
            is_brief=percent in brief,
        )  # fmt: skip


#: Figures of one load, in the order of tables and CSV files.
OF_A_LOAD: tuple[LoadFigure, ...] = (
    Figure(
        "requests_per_second", "1/s", "Answers/s", lambda found: found.requests_per_second,
        place=Place.LOADS, short="req/s", may_gate=True, better="higher",
    ),
    Figure(
        "output_tokens_per_second", "1/s", "Tokens/s",
        lambda found: found.output_tokens_per_second, place=Place.LOADS, may_gate=True,
        better="higher",
    ),
    Figure(
        "total_tokens_per_second", "1/s", "Total tokens/s",
        lambda found: found.total_tokens_per_second, place=Place.LOADS, short="total/s",
        tip="Tokens of questions and answers.", may_gate=True, better="higher", is_brief=False,
    ),
    Figure(
        "goodput", "1/s", "Good/s", lambda found: found.goodput, place=Place.LOADS,
        tip="Answers that keep every limit.", may_gate=True, better="higher",
    ),
    Figure(
        "good_share", "share", "Share of good answers", lambda found: found.good_share,
        may_gate=True, better="higher",
    ),
    Figure(
        "failed_share", "share", "Share of failed requests",
        lambda found: found.failed / found.requests, may_gate=True, better="lower",
    ),
    Figure(
        "offered_per_second", "1/s", "Offered/s", lambda found: found.offered_per_second,
        short="offered", may_gate=True,
    ),
    Figure(
        "departures", "number", "Ends of answers over offered requests",
        lambda found: found.departures, may_gate=True, better="higher",
    ),
    *_percentiles("ttft", "TTFT", Place.LOADS, "p50 p99"),
    *_percentiles("tpot", "TPOT", Place.LOADS, "p50 p99"),
    *_percentiles("itl", "ITL", Place.LOADS),
    *_percentiles("latency", "Latency", Place.LOADS),
    *_percentiles("lateness", "Lateness of the client", None),
)  # fmt: skip
BY_GATE = {figure.gate: figure for figure in OF_A_LOAD}
#: Figures of the whole test.
OF_THE_TEST = ("knee_rate",)
FIGURES = (*BY_GATE, *OF_THE_TEST)
#: Names that ``metric`` accepts, by part of a recipe.
SCHEMA_METRICS = {"LoadGate": FIGURES}
