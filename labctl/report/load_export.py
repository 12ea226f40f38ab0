"""Requests and loads of a load test for other programs: CSV, JSON Lines and Parquet.

Times are in ns: moments since the beginning of their load, by the client's monotonic clock.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from labctl.evaluation.serving.directory import LoadTestDirectory
from labctl.evaluation.serving.metrics import (
    is_good,
    latency_ns,
    lateness_ns,
    tokens_of,
    tpot_ns,
    ttft_ns,
)
from labctl.evaluation.serving.results import results_of
from labctl.records.serving import LatencyLimits, RequestRecord
from labctl.report.rows import rows_csv, rows_jsonl, rows_parquet
from labctl.report.serving import LOAD_COLUMNS, load_rows

#: Fields of a request's record that are columns, and their types.
_RECORDED: dict[str, type] = {
    "stage": int, "number": int, "warm_up": bool, "intended_ns": int, "sent_ns": int,
    "done_ns": int, "asked_prompt_tokens": int, "prompt_tokens": int, "cached_tokens": int,
    "drafted_tokens": int, "accepted_tokens": int,
    "asked_output_tokens": int, "hidden_tokens": int, "tokens_after_first": int,
    "counted_by": str, "answers": int, "finish": str,
}  # fmt: skip
#: Columns that are computed from a request.
_COMPUTED: dict[str, tuple[type, Callable[[RequestRecord], Any]]] = {
    "completion_tokens": (int, tokens_of),
    "pieces": (int, lambda row: len(row.arrivals_ns)),
    "first_piece_ns": (int, lambda row: row.arrivals_ns[0] if row.arrivals_ns else None),
    "ttft_ns": (int, lambda row: None if row.failure else ttft_ns(row)),
    "tpot_ns": (float, lambda row: None if row.failure else tpot_ns(row)),
    "latency_ns": (int, lambda row: None if row.failure else latency_ns(row)),
    "lateness_ns": (int, lateness_ns),
    "failure": (str, lambda row: row.failure and row.failure.kind),
    "blame": (str, lambda row: row.failure and str(row.failure.blame)),
    "message": (str, lambda row: row.failure and row.failure.message),
}
#: Columns of a request's load, and whether the request keeps every limit.
_OF_LOAD: dict[str, type] = {
    "run": str, "load": str, "loop": str, "concurrency": int, "rate": float, "load_began": str,
    "good": bool,
}  # fmt: skip
REQUEST_COLUMNS = {**_OF_LOAD, **_RECORDED, **{name: kind for name, (kind, _) in _COMPUTED.items()}}


def request_rows(directory: LoadTestDirectory) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each request that ended, with warm-up. Raises ConfigError.

    Requests of a load that is still running have no row.
    """
    record = directory.serving()
    stages = {stage.number: stage for stage in directory.stages}
    limited = record.limits != LatencyLimits()
    for row in directory.requests:
        stage = stages.get(row.stage)
        if stage is None:
            continue
        yield {
            "run": record.id,
            "load": stage.name,
            "loop": stage.loop,
            "concurrency": stage.concurrency,
            "rate": stage.rate,
            "load_began": stage.began.isoformat(),
            "good": is_good(row, record.limits) if limited else None,
            **{name: getattr(row, name) for name in _RECORDED},
            **{name: value(row) for name, (_, value) in _COMPUTED.items()},
        }


def load_test_exports(
    directory: LoadTestDirectory, form: str
) -> dict[str, tuple[str | bytes, int]]:
    """Return ``requests`` and ``loads`` in a format, each with its number of rows.

    ``form``: csv, jsonl or parquet. Raises ConfigError.
    """
    found: dict[str, tuple[Sequence[Mapping[str, Any]], Mapping[str, type]]] = {
        "requests": (list(request_rows(directory)), REQUEST_COLUMNS),
        "loads": (load_rows(results_of(directory)), LOAD_COLUMNS),
    }
    return {name: (_written(form, *of), len(of[0])) for name, of in found.items()}


def _written(
    form: str, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, type]
) -> str | bytes:
    if form == "parquet":
        return rows_parquet(rows, columns)
    return rows_csv(rows, columns) if form == "csv" else rows_jsonl(rows)
