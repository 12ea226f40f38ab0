"""Load tests as a table for a terminal, as CSV and as JSON."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from labctl.errors import printable_line
from labctl.evaluation.serving.figures import OF_A_STAGE
from labctl.evaluation.serving.metrics import Distribution, StageMetrics
from labctl.evaluation.serving.results import (
    LoadTestResults,
    StageResult,
    knee_sentence,
    notes,
)
from labctl.records.board import Execution
from labctl.records.run import GateRecord, RunEnd
from labctl.records.serving import LatencyLimits, StageRecord
from labctl.report.details import plain, print_lines, print_table
from labctl.report.trial_export import csv_cell
from labctl.units import digits, duration

_LEGEND = {
    "closed": "Closed loop (streams): each waits for its answer; times begin at the sending.",
    "open": "Open loop (/s): requests come at their times; times begin at the intended sending.",
}
#: Columns of a CSV file: the two clocks' means over the same requests, and the server's counters.
_SERVER_TIMES = {
    "server_ttft_mean_ms": "ttft_ns",
    "own_ttft_mean_ms": "own_ttft_ns",
    "server_latency_mean_ms": "latency_ns",
    "own_latency_mean_ms": "own_latency_ns",
}
_SERVER_COUNTERS = (
    "running_max",
    "running_mean",
    "waiting_max",
    "waiting_mean",
    "cache_usage_max",
    "requests_finished",
    "generated_tokens",
    "prompt_tokens",
    "cached_prompt_tokens",
    "preemptions",
    "gap",
)
_TERMS = (
    "TTFT: to the first piece; TPOT: of each token after the first piece, in the mean of an answer."
)


def print_load_test(
    console: Console,
    results: LoadTestResults,
    gates: Sequence[GateRecord] = (),
    end: RunEnd | None = None,
    *,
    wide: bool = False,
) -> None:
    """Print a row for each load, then what the reader needs. It fits in 80 columns."""
    record = results.record
    print_lines(console, [f"[bold]{plain(record.recipe)}[/] {plain(headline(results))}"])
    if record.endpoint.execution is Execution.EMULATED:
        print_lines(console, ["[bold red]EMULATED: does not show the speed of a board[/]"])
    headings, rows = cells(results, wide=wide)
    print_table(console, headings, rows, shorten=False)
    if wide:
        console.print()
        print_table(console, *length_cells(results), shorten=False)
    if results.knee is not None:
        print_lines(console, [f"[bold]knee: {knee_sentence(results.knee)}[/]"])
    for gate in gates:
        word, style = ("kept", "green") if gate.passed else ("MISSED", "bold red")
        text = f"{gate.variant} {gate.metric} {gate.limit}: {gate.detail}"
        print_lines(console, [f"[{style}]gate {word}: [/]{plain(text)}"])
    print_lines(console, [plain(note) for note in notes(results)])
    loops = dict.fromkeys(one.stage.loop for one in results.stages)
    print_lines(console, [f"[dim]{' '.join([*(_LEGEND[loop] for loop in loops), _TERMS])}[/]"])
    if end is None:
        print_lines(console, ["[yellow]the test has not ended, or its controller died[/]"])
    elif end.failure is not None:
        why = f"ended early ({end.failure.blame}): {plain(end.failure.message)}"
        print_lines(console, [f"[red]{why}[/]"])
    elif end.state == "interrupted":
        print_lines(console, ["[yellow]interrupted[/]"])


def headline(results: LoadTestResults) -> str:
    """Return the server, its model and the requests in a line."""
    record = results.record
    where = record.endpoint.address or (
        f"a server that labctl started on {record.endpoint.board or 'this host'}"
    )
    model = (record.model and record.model.name) or record.endpoint.model
    proven = "" if record.endpoint.sha256_proven else ", as declared"
    work = record.workload
    asked = f"data set {work.dataset.name}" if work.dataset else "made-up texts"
    if work.prompt_tokens is not None:
        asked += f" of {_range(work.prompt_tokens.low, work.prompt_tokens.high)} tokens"
    most = _range(work.output_tokens.low, work.output_tokens.high)
    limits = _limits(record.limits)
    return (
        f"of {where} ({record.endpoint.api}, {model}{proven}): {asked}, at most {most} generated"
        f"{f'; good: {limits}' if limits else ''}"
    )


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"


def _limits(limits: LatencyLimits) -> str:
    given = (("TTFT", limits.ttft_ns), ("TPOT", limits.tpot_ns), ("latency", limits.latency_ns))
    return ", ".join(f"{name} <= {duration(value)}" for name, value in given if value is not None)


def load_name(stage: StageRecord) -> str:
    """``4 streams``, ``0.5/s``: a load as tables have it."""
    if stage.rate is not None:
        return f"{digits(stage.rate)}/s"
    return f"{stage.concurrency} stream{'s' if stage.concurrency != 1 else ''}"


def cells(
    results: LoadTestResults, *, wide: bool = False
) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the table as texts: headings (``>``: to the right), and a row for each load."""
    times = ("ttft", "tpot", "itl", "latency") if wide else ("ttft", "tpot")
    percents = ("p50", "p90", "p99") if wide else ("p50", "p99")
    limited = results.record.limits != LatencyLimits()
    is_open = any(one.stage.rate is not None for one in results.stages)
    headings = ["load", *([">offered"] if is_open else []), ">answers", ">req/s", ">tokens/s"]
    headings += [">total/s"] if wide else []
    headings += [">good/s"] if limited else []
    for name in times:
        label = name if name == "latency" else name.upper()
        headings += [f">{label} {percents[0]}", *(f">{percent}" for percent in percents[1:])]
    headings += [">late p99"] if wide else []
    rows = []
    for one in results.stages:
        found = one.metrics
        rate = None if found is None else found.offered_per_second
        row = [load_name(one.stage), *(["-" if rate is None else digits(rate)] if is_open else [])]
        row += [answers_text(one), *_rates(found, wide=wide, limited=limited)]
        for name in times:
            sample = None if found is None else getattr(found, f"{name}_ns")
            row += [time_text(sample, percent) for percent in percents]
        row += [time_text(found.lateness_ns if found else None, "p99")] if wide else []
        rows.append(tuple(row))
    return headings, rows


