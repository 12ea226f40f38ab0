"""Tables of a load test: figures of its loads, and lengths in tokens."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from labctl.evaluation.serving.figures import OF_A_LOAD, LoadFigure, sample_of
from labctl.evaluation.serving.metrics import Distribution, latency_ns, tpot_ns, ttft_ns
from labctl.evaluation.serving.results import LoadTestResults, StageResult
from labctl.figures.figure import Place
from labctl.records.serving import LatencyLimits, RequestRecord, StageRecord
from labctl.report.page.language import Language
from labctl.report.table import ABSENT, Cell, Column, Table, heading, quantity
from labctl.units import digits

#: With fewer requests the 99th percentile is the largest value, and is not shown.
FEWEST_FOR_P99 = 100


@dataclass(frozen=True)
class LimitedTime:
    """Times of requests that a test can limit. ``key``: the name in figures of loads."""

    key: str
    title: str
    of: Callable[[RequestRecord], float | None]

    def limit(self, limits: LatencyLimits) -> int | None:
        """Return the limit in ns; None: no limit."""
        value: int | None = getattr(limits, f"{self.key}_ns")
        return value


TIMES = (
    LimitedTime("ttft", "TTFT", ttft_ns),
    LimitedTime("tpot", "TPOT", tpot_ns),
    LimitedTime("latency", "Latency", latency_ns),
)


def load_tables(results: LoadTestResults, words: Language) -> list[Table]:
    """Return the table of all loads, and the table of their lengths, if any length is known."""
    return [_loads(results, words), *_lengths(results, words)]


def load_name(stage: StageRecord) -> str:
    """Return a load as in tables: ``4 streams``, ``0.5/s``."""
    if stage.rate is not None:
        return f"{digits(stage.rate)}/s"
    return f"{stage.concurrency} stream{'s' if stage.concurrency != 1 else ''}"


def _loads(results: LoadTestResults, words: Language) -> Table:
    """Return the table of all loads, without columns for figures that no load can have."""
    limits = results.record.limits.model_dump().values()
    left_out = set() if any(limit is not None for limit in limits) else {"goodput"}
    figures = [one for one in OF_A_LOAD if one.place is Place.LOADS and one.name not in left_out]
    is_open = any(one.stage.rate is not None for one in results.stages)
    tip = words("Streams wait for their answer; requests of a rate come at their times.")
    columns = [Column(words("Streams or rate"), tip=tip)]
    if is_open:
        columns.append(Column(words("Offered/s"), numeric=True))
        columns.append(Column(words("Followed"), roomy=True))
    columns.append(
        Column(words("Answers"), numeric=True, tip=words("Of the requests that were sent."))
    )
    columns += [heading(figure, words) for figure in figures]
    rows = [list(_row(one, figures, words, is_open=is_open)) for one in results.stages]
    note = words("* too few requests for an upper limit of the 99th percentile")
    is_marked = any(cell.text.endswith("*") for row in rows for cell in row)
    return Table(words(Place.LOADS), columns, rows, note if is_marked else "")


def _row(
    one: StageResult, figures: list[LoadFigure], words: Language, *, is_open: bool
) -> Iterator[Cell]:
    found = one.metrics
    yield Cell(load_name(one.stage), recorded=True)
    if is_open:
        yield quantity(found.offered_per_second if found else None, "1/s")
        verdict = {True: words("yes"), False: words("no"), None: "–"}[one.follows]
        yield Cell(verdict, tip=one.undecided or "")
    if found is None:
        yield from (ABSENT for _ in ("answers", *figures))
        return
    text = f"{found.completed}/{found.requests + one.stage.unfinished}"
    is_bad = found.failed or one.stage.unfinished
    yield Cell(text, found.completed, tone="bad" if is_bad else "")
    for figure in figures:
        cell, sample = quantity(figure.value(found), figure.unit), sample_of(found, figure)
        few = figure.part == "p99" and sample is not None and sample.p99_high is None
        yield Cell(f"{cell.text}*", cell.value) if few else cell


def _lengths(results: LoadTestResults, words: Language) -> Iterator[Table]:
    """Yield the requested and the received lengths, in tokens."""
    rows = []
    kinds = {
        "asked_prompt_tokens": words("asked prompt tokens"),
        "prompt_tokens": words("prompt tokens"),
        "asked_output_tokens": words("asked output tokens"),
        "output_tokens": words("output tokens"),
    }
    for one in results.stages:
        for kind, title in kinds.items():
            sample: Distribution | None = getattr(one.metrics, kind, None)
            if sample is not None:
                values = (sample.low, sample.p50, sample.mean, sample.p90, sample.high)
                names = (load_name(one.stage), title)
                cells = [Cell(name, recorded=True) for name in names]
                rows.append([*cells, *(Cell(f"{value:.5g}", value) for value in values)])
    if rows:
        first = [Column(words("Streams or rate")), Column(words("Lengths"))]
        named = [Column(text, numeric=True) for text in ("min", "p50", words("mean"), "p90", "max")]
        yield Table(words("Lengths in tokens"), [*first, *named], rows, roomy=True)
