"""Load tests as a table for a terminal, as CSV and as JSON."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from labctl.errors import printable_line
from labctl.evaluation.serving.figures import BY_GATE, OF_A_LOAD
from labctl.evaluation.serving.results import (
    LoadTestResults,
    StageResult,
    knee_sentence,
    notes,
)
from labctl.records.board import Execution
from labctl.records.run import GateRecord
from labctl.records.serving import LatencyLimits
from labctl.report.details import plain, print_lines, print_table
from labctl.report.load_tables import load_tables
from labctl.report.page.language import Language
from labctl.report.table import plain_cells
from labctl.report.trial_export import csv_cell
from labctl.units import duration

_LEGEND = {
    "closed": "Closed loop (streams): each waits for its answer; times begin at the sending.",
    "open": "Open loop (/s): requests come at their times; times begin at the intended sending.",
}
#: Columns of a CSV file: means of both clocks over the same requests, and the server's counters.
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
    *,
    wide: bool = False,
) -> None:
    """Print a row for each load, then the notes that the reader needs, in 80 columns."""
    record = results.record
    print_lines(console, [f"[bold]{plain(record.recipe)}[/] {plain(headline(results))}"])
    if record.endpoint.execution is Execution.EMULATED:
        print_lines(console, ["[bold red]EMULATED: does not show the speed of a board[/]"])
    for table in load_tables(results, Language("en")):
        if wide or not table.roomy:
            print_table(console, *plain_cells(table, brief=not wide), shorten=False)
            console.print(end="\n" if wide and not table.roomy else "")
    if results.knee is not None:
        print_lines(console, [f"[bold]knee: {knee_sentence(results.knee)}[/]"])
    for gate in gates:
        word, style = ("kept", "green") if gate.passed else ("MISSED", "bold red")
        text = f"{gate.variant} {gate.metric} {gate.limit}: {gate.detail}"
        print_lines(console, [f"[{style}]gate {word}: [/]{plain(text)}"])
    print_lines(console, [plain(note) for note in notes(results)])
    loops = dict.fromkeys(one.stage.loop for one in results.stages)
    print_lines(console, [f"[dim]{' '.join([*(_LEGEND[loop] for loop in loops), _TERMS])}[/]"])


def headline(results: LoadTestResults) -> str:
    """Return the server, its model and the requests in one line."""
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


def load_test_csv(results: LoadTestResults) -> str:
    """Return a line for each load, times in ms."""
    out = io.StringIO()
    writer = csv.writer(out)
    facts = ("name", "loop", "concurrency", "rate", "arrivals", "stop", "unfinished", "warm_up")
    counts = ("requests", "completed", "failed", "good")
    writer.writerow(["run", *facts, *counts, *BY_GATE, "client_late", *_server_names()])
    for one in results.stages:
        found = one.metrics
        row: list[Any] = [results.record.id, *(getattr(one.stage, name) for name in facts)]
        row += [None if found is None else getattr(found, name) for name in counts]
        row += [found and figure.in_gates(figure.value(found)) for figure in OF_A_LOAD]
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


def load_test_text(form: str, results: LoadTestResults, gates: Sequence[GateRecord]) -> str:
    """Return the results as ``csv``, ``json`` or ``table``."""
    if form == "csv":
        return load_test_csv(results)
    if form == "json":
        return load_test_json(results, gates)
    console = Console(file=io.StringIO(), width=200, color_system=None, emoji=False)
    print_load_test(console, results, gates, wide=True)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()