def answers_text(one: StageResult) -> str:
    """Return the answers of a load, of its requests."""
    found = one.metrics
    return "-" if found is None else f"{found.completed}/{found.requests + one.stage.unfinished}"


def _rates(found: StageMetrics | None, *, wide: bool, limited: bool) -> list[str]:
    if found is None:
        values: list[float | None] = [None] * 4
    else:
        values = [
            found.requests_per_second,
            found.output_tokens_per_second,
            found.total_tokens_per_second,
            found.goodput,
        ]
    shown = ["-" if value is None else digits(value) for value in values]
    return [*shown[:2], *(shown[2:3] if wide else []), *(shown[3:] if limited else [])]


def time_text(sample: Distribution | None, percent: str) -> str:
    """Return a percentile; ``*``: the sample is too small for an upper limit of p99."""
    if sample is None:
        return "-"
    mark = "*" if percent == "p99" and sample.p99_high is None else ""
    return f"{duration(getattr(sample, percent))}{mark}"


def length_cells(results: LoadTestResults) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the lengths that were asked for and got, in tokens, as a table."""
    rows = []
    kinds = ("asked_prompt_tokens", "prompt_tokens", "asked_output_tokens", "output_tokens")
    for one in results.stages:
        for kind in kinds:
            sample: Distribution | None = getattr(one.metrics, kind, None)
            if sample is not None:
                values = (sample.low, sample.p50, sample.mean, sample.p90, sample.high)
                label = kind.replace("_", " ")
                rows.append((load_name(one.stage), label, *(f"{value:.5g}" for value in values)))
    return ["load", "lengths", ">min", ">p50", ">mean", ">p90", ">max"], rows


def load_test_csv(results: LoadTestResults) -> str:
    """Return a line for each load, times in ms."""
    out = io.StringIO()
    writer = csv.writer(out)
    facts = ("name", "loop", "concurrency", "rate", "arrivals", "stop", "unfinished", "warm_up")
    counts = ("requests", "completed", "failed", "good")
    writer.writerow(["run", *facts, *counts, *OF_A_STAGE, "client_late", *_server_names()])
    for one in results.stages:
        found = one.metrics
        row: list[Any] = [results.record.id, *(getattr(one.stage, name) for name in facts)]
        row += [None if found is None else getattr(found, name) for name in counts]
        row += [None if found is None else figure(found) for figure in OF_A_STAGE.values()]
        row += [one.is_client_late, *_server_values(one)]
        writer.writerow([csv_cell(value) for value in row])
    return out.getvalue()


def _server_names() -> list[str]:
    return [
        *_SERVER_TIMES,
        "server_other_requests",
        *(f"server_{name}" for name in _SERVER_COUNTERS),
    ]


def _server_values(one: StageResult) -> list[Any]:
    clock, counters = one.clock, one.stage.server
    times = [getattr(clock, name, None) for name in _SERVER_TIMES.values()]
    return [
        *(None if value is None else value / 1e6 for value in times),
        getattr(clock, "other_requests", None),
        *(getattr(counters, name, None) for name in _SERVER_COUNTERS),
    ]


def load_test_json(results: LoadTestResults, gates: Sequence[GateRecord]) -> str:
    """Return the record, loads with their figures, knee, gates and notes as JSON."""
    document = {
        "run": results.record.model_dump(mode="json"),
        "stages": [
            {
                **one.stage.model_dump(mode="json"),
                "metrics": None if one.metrics is None else asdict(one.metrics),
                "client_late": one.is_client_late,
                "follows": one.follows,
                "second_clock": None if one.clock is None else asdict(one.clock),
                "failures": dict(one.failures),
            }
            for one in results.stages
        ],
        "knee": None if results.knee is None else asdict(results.knee),
        "gates": [gate.model_dump(mode="json") for gate in gates],
        "notes": [printable_line(note) for note in notes(results)],
    }
    return json.dumps(document, indent=2) + "\n"


def load_test_text(
    form: str, results: LoadTestResults, gates: Sequence[GateRecord], end: RunEnd | None
) -> str:
    """Return the results as ``csv``, ``json`` or ``table``."""
    if form == "csv":
        return load_test_csv(results)
    if form == "json":
        return load_test_json(results, gates)
    console = Console(file=io.StringIO(), width=200, color_system=None, emoji=False)
    print_load_test(console, results, gates, end, wide=True)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()
