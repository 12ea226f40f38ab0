"""Load tests as a table for a terminal, as CSV and as JSON."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from rich.console import Console

from labctl.errors import printable_line
from labctl.evaluation.serving.figures import OF_A_LOAD
from labctl.evaluation.serving.results import (
    LoadTestResults,
    notes,
)
from labctl.records.board import Execution
from labctl.records.run import GateRecord, RunEnd
from labctl.records.serving import LatencyLimits
from labctl.report.console import plain, print_lines, print_table
from labctl.report.load_tables import load_tables
from labctl.report.page.language import Language
from labctl.report.page.load_answers import load_answers
from labctl.report.remarks import gate_remark
from labctl.report.rows import rows_csv
from labctl.report.status import Status
from labctl.report.table import STYLES, plain_cells
from labctl.report.tables import print_status
from labctl.units import duration

_LEGEND = {
    "closed": "Closed loop (streams): each waits for its answer; times begin at the sending.",
    "open": "Open loop (/s): requests come at their times; times begin at the intended sending.",
}
#: Facts and counts of a load's record and figures, and their types.
_FACTS: dict[str, type] = {
    "name": str, "loop": str, "concurrency": int, "rate": float, "arrivals": str, "stop": str,
    "unfinished": int, "warm_up": int,
}  # fmt: skip
_COUNTS = ("requests", "completed", "failed", "good")
#: Columns of the server's clock: means of both clocks over the same requests.
_SERVER_TIMES = {
    "server_ttft_mean_ns": "ttft_ns",
    "own_ttft_mean_ns": "own_ttft_ns",
    "server_latency_mean_ns": "latency_ns",
    "own_latency_mean_ns": "own_latency_ns",
}
#: The server's own counters of a load, and their types.
_SERVER_COUNTERS: dict[str, type] = {
    "running_max": int, "running_mean": float, "waiting_max": int, "waiting_mean": float,
    "cache_usage_max": float, "requests_finished": int, "generated_tokens": int,
    "prompt_tokens": int, "cached_prompt_tokens": int, "preemptions": int, "gap": str,
}  # fmt: skip
#: Columns of a load in exports.
LOAD_COLUMNS: Mapping[str, type] = {
    "run": str,
    **_FACTS,
    **dict.fromkeys(_COUNTS, int),
    **{figure.name: float for figure in OF_A_LOAD},
    "client_late": bool,
    **dict.fromkeys(_SERVER_TIMES, float),
    "server_other_requests": int,
    **{f"server_{name}": kind for name, kind in _SERVER_COUNTERS.items()},
}
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
    answers = load_answers(results, Language("en"))
    print_lines(console, [f"[bold]{plain(answer)}[/]" for answer in answers])
    for gate in gates:
        remark = gate_remark(gate)
        print_lines(console, [f"[{STYLES[remark.tone]}]{remark.lead}[/]{plain(remark.text)}"])
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


def load_rows(results: LoadTestResults) -> list[dict[str, object]]:
    """Return a row for each load, with :data:`LOAD_COLUMNS`; times in ns, None if unknown."""
    return [
        {
            "run": results.record.id,
            **{name: getattr(one.stage, name) for name in _FACTS},
            **{name: getattr(one.metrics, name, None) for name in _COUNTS},
            **{of.name: one.metrics and of.value(one.metrics) for of in OF_A_LOAD},
            "client_late": one.is_client_late,
            **{name: getattr(one.clock, of, None) for name, of in _SERVER_TIMES.items()},
            "server_other_requests": getattr(one.clock, "other_requests", None),
            **{
                f"server_{name}": getattr(one.stage.server, name, None) for name in _SERVER_COUNTERS
            },
        }
        for one in results.stages
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
    form: str,
    results: LoadTestResults,
    gates: Sequence[GateRecord],
    end: RunEnd | None,
    status: Status,
    *,
    strict: bool = False,
) -> str:
    """Return the results as ``csv``, ``json``, ``table`` or in a format of CI servers.

    ``strict``: see :func:`labctl.report.ci.load_cases.load_test_suite`.
    """
    if form == "csv":
        return rows_csv(load_rows(results), LOAD_COLUMNS)
    if form == "json":
        return load_test_json(results, gates)
    if form == "table":
        return _table_text(results, gates, status)
    from labctl.report.ci.load_cases import load_test_suite
    from labctl.report.ci.texts import ci_text

    def result(own: str) -> str:
        text = _table_text(results, gates, status)
        return f"```\n{text}```\n" if own == "md" else text

    return ci_text(form, load_test_suite(results, gates, end, strict=strict), result)


def _table_text(results: LoadTestResults, gates: Sequence[GateRecord], status: Status) -> str:
    file = io.StringIO()
    console = Console(file=file, width=200, color_system=None, emoji=False)
    print_status(console, status)
    print_load_test(console, results, gates, wide=True)
    return file.getvalue()
